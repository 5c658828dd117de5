"""The driver plans batches, and tasks read and write them. Both are called directly: against a
broker, without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark import TaskContext

from aioprod import ConfigError, ErrorCode
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.consumer.partition_reader import PartitionReader
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.reports import Written
from aioprod.spark.offsets import OffsetRange
from aioprod.spark.reading import executor_rack, read_ranges
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import parse_source_options
from aioprod.spark.writing import write_batches
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    """A broker with the topic ``t`` of three partitions, each with the ten values p0 to p9."""
    with EmbeddedCluster.in_thread() as running:
        running.create_topic("t", 3)
        write(
            running,
            {
                "value": [f"{p}{n}" for p in range(3) for n in range(10)],
                "partition": [p for p in range(3) for _ in range(10)],
            },
        )
        yield running


def write(broker: ThreadedCluster, columns: dict[str, Any], **options: str) -> Written:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"} | options
    return write_batches(
        parse_sink_options({name: text for name, text in given.items() if text}),
        iter([pa.record_batch(columns)]),
    )


# -- sink ------------------------------------------------------------------------------------------


def test_rows_go_where_their_columns_say(broker: ThreadedCluster) -> None:
    for topic in ("a", "b"):
        broker.create_topic(topic, 2)
    columns = {
        "value": ["1", "2", None],
        "key": [b"k", None, b"gone"],
        "topic": ["a", "b", "a"],
        "partition": pa.array([1, 0, None], pa.int32()),
    }
    assert write(broker, columns, topic="") == Written(3, 7)
    assert [(record.key, record.value) for record in broker.records("a", 1)][:1] == [(b"k", b"1")]
    assert [(record.key, record.value) for record in broker.records("b", 0)] == [(None, b"2")]
    assert (b"gone", None) in [(record.key, record.value) for record in broker.records("a")]


def test_a_row_without_a_topic_is_refused(broker: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match="row 1 of this task: topic is null"):
        write(broker, {"value": ["1", "2"], "topic": ["t", None]}, topic="")


def test_a_partition_that_does_not_exist_fails_the_task(broker: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match=r"row 0 of this task, for topic t: .*99"):
        write(broker, {"value": ["1"], "partition": [99]}, **{"kafka.max.block.ms": "300"})


def test_a_refused_delivery_fails_the_task(broker: ThreadedCluster) -> None:
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(
        SinkError, match=r"a row was not acknowledged: .*TOPIC_AUTHORIZATION_FAILED"
    ):
        write(broker, {"value": ["1"] * 1000})


def test_a_row_that_is_too_large_is_named(broker: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match="row 1 of this task, for topic t"):
        write(broker, {"value": ["small", "x" * 2_000_000]})


def test_a_header_without_a_key_fails_the_task(broker: ThreadedCluster) -> None:
    headers = pa.array(
        [[{"key": None, "value": b"1"}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    with pytest.raises(SinkError, match=r"rows 0 to 0 of this task, for topic t: .*header"):
        write(broker, {"value": ["1"], "headers": headers})


def test_a_retried_delivery_is_written_once(broker: ThreadedCluster) -> None:
    before = len(broker.records("t"))
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (
        write(broker, {"value": [str(n) for n in range(500)], "partition": [0] * 500}).rows == 500
    )
    assert [record.value for record in broker.records("t", 0)][10:] == [
        str(n).encode() for n in range(500)
    ]
    assert len(broker.records("t")) == before + 500


# -- near brokers ----------------------------------------------------------------------------------


def test_the_rack_of_an_executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rack").write_text("eu-1b\n")
    file = {"AIOPROD_CLIENT_RACK_FILE": str(tmp_path / "rack")}
    assert executor_rack({}) == ""
    assert executor_rack({"AIOPROD_CLIENT_RACK": "eu-1a", **file}) == "eu-1a"
    assert executor_rack(file) == "eu-1b"
    with pytest.raises(ConfigError, match=r"AIOPROD_CLIENT_RACK_FILE=.*none"):
        executor_rack({"AIOPROD_CLIENT_RACK_FILE": str(tmp_path / "none")})
    task = SimpleNamespace(resources=lambda: {"rack": SimpleNamespace(addresses=["eu-1c"])})
    monkeypatch.setattr(TaskContext, "get", lambda: task)
    assert executor_rack({}) == "eu-1c"


@pytest.mark.parametrize(
    ("option", "rack"), [({}, "of the executor"), ({"kafka.client.rack": "given"}, "given")]
)
def test_a_read_names_its_rack(
    broker: ThreadedCluster, monkeypatch: pytest.MonkeyPatch, option: dict[str, str], rack: str
) -> None:
    monkeypatch.setenv("AIOPROD_CLIENT_RACK", "of the executor")
    seen = set()
    make = PartitionReader._request

    def watched(self: PartitionReader, leader: PartitionInfo) -> FetchRequest:
        request = make(self, leader)
        seen.add(request.rack_id)
        return request

    monkeypatch.setattr(PartitionReader, "_request", watched)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", **option}
    options = parse_source_options(given, streaming=False)
    assert sum(rows.num_rows for rows in read_ranges(options, [OffsetRange("t", 0, 0, 10)])) == 10
    assert seen == {rack}

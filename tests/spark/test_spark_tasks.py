"""What the driver plans and the tasks do, called directly: against a broker, without a JVM."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql.datasource import InputPartition

from aioprod import BrokerError, ConfigError, ErrorCode, TopicPartition
from aioprod.protocol.api_keys import ApiKey
from aioprod.spark._versions import ReadAllAvailable, ReadMaxRows
from aioprod.spark.offsets import DataLossError, OffsetRange
from aioprod.spark.planning import plan_batch
from aioprod.spark.reading import read_range
from aioprod.spark.sink import SinkError, Written, write_batches
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source import KafkaReader, KafkaStreamReader
from aioprod.spark.source_options import SourceOptions, parse_source_options
from aioprod.testing import EmbeddedCluster, ThreadedCluster, close, fail

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    """A broker with the topic ``t`` of three partitions, each with the ten values p0 to p9."""
    with EmbeddedCluster.in_thread() as running:
        running.create_topic("t", 3)
        write(running, {"value": [f"{p}{n}" for p in range(3) for n in range(10)], "partition": [p for p in range(3) for _ in range(10)]})
        yield running


def write(broker: ThreadedCluster, columns: dict[str, Any], **options: str) -> Written:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"} | options
    return write_batches(parse_sink_options({name: text for name, text in given.items() if text}), iter([pa.record_batch(columns)]))


def source(broker: ThreadedCluster, streaming: bool = False, /, **options: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.retry.backoff.ms": "5"}
    if not options.keys() & {"assign", "subscribePattern"}:
        given["subscribe"] = "t"
    return parse_source_options(given | options, streaming=streaming)


def values(options: SourceOptions, ranges: list[OffsetRange]) -> list[str]:
    return [value.decode() for item in ranges for batch in read_range(options, item) for value in batch.column("value").to_pylist()]


def read(broker: ThreadedCluster, **options: str) -> list[str]:
    given = source(broker, **options)
    return values(given, asyncio.run(plan_batch(given)))


ALL = [f"{p}{n}" for p in range(3) for n in range(10)]


def test_a_batch_read_gives_every_record_once(broker: ThreadedCluster) -> None:
    assert read(broker) == ALL
    assert read(broker, minPartitions="7") == ALL


def test_explicit_offsets_bound_a_batch_read(broker: ThreadedCluster) -> None:
    found = read(broker, startingOffsets='{"t":{"0":8,"1":-2,"2":-1}}', endingOffsets='{"t":{"0":-1,"1":2,"2":10}}')
    assert found == ["08", "09", "10", "11"]


def test_assigned_partitions_and_patterns(broker: ThreadedCluster) -> None:
    broker.create_topic("other", 1)
    assert read(broker, assign='{"t":[2,0]}') == ALL[:10] + ALL[20:]
    assert read(broker, subscribePattern="[st]") == ALL
    with pytest.raises(BrokerError, match="option assign names t-9"):
        read(broker, assign='{"t":[0,9]}')
    with pytest.raises(ConfigError, match="subscribePattern='nothing' matches none of the 2 topics"):
        read(broker, subscribePattern="nothing")


def test_an_unknown_topic_is_named(broker: ThreadedCluster) -> None:
    with pytest.raises(BrokerError, match="topic nowhere: UNKNOWN_TOPIC_OR_PARTITION"):
        read(broker, subscribe="nowhere", **{"kafka.default.api.timeout.ms": "100"})
    assert "nowhere" not in broker.topics


def test_offsets_that_are_gone_fail_or_are_skipped_with_a_warning(broker: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    starting = '{"t":{"0":50,"1":0,"2":0}}'
    with pytest.raises(DataLossError, match=r"t-0 ends at offset 10 now, the query stands at 50. Set the option failOnDataLoss=false"):
        read(broker, startingOffsets=starting)
    with pytest.raises(DataLossError, match="t-1 ends at offset 10, endingOffsets asks for 99"):
        read(broker, endingOffsets='{"t":{"0":1,"1":99,"2":1}}')
    with caplog.at_level(logging.WARNING):
        assert read(broker, startingOffsets=starting, failOnDataLoss="false") == ALL[10:]
    assert "data loss ignored" in caplog.text


def test_a_task_whose_offsets_are_gone_fails_or_ends_with_a_warning(broker: ThreadedCluster, caplog: pytest.LogCaptureFixture) -> None:
    lost = [OffsetRange("t", 0, 500, 510)]
    with pytest.raises(DataLossError, match="at offset 500: the log holds offsets 0 to 10"):
        values(source(broker), lost)
    with caplog.at_level(logging.WARNING):
        assert values(source(broker, failOnDataLoss="false"), lost) == []
    assert "data loss ignored" in caplog.text


def test_a_task_survives_lost_connections(broker: ThreadedCluster) -> None:
    options = source(broker)
    ranges = asyncio.run(plan_batch(options))
    broker.on(ApiKey.FETCH, close())
    broker.on(ApiKey.FETCH, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert values(options, ranges) == ALL


def test_a_task_that_is_stopped_early_closes_its_connections(broker: ThreadedCluster) -> None:
    batches = read_range(source(broker), OffsetRange("t", 0, 0, 10))
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert list(batches) == []


def test_sparks_single_empty_partition_reads_nothing(broker: ThreadedCluster) -> None:
    assert list(KafkaReader(source(broker)).read(InputPartition(None))) == []


def test_headers_only_where_asked_for(broker: ThreadedCluster) -> None:
    given = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    headers = pa.array([given], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    write(broker, {"value": ["x"], "headers": headers}, topic="with-headers")
    for include, expected in (("true", given), ("false", None)):
        options = source(broker, subscribe="with-headers", includeHeaders=include)
        (batch,) = read_range(options, OffsetRange("with-headers", 0, 0, 1))
        assert batch.to_pylist()[0].get("headers") == expected


# -- streams ---------------------------------------------------------------------------------------------------------


def offsets(*ends: int) -> dict[str, dict[str, int]]:
    return {"t": {str(partition): end for partition, end in enumerate(ends)}}


def test_a_stream_begins_where_it_is_told(broker: ThreadedCluster) -> None:
    assert KafkaStreamReader(source(broker, True)).initialOffset() == offsets(10, 10, 10)
    assert KafkaStreamReader(source(broker, True, startingOffsets="earliest")).initialOffset() == offsets(0, 0, 0)
    explicit = source(broker, True, startingOffsets='{"t":{"0":3,"1":-1,"2":-2}}')
    assert KafkaStreamReader(explicit).initialOffset() == offsets(3, 10, 0)


def test_micro_batches_are_limited_and_reach_the_end(broker: ThreadedCluster) -> None:
    reader = KafkaStreamReader(source(broker, True, maxOffsetsPerTrigger="12"))
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows) and limit.max_rows == 12
    assert reader.latestOffset(offsets(0, 0, 0), limit) == offsets(4, 4, 4)
    assert reader.latestOffset(offsets(9, 10, 10), limit) == offsets(10, 10, 10)
    assert reader.latestOffset(offsets(10, 10, 10), limit) == offsets(10, 10, 10)
    assert reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable()) == offsets(10, 10, 10)
    assert isinstance(KafkaStreamReader(source(broker, True)).getDefaultReadLimit(), ReadAllAvailable)


def test_available_now_stops_at_what_was_there(broker: ThreadedCluster) -> None:
    reader = KafkaStreamReader(source(broker, True))
    reader.prepareForTriggerAvailableNow()
    write(broker, {"value": ["later"], "partition": [0]})
    assert reader.latestOffset(offsets(0, 0, 0), ReadAllAvailable()) == offsets(10, 10, 10)
    assert KafkaStreamReader(source(broker, True)).latestOffset(offsets(0, 0, 0), ReadAllAvailable()) == offsets(11, 10, 10)


def test_without_read_limits_an_offset_limit_is_refused(broker: ThreadedCluster) -> None:
    assert KafkaStreamReader(source(broker, True)).latestOffset() == offsets(10, 10, 10)
    with pytest.raises(ConfigError, match=r"needs Spark 4.2"):
        KafkaStreamReader(source(broker, True, maxOffsetsPerTrigger="5")).latestOffset()


def test_a_partition_that_is_new_is_read_from_its_first_record(broker: ThreadedCluster) -> None:
    reader = KafkaStreamReader(source(broker, True))
    start = {"t": {"0": 10, "1": 10}}
    assert reader.latestOffset(start, ReadAllAvailable()) == offsets(10, 10, 10)
    (partition,) = reader.partitions(start, offsets(10, 10, 10))
    assert partition.value == ("t", 2, 0, 10)
    assert [value for batch in reader.read(partition) for value in batch.column("value").to_pylist()] == [f"2{n}".encode() for n in range(10)]


def test_a_stream_whose_partition_is_gone_fails_or_goes_on(broker: ThreadedCluster) -> None:
    start = offsets(10, 10, 10, 5)
    with pytest.raises(DataLossError, match=r"t-3 is gone \(the query stands at offset 5\)"):
        KafkaStreamReader(source(broker, True)).latestOffset(start, ReadAllAvailable())
    lenient = KafkaStreamReader(source(broker, True, failOnDataLoss="false"))
    assert lenient.latestOffset(start, ReadAllAvailable()) == offsets(10, 10, 10)
    assert lenient.partitions(start, offsets(10, 10, 10)) == []


def test_a_stream_never_goes_backwards(broker: ThreadedCluster) -> None:
    with pytest.raises(DataLossError, match="t-1 ends at offset 10 now, the query stands at 30"):
        KafkaStreamReader(source(broker, True)).latestOffset(offsets(0, 30, 0), ReadAllAvailable())
    lenient = KafkaStreamReader(source(broker, True, failOnDataLoss="false"))
    assert lenient.latestOffset(offsets(0, 30, 0), ReadAllAvailable()) == offsets(10, 30, 10)


# -- sink ------------------------------------------------------------------------------------------------------------


def test_rows_go_where_their_columns_say(broker: ThreadedCluster) -> None:
    for topic in ("a", "b"):
        broker.create_topic(topic, 2)
    columns = {"value": ["1", "2", None], "key": [b"k", None, b"gone"], "topic": ["a", "b", "a"], "partition": pa.array([1, 0, None], pa.int32())}
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
    with pytest.raises(SinkError, match=r"a row was not acknowledged: .*TOPIC_AUTHORIZATION_FAILED"):
        write(broker, {"value": ["1"] * 1000})


def test_a_row_that_is_too_large_is_named(broker: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match="row 1 of this task, for topic t"):
        write(broker, {"value": ["small", "x" * 2_000_000]})


def test_a_header_without_a_key_fails_the_task(broker: ThreadedCluster) -> None:
    headers = pa.array([[{"key": None, "value": b"1"}]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    with pytest.raises(SinkError, match=r"rows 0 to 0 of this task, for topic t: .*header"):
        write(broker, {"value": ["1"], "headers": headers})


def test_a_retried_delivery_is_written_once(broker: ThreadedCluster) -> None:
    before = len(broker.records("t"))
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert write(broker, {"value": [str(n) for n in range(500)], "partition": [0] * 500}).rows == 500
    assert [record.value for record in broker.records("t", 0)][10:] == [str(n).encode() for n in range(500)]
    assert len(broker.records("t")) == before + 500

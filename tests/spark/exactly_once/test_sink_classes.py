"""The classes that Spark calls, without Spark: what they take from the task's context, and what
goes from tasks to driver.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import threading
from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once import driver
from aioprod.spark.exactly_once.ids import NUMBERS
from aioprod.spark.exactly_once.reports import Written
from aioprod.spark.sink import KafkaStreamWriter, KafkaWriter
from aioprod.spark.sink_options import parse_sink_options
from aioprod.testing import EmbeddedCluster, ThreadedCluster

SCHEMA = StructType([StructField("value", StringType())])
QUERY = {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "7", "spark.jobGroup.id": "run-1"}


class FakeContext:
    """The part of Spark's task context that the sink uses."""

    def __init__(self, partition: int, task_attempt: int, properties: dict[str, str]) -> None:
        self.partitionId = lambda: partition
        self.taskAttemptId = lambda: task_attempt
        self.getLocalProperty = properties.get


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread() as running:
        running.create_topic("t", 2)
        yield running


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Calls are made in task 3, each in an attempt of its own; the properties may be changed."""
    properties = dict(QUERY)
    attempts = itertools.count(NUMBERS + 5)
    monkeypatch.setattr(TaskContext, "get", lambda: FakeContext(3, next(attempts), properties))
    return properties


def stream_writer(broker: ThreadedCluster, **options: str) -> KafkaStreamWriter:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options}
    return KafkaStreamWriter(parse_sink_options(given, streaming=True), SCHEMA)


def batch_writer(broker: ThreadedCluster, **options: str) -> KafkaWriter:
    return KafkaWriter(
        parse_sink_options(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", **options}
        )
    )


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": list(values)})])


def sent(message: WriterCommitMessage) -> WriterCommitMessage:
    """Return the message as the driver gets it."""
    copy: WriterCommitMessage = pickle.loads(pickle.dumps(message))
    return copy


def committed(broker: ThreadedCluster) -> list[bytes | None]:
    return sorted((record.value for record in broker.records("t", committed_only=True)), key=str)


def test_a_stream_is_its_query_and_the_batch_its_number(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    message = sent(stream_writer(broker).write(rows("a", "b")))
    assert isinstance(message, Written) and message.report is not None
    attempt = message.report.attempt
    assert (attempt.sink.group, attempt.version, attempt.partition, attempt.number) == (
        "aioprod-spark-q-1",
        7,
        3,
        5,
    )
    assert committed(broker) == []
    stream_writer(broker).commit([message], 7)
    assert committed(broker) == [b"a", b"b"]
    in_task["spark.jobGroup.id"] = "run-2"
    again = sent(stream_writer(broker).write(rows("b", "a")))
    stream_writer(broker).commit([again], 7)
    assert committed(broker) == [b"a", b"b"]


def test_no_two_attempts_have_the_same_transactional_id(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    """Not even of one task of one batch: Spark's attempt numbers restart if it runs a stage a
    second time.
    """
    stream, batch = stream_writer(broker), batch_writer(broker)
    messages = [
        write(rows("a")) for write in (stream.write, stream.write, batch.write, batch.write)
    ]
    names = [
        message.report.attempt.transactional_id
        for message in messages
        if isinstance(message, Written) and message.report
    ]
    assert len(set(names)) == 4
    assert [name.rpartition("-")[2] for name in names] == [
        "5",
        "6",
        str(NUMBERS + 7),
        str(NUMBERS + 8),
    ]


def test_a_stream_that_does_not_know_its_batch_is_refused(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    del in_task["streaming.sql.batchId"]
    with pytest.raises(SinkError, match="Spark does not say which batch this is"):
        stream_writer(broker).write(rows("a"))


@pytest.fixture
def no_strays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tasks have ended before Spark gives the batch up."""
    monkeypatch.setattr(driver, "_STRAYS_LIMIT_S", 0.0)


@pytest.mark.usefixtures("no_strays")
def test_a_failed_batch_is_aborted(
    broker: ThreadedCluster, in_task: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    message = sent(stream_writer(broker).write(rows("a")))
    with caplog.at_level(logging.WARNING):
        stream_writer(broker).abort([message, None], 7)
        stream_writer(broker).abort([None], 8)
    assert "micro-batch 7 failed; what its tasks left open is aborted, unless" in caplog.text
    assert (
        "micro-batch 8 failed; what its tasks left open is aborted with the first batch of "
        "the query's next run"
    ) in caplog.text
    assert [
        name for name, each in broker.transactions.items() if each.state.value == "Ongoing"
    ] == []
    assert committed(broker) == []


def test_an_abort_that_fails_is_only_reported(
    broker: ThreadedCluster, in_task: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    message = sent(stream_writer(broker).write(rows("a")))
    broker.stop()
    with caplog.at_level(logging.WARNING):
        stream_writer(
            broker, **{"kafka.request.timeout.ms": "300", "kafka.max.block.ms": "300"}
        ).abort([message], 7)
    assert "not all of it could be cleaned up" in caplog.text


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_brokers_may_be_away_for_a_moment(
    broker: ThreadedCluster, in_task: dict[str, str], delivery: str
) -> None:
    def away(seconds: float) -> threading.Timer:
        broker.stop_node(broker.node_ids[0])
        back = threading.Timer(seconds, broker.start_node, broker.node_ids)
        back.start()
        return back

    writer = batch_writer(broker, delivery=delivery)
    back = away(0.3)
    message = sent(writer.write(rows("a")))
    back.join()
    back = away(0.3)
    writer.commit([message])
    back.join()
    assert committed(broker) == [b"a"]


def test_each_batch_write_without_a_name_is_a_new_one(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    for _ in range(2):
        writer = batch_writer(broker)
        task = pickle.loads(pickle.dumps(writer))
        pickle.loads(pickle.dumps(writer)).commit([sent(task.write(rows("a")))])
    assert committed(broker) == [b"a", b"a"]


def test_a_batch_write_with_a_name_and_a_version_happens_once(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    for version in ("3", "3", "4"):
        writer = batch_writer(broker, txnAppId="nightly", txnVersion=version)
        writer.commit([sent(writer.write(rows(version)))])
    assert committed(broker) == [b"3", b"4"]


@pytest.mark.usefixtures("no_strays")
def test_a_batch_write_that_fails_leaves_nothing_visible_and_nothing_open(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    writer = batch_writer(broker)
    writer.write(rows("a"))
    writer.abort([sent(writer.write(rows("b"))), None])
    assert committed(broker) == [] and len(broker.records("t")) == 2
    assert [
        name for name, each in broker.transactions.items() if each.state.value == "Ongoing"
    ] == []


@pytest.mark.usefixtures("no_strays")
def test_a_batch_write_of_which_no_task_reports_leaves_nothing_open(
    broker: ThreadedCluster, in_task: dict[str, str]
) -> None:
    writer = batch_writer(broker)
    writer.write(rows("a"))
    writer.abort([None, None])
    assert [
        name for name, each in broker.transactions.items() if each.state.value == "Ongoing"
    ] == []


def test_at_least_once_writes_at_once(
    broker: ThreadedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stream, batch = (
        stream_writer(broker, delivery="at-least-once"),
        batch_writer(broker, delivery="at-least-once"),
    )
    messages: list[WriterCommitMessage | None] = [
        sent(stream.write(rows("a"))),
        sent(batch.write(rows("b"))),
    ]
    assert messages == [Written(1, 1), Written(1, 1)]
    assert committed(broker) == [b"a", b"b"]
    assert not broker.transactions
    with caplog.at_level(logging.INFO):
        stream.commit(messages, 7)
        batch.commit(messages)
        stream.abort(messages, 7)
        batch.abort(messages)
    assert caplog.text.count("2 rows of 2 bytes written by 2 of 2 tasks") == 4
    assert caplog.text.count("already written and not taken back") == 2

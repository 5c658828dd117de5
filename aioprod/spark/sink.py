"""The classes that Spark calls for a write. The work is done in sending.py and exactly_once/."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from aioprod.config.redaction import SecretSettings
from aioprod.errors import KafkaError
from aioprod.producer.producer import Producer
from aioprod.spark._versions import DataSourceStreamArrowWriter, stream_batches
from aioprod.spark.coordination import CoordinationClient
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.driver import abort_batch, commit_batch
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport, stream_number
from aioprod.spark.exactly_once.task import write_task
from aioprod.spark.kept import KeptClient, event_loop_factory
from aioprod.spark.sending import RowSender, portions
from aioprod.spark.sink_options import EXACTLY_ONCE, SinkOptions
from aioprod.spark.starting import start_producer
from aioprod.spark.worker_process import TaskPart, settle

log = logging.getLogger(__name__)

# Where Spark tells a task which query it belongs to.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"

T = TypeVar("T")

# At least once, a producer has nothing of its task when all rows are acknowledged. Exactly once,
# each attempt has its own, whose transaction stays open; only what looks for decisions is kept.
_producers: KeptClient[Producer] = KeptClient()
_lookups: KeptClient[CoordinationClient] = KeptClient()


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote.

    Attributes:
        rows: records that the brokers acknowledged.
        payload_bytes: bytes of their keys and values.
        report: what the driver needs to make them visible; None if they are visible already
            (``delivery=at-least-once``).
    """

    rows: int
    payload_bytes: int
    report: TaskReport | None = None


Messages = Sequence[WriterCommitMessage | None]


class KafkaWriter(TaskPart, DataSourceArrowWriter):
    """Writes batches. Spark makes one object for each write and copies it to tasks and driver."""

    def __init__(self, options: SinkOptions) -> None:
        settle()
        self.options = options
        self._sink = Sink(options.transactional_id_prefix, options.txn_app_id or uuid.uuid4().hex)
        self._run = short_run(uuid.uuid4().hex)
        self._version = options.txn_version or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        if self.options.delivery != EXACTLY_ONCE:
            return write_batches(self.options, iterator)
        context = _task_context()
        attempt = TaskAttempt(
            self._sink, self._run, self._version, context.partitionId(), context.taskAttemptId()
        )
        return _written(self.options, attempt, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _commit(self.options, messages, self._version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _abort(
            self.options,
            messages,
            "the write",
            TaskAttempt(self._sink, self._run, self._version, 0, 0),
        )


class KafkaStreamWriter(TaskPart, DataSourceStreamArrowWriter):
    """Writes streams. Spark makes one object for each micro-batch and its tasks, and another one
    for the commit or abort.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        settle()
        self.options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        settle()
        batches = stream_batches(iterator, self._schema)
        if self.options.delivery != EXACTLY_ONCE:
            return write_batches(self.options, batches)
        context = _task_context()
        query, batch, run = (
            context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID, _RUN_ID)
        )
        if query is None or batch is None or run is None:
            raise SinkError(
                f"Spark does not tell which batch this is ({_QUERY_ID}={query}, "
                f"{_BATCH_ID}={batch}): use delivery=at-least-once"
            )
        sink = Sink(self.options.transactional_id_prefix, query)
        number = stream_number(context.taskAttemptId())
        return _written(
            self.options,
            TaskAttempt(sink, short_run(run), int(batch), context.partitionId(), number),
            batches,
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _commit(self.options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Only the tasks know the query's id.
        known = next((report.attempt for report in _reports(messages)), None)
        _abort(self.options, messages, f"micro-batch {batchId}", known)


def summary(messages: Messages) -> str:
    """Summarize in words what the tasks wrote."""
    written = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in written)
    return (
        f"{rows} rows of {sum(message.payload_bytes for message in written)} bytes written by "
        f"{len(written)} of {len(messages)} tasks"
    )


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows and wait until each is acknowledged: at-least-once.

    Raises:
        SinkError: a row could not be sent; the text says which one and why.
    """
    with _producers.use(SecretSettings(options.producer), lambda: _started(options)) as (
        runner,
        producer,
    ):
        return runner.run(_write_batches(producer, options.topic, batches))


async def _started(options: SinkOptions) -> Producer:
    producer = Producer(**options.producer)
    await start_producer(producer)
    return producer


async def _write_batches(
    producer: Producer, topic: str | None, batches: Iterator[pa.RecordBatch]
) -> Written:
    sender = RowSender(producer, topic)
    try:
        async for batch in portions(batches):
            await sender.send(batch)
        await sender.finish()
    except BaseException:
        await producer.close(timeout_ms=0)
        raise
    return Written(sender.rows, sender.payload_bytes)


def _written(
    options: SinkOptions, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]
) -> Written:
    with _lookups.use(
        (SecretSettings(options.producer), attempt.sink), lambda: _lookup(options, attempt.sink)
    ) as (
        runner,
        brokers,
    ):
        report = runner.run(write_task(brokers, options, attempt, batches))
    return Written(report.rows, report.payload_bytes, report)


async def _lookup(options: SinkOptions, sink: Sink) -> CoordinationClient:
    return CoordinationClient(options.producer, f"{sink.driver_id}-look")


def _commit(options: SinkOptions, messages: Messages, version: int) -> None:
    settle()
    reports = _reports(messages)
    if options.delivery == EXACTLY_ONCE and not _run(commit_batch(options, reports, version)):
        log.info("batch %d: nothing to write, or written before: %s", version, summary(messages))
    else:
        log.info("batch %d: %s", version, summary(messages))


def _abort(
    options: SinkOptions, messages: Messages, what: str, attempt: TaskAttempt | None
) -> None:
    if options.delivery != EXACTLY_ONCE:
        log.warning("%s failed; already written and not taken back: %s", what, summary(messages))
        return
    if attempt is None:
        log.warning(
            (
                "%s failed; what its tasks left open is aborted with the first batch of the "
                "query's next run: %s"
            ),
            what,
            summary(messages),
        )
        return
    try:
        _run(abort_batch(options, attempt, strays=len(_reports(messages)) < len(messages)))
    except KafkaError as error:
        # Spark already knows that the batch failed; the first batch of the next run cleans up.
        log.warning(
            (
                "%s failed, and not all of it could be cleared up; what is open hides later "
                "records until it times out: %s"
            ),
            what,
            error,
        )
    else:
        log.warning(
            "%s failed; what its tasks left open is aborted, unless the batch was decided: %s",
            what,
            summary(messages),
        )


def _reports(messages: Messages) -> list[TaskReport]:
    return [
        message.report
        for message in messages
        if isinstance(message, Written) and message.report is not None
    ]


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls this in tasks only"
    return context


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        return runner.run(work)

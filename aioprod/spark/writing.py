"""What the sink does in tasks, and on the driver when they have ended. Spark calls sink.py, and
planning a write needs no more than that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import WriterCommitMessage

from aioprod.config.redaction import SecretSettings
from aioprod.counts import counted
from aioprod.errors import KafkaError
from aioprod.logs import get_logger
from aioprod.producer.producer import Producer
from aioprod.spark.coordination import CoordinationClient
from aioprod.spark.errors import SinkError
from aioprod.spark.exactly_once.driver import abort_batch, commit_batch
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.exactly_once.task import write_task
from aioprod.spark.kept import KeptClient, event_loop_factory
from aioprod.spark.sending import RowSender, portions
from aioprod.spark.sink_options import EXACTLY_ONCE, SinkOptions
from aioprod.spark.starting import start_producer
from aioprod.spark.worker_process import freeze_modules

log = get_logger(__name__)

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


def summary(messages: Messages) -> str:
    """Summarize in words what the tasks wrote."""
    written = [message for message in messages if isinstance(message, Written)]
    rows = sum(message.rows for message in written)
    return (
        f"{counted(rows, 'row')} of {sum(message.payload_bytes for message in written)} bytes "
        f"written by {len(written)} of {len(messages)} tasks"
    )


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows and wait until each is acknowledged: at-least-once.

    Raises:
        SinkError: a row could not be sent; the text says which one and why.
    """
    batches = _encoded(options, batches)
    with _producers.use(SecretSettings(options.producer), lambda: _started(options)) as (
        runner,
        producer,
    ):
        return runner.run(_write_batches(producer, options.topic, batches))


def _encoded(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if options.registered is None:
        return batches
    from aioprod.spark.registered.encoding import encoded  # most writes do not need it

    return encoded(options.registered, batches)


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


def write_attempt(
    options: SinkOptions, attempt: TaskAttempt, batches: Iterator[pa.RecordBatch]
) -> Written:
    batches = _encoded(options, batches)
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


def commit(options: SinkOptions, messages: Messages, version: int) -> None:
    freeze_modules()
    reports = reports_of(messages)
    if options.delivery == EXACTLY_ONCE and len(reports) < len(messages):
        raise SinkError(
            f"batch {version}: {len(messages) - len(reports)} of {len(messages)} tasks have not "
            "reported what they wrote, so it is not committed; nothing of it is visible. Run the "
            "query or write again"
        )
    if options.delivery == EXACTLY_ONCE and not _run(commit_batch(options, reports, version)):
        log.info("batch %d: nothing to write, or written before: %s", version, summary(messages))
    else:
        log.info("batch %d: %s", version, summary(messages))


def abort(options: SinkOptions, messages: Messages, what: str, attempt: TaskAttempt | None) -> None:
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
        _run(abort_batch(options, attempt, strays=len(reports_of(messages)) < len(messages)))
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


def reports_of(messages: Messages) -> list[TaskReport]:
    return [
        message.report
        for message in messages
        if isinstance(message, Written) and message.report is not None
    ]


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
        return runner.run(work)

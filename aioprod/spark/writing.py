"""The sink's work in tasks. Spark calls sink.py, and planning a write needs only that."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.config.redaction import SecretSettings
from aioprod.producer.producer import Producer
from aioprod.spark.coordination import CoordinationClient
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.reports import TaskAttempt, Written
from aioprod.spark.exactly_once.task import write_task
from aioprod.spark.kept import KeptClient
from aioprod.spark.sending import RowSender, portions
from aioprod.spark.sink_options import SinkOptions
from aioprod.spark.starting import start_producer

# With at-least-once, a producer has no state of its task when all rows are acknowledged, so it is
# kept. With exactly-once, each attempt has its own producer, whose transaction stays open; only the
# client that looks up decisions is kept.
_producers: KeptClient[Producer] = KeptClient()
_lookups: KeptClient[CoordinationClient] = KeptClient()


def write_batches(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Send all rows at-least-once, and wait until each is acknowledged.

    Raises:
        SinkError: if a row could not be sent; the message names the row and the reason.
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

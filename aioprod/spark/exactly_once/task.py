"""An attempt of a write task: writes its rows in a transaction and leaves it open for the
driver.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import KafkaError
from aioprod.producer.producer import Producer
from aioprod.spark.arrow import payload_bytes
from aioprod.spark.coordination import CoordinationClient, old_brokers_explained, together
from aioprod.spark.errors import SinkError, TransactionTimedOutError
from aioprod.spark.exactly_once.decision_log import read_decided
from aioprod.spark.exactly_once.digest import RowDigest
from aioprod.spark.exactly_once.order import check_not_newer
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.sending import RowSender, portions, topics_of
from aioprod.spark.sink_options import SinkOptions
from aioprod.spark.starting import start_producer
from aioprod.types import PreparedTransaction

# A failing task aborts its transaction, so that readers do not wait for its timeout. This must not
# delay the failure for long.
_ABORT_LIMIT_MS = 5_000


async def write_task(
    brokers: CoordinationClient,
    options: SinkOptions,
    attempt: TaskAttempt,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Write all rows and leave their transaction open; if the batch was written before, only count
    and digest them.

    Args:
        brokers: used to check if the batch was written before; not used if there are no rows.

    Raises:
        SinkError: if a row could not be written; the message names the row and the reason.
        CopiedCheckpointError, NewerDecisionError: see `check_not_newer`.
        KafkaError: if no broker accepts this client, or the brokers do not support exactly-once.
    """
    rest = portions(batches)
    first = await anext(rest, None)
    if first is None:
        return TaskReport(attempt)
    producer = Producer(**{**options.producer, "transactional_id": attempt.transactional_id})
    try:
        decided, _ = await together([_look(brokers, options, attempt), _start(producer)])
        if decided:
            return await _count(options, attempt, first, rest)
        return await _write(options, attempt, producer, first, rest)
    finally:
        await producer.close(timeout_ms=_ABORT_LIMIT_MS)


async def _start(producer: Producer) -> bool:
    with old_brokers_explained():
        await start_producer(producer)
    await producer.begin_transaction()
    return True


async def _look(brokers: CoordinationClient, options: SinkOptions, attempt: TaskAttempt) -> bool:
    """Return whether the batch was written before. A decision that is being committed may be missed
    here, but not by the driver.
    """
    with old_brokers_explained():
        decision = await read_decided(await brokers.connected(), attempt.sink)
    check_not_newer(options, decision, attempt.version, attempt.sink.group)
    return decision is not None and decision.covers(attempt.version)


async def _count(
    options: SinkOptions,
    attempt: TaskAttempt,
    first: pa.RecordBatch,
    rest: AsyncIterator[pa.RecordBatch],
) -> TaskReport:
    digest = RowDigest()
    size = 0
    batch: pa.RecordBatch | None = first
    while batch is not None:
        for topic, _, rows in topics_of(batch, options.topic, digest.rows):
            digest.add(topic, rows)
        size += payload_bytes(batch)
        batch = await anext(rest, None)
    return TaskReport(
        attempt, rows=digest.rows, payload_bytes=size, digest=digest.value, decided=True
    )


async def _write(
    options: SinkOptions,
    attempt: TaskAttempt,
    producer: Producer,
    first: pa.RecordBatch,
    rest: AsyncIterator[pa.RecordBatch],
) -> TaskReport:
    digest = RowDigest()
    sender = RowSender(producer, options.topic, digest.add)
    started_at = time.time()
    begun = time.monotonic()
    try:
        batch: pa.RecordBatch | None = first
        with old_brokers_explained():
            while batch is not None:
                await send_batch(sender, batch)
                batch = await anext(rest, None)
            transaction = await prepare(producer, sender)
    except KafkaError as error:
        raise _explained(
            error, time.monotonic() - begun, producer.config.transaction_timeout_ms
        ) from error
    return TaskReport(
        attempt,
        transaction,
        sender.rows,
        sender.payload_bytes,
        digest.value,
        frozenset(sender.topics),
        started_at,
    )


async def send_batch(sender: RowSender, batch: pa.RecordBatch) -> None:
    """Send a batch."""
    await sender.send(batch)


async def prepare(producer: Producer, sender: RowSender) -> PreparedTransaction | None:
    """Wait until all rows are written, and prepare their transaction."""
    await sender.finish()
    return await producer.prepare_transaction()


def _explained(error: KafkaError, open_s: float, timeout_ms: int) -> KafkaError:
    """Return the error, or its cause if the transaction has timed out."""
    if open_s * 1000 < timeout_ms:
        return error if isinstance(error, SinkError) else SinkError(str(error))
    return TransactionTimedOutError(
        f"the transaction of this task was open for {open_s:.0f} s, longer than "
        f"kafka.transaction.timeout.ms={timeout_ms}, and the broker aborted "
        "it: no row of it is visible. Make batches smaller, raise that option (as far as "
        "the brokers' transaction.max.timeout.ms allows), or use "
        f"delivery=at-least-once, which needs no transaction ({error})"
    )

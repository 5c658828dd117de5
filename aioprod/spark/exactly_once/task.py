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
from aioprod.spark.errors import (
    CopiedCheckpointError,
    NewerDecisionError,
    SinkError,
    TransactionTimedOutError,
)
from aioprod.spark.exactly_once.decision import Decision
from aioprod.spark.exactly_once.decision_log import read_decided
from aioprod.spark.exactly_once.digest import RowDigest
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.exactly_once.source_offsets import as_starting_offsets
from aioprod.spark.sending import RowSender, portions, topics_of
from aioprod.spark.sink_options import SinkOptions
from aioprod.spark.starting import start_producer
from aioprod.types import PreparedTransaction

# A failing task aborts its transaction, so that readers need not wait for its timeout; that must
# not delay the failure for long.
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
        brokers: finds out whether it was written before; not used if there are no rows.

    Raises:
        SinkError: if a row could not be written; the text says which and why.
        CopiedCheckpointError, NewerDecisionError: as `check_not_newer` does.
        KafkaError: if no broker accepts this client, or supports what exactly-once needs.
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
    """Return whether the batch was written before. A decision that is being committed now may be
    missed here; the driver does not miss it.
    """
    with old_brokers_explained():
        decision = await read_decided(await brokers.connected(), attempt.sink)
    check_not_newer(options, decision, attempt.version, attempt.sink.group)
    return decision is not None and decision.covers(attempt.version)


def check_not_newer(
    options: SinkOptions, decision: Decision | None, version: int, group: str
) -> None:
    """Check that the batch is newer than the last decided one, or is that one and in its topic.

    Raises:
        CopiedCheckpointError: if it is not newer, and that one was written to another topic.
        NewerDecisionError: if a later batch was written before.
    """
    if decision is None or decision.next_version <= version:
        return
    if options.topic is not None and options.topic != decision.topic:
        raise CopiedCheckpointError(
            f"batch {version} can't be written to topic {options.topic!r}: "
            f"{_who_else(options, decision)} (decision of consumer group {group!r})"
        )
    if decision.version > version:
        raise NewerDecisionError(
            f"batch {version} can't be written: the checkpoint was restored or copied, or another "
            f"query uses it or its txnAppId, since batch {decision.version} was written already. "
            f"{_how_to_continue(decision)} (decision of consumer group {group!r})"
        )


def _who_else(options: SinkOptions, decision: Decision) -> str:
    """Say who wrote a batch to another topic, and what to do."""
    if options.txn_app_id is not None:
        return (
            f"with txnAppId {options.txn_app_id!r} version {decision.version} was written to topic "
            f"{decision.topic!r}. Nothing is written. Each output needs its own txnAppId"
        )
    return (
        f"the checkpoint was copied from a query that wrote batch {decision.version} to topic "
        f"{decision.topic!r}, or the option topic was changed. Nothing is written. Set another "
        "transactionalIdPrefix for a copy, and keep it: it then continues after the last batch of "
        "its checkpoint. After a change of topic, set the former one until this batch is finished"
    )


def _how_to_continue(decision: Decision) -> str:
    """Say from where a query continues without the checkpoint of its last batch."""
    if not decision.sources:
        return (
            "To continue after the last batch, restore the newest checkpoint, or begin a new one "
            "where that batch ended in the source: sources.endOffset of its progress, or the file "
            f"offsets/{decision.version} of the newest checkpoint"
        )
    ends = " and ".join(as_starting_offsets(each) for each in decision.sources)
    return (
        f"Batch {decision.version} ended at {ends}: to continue after it, begin a new checkpoint "
        "with these as startingOffsets. Another transactionalIdPrefix would write all batches "
        "since the old checkpoint again"
    )


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

"""The driver's part: decide a batch once and commit all its transactions, or leave none open."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace

from aioprod.cluster.coordinators import CoordinatorType
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.logs import Logger, get_logger
from aioprod.producer.producer import Producer
from aioprod.spark.coordination import Coordination, open_coordination, together
from aioprod.spark.errors import ReplayMismatchError, SinkError, TransactionTimedOutError
from aioprod.spark.exactly_once.completing import (
    Look,
    commit_or_take_back,
    complete,
    look_at,
    timed_out,
)
from aioprod.spark.exactly_once.decision import DecidedTransaction, Decision
from aioprod.spark.exactly_once.decision_log import DriverPart, decide, read_decided
from aioprod.spark.exactly_once.ids import NUMBERS, Sink
from aioprod.spark.exactly_once.order import check_not_newer
from aioprod.spark.exactly_once.reports import MODULUS, TaskAttempt, TaskReport
from aioprod.spark.exactly_once.source_offsets import read_source_offsets
from aioprod.spark.exactly_once.sweeping import finish_earlier, sweep
from aioprod.spark.exactly_once.transactions import TransactionStatus
from aioprod.spark.sink_options import SinkOptions
from aioprod.spark.starting import start_producer
from aioprod.spark.waiting import named_wait
from aioprod.types import PreparedTransaction

log: Logger = get_logger(__name__)

# The driver's own transaction takes milliseconds. If a driver dies and leaves it open, it must not
# delay the next driver for long.
_DRIVER_TIMEOUT_MS = 30_000
_STRAYS_LIMIT_S = 5.0


async def commit_batch(options: SinkOptions, reports: Sequence[TaskReport], version: int) -> bool:
    """Make a batch visible, completely and exactly once.

    Each step (connecting, fencing, reading, checking, deciding, committing, sweeping) has a limit,
    `kafka.max.block.ms` for most. The longest path has 27 such steps, and 64 transactions are
    committed at the same time. The first failing step ends the call, and closing takes at most
    `kafka.delivery.timeout.ms`.

    Returns:
        True if it was written now, and not before.

    Raises:
        TransactionTimedOutError: if a transaction is not open any more, or not for long enough for
            the decision and the commits that follow; no row is visible.
        ReplayMismatchError: if the batch was written before, with other rows.
        CopiedCheckpointError, NewerDecisionError: see `order.check_not_newer`.
        LostTransactionsError: if the batch was decided, and rows of it are lost.
        SinkError: if another driver took over, or the batch is decided but not all of it is
            committed yet.
        KafkaError: if brokers can't be reached or refuse a request. It is safe to retry the same
            batch.
    """
    if not reports:
        return False
    sink = reports[0].attempt.sink
    async with _open(options, sink) as part:
        coordination = part.coordination
        written = [
            report.transaction.transactional_id
            for report in reports
            if report.transaction is not None
        ]
        find = coordination.find_coordinators
        await together([find(written), find([sink.group], CoordinatorType.GROUP)])
        decision = await read_decided(coordination, sink, stable=True)
        check_not_newer(options, decision, version, sink.group)
        if decision is not None and decision.covers(version):
            await _finish(part, decision, reports)
            return False
        return await _begin(part, decision, reports, version)


async def abort_batch(options: SinkOptions, attempt: TaskAttempt, *, strays: bool) -> None:
    """Abort the transactions that the tasks of a batch left open; if the batch is decided, commit
    them. Its steps have the same limits as those of `commit_batch`.

    Args:
        attempt: any attempt of the batch.
        strays: True if some of its tasks have not reported and may still be running.

    Raises:
        KafkaError: if brokers can't be reached or refuse a request.
    """
    sink, run = attempt.sink, attempt.run
    # Fences the driver's own transaction: after that, the batch is either decided or never will be.
    async with _open(options, sink) as part:
        coordination = part.coordination
        decision = await read_decided(coordination, sink, stable=True)
        await sweep(coordination, sink, decision, run)
        if decision is not None and decision.covers(attempt.version):
            try:
                await complete(part, decision)
            except TransactionTimedOutError as error:
                log.warning("%s", error)  # it is aborted, as intended for the batch
        if strays:
            await wait_for_strays()
            await sweep(coordination, sink, decision, run)


async def wait_for_strays() -> None:
    """Wait 5 seconds for tasks that Spark did not wait for. When they find that the batch is
    aborted, they open no further transaction.
    """
    await asyncio.sleep(_STRAYS_LIMIT_S)


@contextlib.asynccontextmanager
async def _open(options: SinkOptions, sink: Sink) -> AsyncIterator[DriverPart]:
    own = {"transactional_id": sink.driver_id, "transaction_timeout_ms": _DRIVER_TIMEOUT_MS}
    producer = Producer(**{**options.producer, **own})
    try:
        async with open_coordination(
            options.producer, sink.driver_id, fence_older_driver(producer)
        ) as coordination:
            yield DriverPart(options, coordination, producer, sink)
    finally:
        with named_wait("closing the driver's producer", "kafka.delivery.timeout.ms"):
            await producer.close()


async def fence_older_driver(producer: Producer) -> None:
    """Take over the driver's transactional id by starting the producer, within `max_block_ms`.

    An older driver can't decide anything afterwards.
    """
    await start_producer(producer)


async def _finish(part: DriverPart, decision: Decision, reports: Sequence[TaskReport]) -> None:
    """Finish a batch that was decided before: commit its remaining transactions, and abort the
    repeated ones.
    """
    sink, run = reports[0].attempt.sink, reports[0].attempt.run
    await together(
        [
            complete(part, decision),
            sweep(part.coordination, sink, decision, run, others=decision.run != run),
        ]
    )
    rows, digest = _totals(reports)
    if (rows, digest) == (decision.rows, decision.digest):
        log.info("batch %d was written before: %s", decision.version, counted(rows, "row"))
        return
    text = (
        f"batch {decision.version} was written before, with {counted(decision.rows, 'row')} "
        f"(digest {decision.digest:016x}), and now Spark gives {counted(rows, 'row')} "
        f"(digest {digest:016x}) for it: the query, or its source, is not deterministic, or "
        "another query has a copy of its checkpoint. What was written stays, nothing is added"
    )
    if part.options.on_replay_mismatch == "fail":
        raise ReplayMismatchError(
            f"{text}. If the written rows are right, set the option onReplayMismatch=warn, which "
            "drops the others. A copy of a checkpoint needs another transactionalIdPrefix"
        )
    log.warning("%s", text)


async def _begin(
    part: DriverPart,
    previous: Decision | None,
    reports: Sequence[TaskReport],
    version: int,
) -> bool:
    """Decide a new batch, and commit it."""
    options, coordination = part.options, part.coordination
    sink, run = reports[0].attempt.sink, reports[0].attempt.run
    written = [report for report in reports if report.transaction is not None]
    if any(report.decided for report in reports):
        raise SinkError(
            f"batch {version} was written before, as a task found, but consumer group "
            f"{sink.group!r} no longer has its decision: was the group deleted?"
        )
    if not written:
        return False
    first_of_run = previous is None or previous.run != run
    if previous is not None and first_of_run:
        # Before the check, whose result is valid only for a short time.
        await finish_earlier(coordination, sink, previous, skip_lost=options.skip_lost_batch)
    look = await check_transactions(options, coordination, written)
    sources = read_source_offsets(options.checkpoint, version)
    decision = replace(decision_of(reports, run, version), sources=sources)
    await decide(part, decision)
    finish = commit_or_take_back if look.in_time else complete
    await together(
        [
            finish(part, decision),
            sweep(coordination, sink, decision, run, others=first_of_run),
        ]
    )
    return True


def decision_of(reports: Sequence[TaskReport], run: str, version: int) -> Decision:
    """Return the decision that follows from these reports."""
    decided = [
        _decided(report, report.transaction) for report in reports if report.transaction is not None
    ]
    return Decision(
        version,
        run,
        _totals(reports)[1],
        tuple(sorted(decided, key=lambda each: each.partition)),
        topic=min((topic for report in reports for topic in report.topics), default=""),
    )


def _decided(report: TaskReport, transaction: PreparedTransaction) -> DecidedTransaction:
    by = report.attempt
    return DecidedTransaction(
        by.partition,
        by.number,
        transaction.producer_id,
        transaction.epoch,
        transaction.v2,
        report.rows,
    )


def _totals(reports: Sequence[TaskReport]) -> tuple[int, int]:
    return sum(report.rows for report in reports), sum(
        report.digest for report in reports
    ) % MODULUS


async def check_transactions(
    options: SinkOptions, coordination: Coordination, written: Collection[TaskReport]
) -> Look:
    """Check that each transaction stays open for long enough for the decision and the commits that
    follow. This runs just before the decision, and takes at most twice `Coordination.limit_s`.

    Raises:
        TransactionTimedOutError: if one is not.
        SinkError: if two tasks had the same transactional id, or this client is not authorized to
            describe it.
    """
    expected = {
        report.transaction.transactional_id: (report, report.transaction)
        for report in written
        if report.transaction is not None
    }
    attempt = next(iter(written)).attempt
    if len(expected) < len(written):
        raise SinkError(
            f"batch {attempt.version}: {counted(len(written), 'task')} have only "
            f"{len(expected)} transactional ids: the application started "
            f"more than {NUMBERS} other task attempts at the same time. No row of the batch is "
            "visible. Make batches smaller, or use delivery=at-least-once"
        )
    look = await look_at(
        coordination,
        attempt.sink,
        [transaction for _, transaction in expected.values()],
        options.producer["transaction_timeout_ms"],
    )
    for name, (report, transaction) in expected.items():
        if reason := _why_not(look, look.statuses[name], transaction):
            raise timed_out(
                attempt.version,
                f"the transaction of task {report.attempt.partition} (one of {len(expected)}) "
                f"{reason}",
                look.timeout_ms,
            )
        # Only a hint, because it uses the clocks of the executor and this driver.
        age_ms = (time.time() - report.started_at) * 1000
        if look.limit_ms / 2 < age_ms < look.timeout_ms:
            log.warning(
                "batch %d: the transaction of task %d has been open for %.0f s of %.0f s; older "
                "ones are not committed (kafka.transaction.timeout.ms=%d)",
                attempt.version,
                report.attempt.partition,
                age_ms / 1000,
                look.limit_ms / 1000,
                look.timeout_ms,
            )
    return look


def _why_not(look: Look, status: TransactionStatus, transaction: PreparedTransaction) -> str | None:
    """Return why a transaction can't be committed after a decision, or None."""
    if status.state == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.name:
        raise SinkError(
            f"the transaction of {transaction.transactional_id!r} can't be described: "
            f"{status.state}; grant Describe and Write on these transactional ids to the client's "
            "principal. Nothing of the batch is visible"
        )
    if not status.is_open(transaction):
        return (
            f"is not open any more: its state is {status.state}, epoch {status.epoch}. A broker "
            f"aborts what is open longer than {look.timeout_ms / 1000:g} s"
        )
    if status.is_old:
        return (
            f"has been open for more than {look.limit_ms / 1000:g} s of {look.timeout_ms / 1000:g} "
            f"s. Committing it needs up to {look.room_s:g} s: twice kafka.max.block.ms, but not "
            "more than half of the timeout"
        )
    return None

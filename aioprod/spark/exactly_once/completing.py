"""Completes a decided batch if its transactions are certainly open, or takes the decision back.

A decision can be taken back as long as none of its transactions is committed. They are aborted
first, with the producer id and epoch in the decision, so another driver that still tries to commit
them gets an error. After the first commit, the batch can only be completed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aioprod.counts import counted
from aioprod.spark.coordination import Coordination, together
from aioprod.spark.errors import LostTransactionsError, TransactionTimedOutError
from aioprod.spark.exactly_once import transactions
from aioprod.spark.exactly_once.ages import AgeLimit, margin_ms
from aioprod.spark.exactly_once.decision import Decision
from aioprod.spark.exactly_once.decision_log import DriverPart, decide
from aioprod.spark.exactly_once.ending import AT_ONCE, end_decided
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.transactions import TransactionStatus
from aioprod.types import PreparedTransaction

# Describing and deciding may take a third of the time that is certainly left. The commits need less
# than that, unless the coordinators become slower meanwhile.
_SHARE = 3


@dataclass(frozen=True, slots=True)
class Look:
    """The state of transactions according to their coordinators.

    Attributes:
        statuses: the statuses by transactional id.
        limit_ms: the age above which `TransactionStatus.is_old` is true.
        timeout_ms: the timeout of the transactions.
        asked_at: the event loop's time before the coordinators were asked.
        room_s: the minimum time since then for which transactions that are not old stay open.
    """

    statuses: Mapping[str, TransactionStatus]
    limit_ms: float
    timeout_ms: int
    asked_at: float
    room_s: float

    @property
    def in_time(self) -> bool:
        """True if enough of that time is left to commit all transactions."""
        passed_s = asyncio.get_running_loop().time() - self.asked_at
        return passed_s * _SHARE <= self.room_s


async def look_at(
    coordination: Coordination,
    sink: Sink,
    prepared: Sequence[PreparedTransaction],
    timeout_ms: int,
    share: float = 1.0,
) -> Look:
    """Ask the coordinators which transactions are open, and which are too old.

    It sends at most two requests, each within `Coordination.limit_s`.

    Args:
        timeout_ms: the expected timeout of the transactions; the coordinators know it.
        share: the share of the margin that must be left.

    Raises:
        KafkaError: if the coordinators do not respond.
    """
    names = [each.transactional_id for each in prepared]
    while True:
        room_ms = share * margin_ms(timeout_ms, coordination.limit_s)
        limit_ms = timeout_ms - room_ms
        asked_at = asyncio.get_running_loop().time()
        statuses = await transactions.describe_transactions(
            coordination, names, AgeLimit(sink, limit_ms)
        )
        shortest = min(
            (each.timeout_ms for each in statuses.values() if each.timeout_ms > 0),
            default=timeout_ms,
        )
        if shortest >= timeout_ms:
            return Look(statuses, limit_ms, timeout_ms, asked_at, room_ms / 1000)
        timeout_ms = shortest


def timed_out(version: int, reason: str, timeout_ms: int) -> TransactionTimedOutError:
    """Return the error of a batch that must be written again."""
    return TransactionTimedOutError(
        f"batch {version}: {reason} (limit: kafka.transaction.timeout.ms={timeout_ms}). "
        "Nothing of the batch is visible, and no row is lost: it is written again as soon as the "
        "query or write runs again. Make batches smaller (maxOffsetsPerTrigger), raise that option "
        "(as far as the brokers' transaction.max.timeout.ms allows), or use "
        "delivery=at-least-once, which needs no transaction"
    )


async def complete(part: DriverPart, decision: Decision) -> None:
    """Commit the transactions of a decision that was made some time ago. If none of them is
    committed yet, and it is uncertain that all can be, take the decision back.

    Describing takes at most twice `Coordination.limit_s`. Committing has the limits of
    `ending.end_decided`, and taking back those of `decision_log.decide`.

    Raises:
        TransactionTimedOutError: if it was taken back.
        KafkaError: see `ending.end_decided`.
    """
    options, coordination = part.options, part.coordination
    prepared = decision.prepared(part.sink)
    if options.skip_lost_batch != decision.version:
        look = await look_at(
            coordination, part.sink, prepared, options.producer["transaction_timeout_ms"], share=0.5
        )
        statuses = [look.statuses[each.transactional_id] for each in prepared]
        is_open = [each.is_open(of) for each, of in zip(statuses, prepared, strict=True)]
        aborted = [each.was_aborted(of) for each, of in zip(statuses, prepared, strict=True)]
        old = any(each.is_old for each in statuses) or not look.in_time
        nothing_committed = all(map(any, zip(is_open, aborted, strict=True)))
        if nothing_committed and (old or any(aborted)):
            await take_back(part, decision)
    await commit_or_take_back(part, decision)


async def commit_or_take_back(part: DriverPart, decision: Decision) -> None:
    """Commit the transactions of a decision. If all of them were aborted, take it back.

    It has the limits of `ending.end_decided` and `take_back`.

    Raises:
        TransactionTimedOutError: if it was taken back.
        KafkaError: see `ending.end_decided`.
    """
    try:
        await end_decided(
            part.coordination, part.sink, decision, skip_lost=part.options.skip_lost_batch
        )
    except LostTransactionsError as error:
        if error.rows == decision.rows:
            await take_back(part, decision)
        raise


async def take_back(part: DriverPart, decision: Decision) -> None:
    """Abort all transactions of a decision and replace it. Stop if one of them turns out to be
    committed, or is unknown.

    Aborting the first one takes at most `Coordination.limit_s`, and so does each group of 64 of the
    others. Describing has the same limit each time, and then `decision_log.decide` has its limits.

    Raises:
        TransactionTimedOutError: if the decision was taken back.
        KafkaError: if it is uncertain whether the decision was taken back; the next run tries
            again.
    """
    prepared = decision.prepared(part.sink)
    # One first: if it turns out to be committed, the others must be committed, too.
    for some in (prepared[:1], prepared[1:]):
        if not await _abort(part.coordination, some):
            return
    await decide(part, decision.taken_back())
    raise timed_out(
        decision.version,
        f"it was decided, but {counted(len(prepared), 'transaction')} could not be committed in "
        "time, so all were aborted, and the decision was taken back",
        part.options.producer["transaction_timeout_ms"],
    )


async def _abort(coordination: Coordination, prepared: Sequence[PreparedTransaction]) -> bool:
    """Abort transactions; return whether all of them are certainly aborted."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def abort(transaction: PreparedTransaction) -> bool:
        async with gate:
            return not await transactions.end_transaction(coordination, transaction, commit=False)

    done = await together(abort(each) for each in prepared)
    others = [each for each, aborted in zip(prepared, done, strict=True) if not aborted]
    statuses = await transactions.describe_transactions(
        coordination, [each.transactional_id for each in others]
    )
    return all(statuses[each.transactional_id].was_aborted(each) for each in others)

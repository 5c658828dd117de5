"""Completes a decided batch while its transactions are certainly open, or takes the decision back.

A decision can be taken back as long as none of its transactions is committed. They are aborted
first, with the producer id and epoch that it names: another driver that still tries to commit them
finds that out. From the first commit on, the batch can only be completed.
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

# Of the time that is certainly left, asking and deciding may take a third. The ends need less than
# that, unless the coordinators become slower meanwhile.
_SHARE = 3


@dataclass(frozen=True, slots=True)
class Look:
    """What coordinators knew of transactions.

    Attributes:
        statuses: by transactional id.
        limit_ms: the age above which `TransactionStatus.is_old` is true.
        timeout_ms: the timeout of the transactions.
        asked_at: the event loop's time before they were asked.
        room_s: from then on, transactions that are not old stay open at least that long.
    """

    statuses: Mapping[str, TransactionStatus]
    limit_ms: float
    timeout_ms: int
    asked_at: float
    room_s: float

    @property
    def in_time(self) -> bool:
        """Whether enough of that time is left for committing all transactions."""
        passed_s = asyncio.get_running_loop().time() - self.asked_at
        return passed_s * _SHARE <= self.room_s


async def look_at(
    coordination: Coordination,
    sink: Sink,
    prepared: Sequence[PreparedTransaction],
    timeout_ms: int,
    share: float = 1.0,
) -> Look:
    """Ask the coordinators of transactions which of them are open, and for too long.

    Twice at most, each within `Coordination.limit_s`.

    Args:
        timeout_ms: the expected timeout of the transactions; the coordinators know it.
        share: how much of the margin has to be left.

    Raises:
        KafkaError: if the coordinators do not answer.
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
    """Return the error of a batch that is to be written again."""
    return TransactionTimedOutError(
        f"batch {version}: {reason} (limit: kafka.transaction.timeout.ms={timeout_ms}). "
        "Nothing of the batch is visible, and no row is lost: it is written again as soon as the "
        "query or write runs again. Make batches smaller (maxOffsetsPerTrigger), raise that option "
        "(as far as the brokers' transaction.max.timeout.ms allows), or use "
        "delivery=at-least-once, which needs no transaction"
    )


async def complete(part: DriverPart, decision: Decision) -> None:
    """Commit the transactions of a decision that was made some time ago. If none of them is
    committed, and not all of them certainly can be, take the decision back.

    Asking ends within twice `Coordination.limit_s`, committing as `ending.end_decided` says, and
    taking back as `decision_log.decide` says.

    Raises:
        TransactionTimedOutError: if it was taken back.
        KafkaError: as `ending.end_decided` does.
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
        KafkaError: as `ending.end_decided` does.
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
    """Abort all transactions of a decision and replace it. Do nothing more if one of them turns
    out to be committed, or unknown.

    Aborting the first one ends within `Coordination.limit_s`, then the others within as much for
    each 64; describing takes as long each time, and then `decision_log.decide` has its limits.

    Raises:
        TransactionTimedOutError: if the decision was taken back.
        KafkaError: if that is uncertain; the next run tries again.
    """
    prepared = decision.prepared(part.sink)
    # One first: if it turns out to be committed, the others are left to be committed, too.
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

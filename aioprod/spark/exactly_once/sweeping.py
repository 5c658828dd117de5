"""Cleans up after attempts and drivers that died: their open transactions hide the records of other
producers from read_committed consumers.

A transaction is aborted only if no driver can still decide for it. A driver that lost its
connection may be about to decide the batch after the last decision, but can't change the decided
batch or earlier ones. So a sweep runs after a decision, and does not abort the next batch's
transactions.
"""

from __future__ import annotations

from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.spark.coordination import Coordination, together
from aioprod.spark.exactly_once import transactions
from aioprod.spark.exactly_once.decision import Decision
from aioprod.spark.exactly_once.ending import end_decided
from aioprod.spark.exactly_once.ids import SLOTS, Sink

log: Logger = get_logger(__name__)


async def sweep(
    coordination: Coordination,
    sink: Sink,
    decision: Decision | None,
    run: str,
    *,
    others: bool = False,
) -> None:
    """Abort open transactions that are not part of the newest decision. If this fails, it is only
    logged.

    Listing takes at most 3 seconds, and aborting (all at the same time) at most
    `Coordination.limit_s`.

    Args:
        run: the run whose transactions are aborted.
        others: also abort those of other runs, except for the batch after the decided one.

    Raises:
        AuthenticationError, UnsupportedVersionError: if the brokers don't list transactions.
    """
    decided = (
        set() if decision is None else {each.transactional_id for each in decision.prepared(sink)}
    )
    next_slot = None if decision is None else decision.next_version % SLOTS

    def is_orphan(name: str) -> bool:
        attempt = sink.parse(name)
        if attempt is None or name in decided:
            return False
        return attempt.run == run or (
            others and next_slot is not None and attempt.slot != next_slot
        )

    orphans = await transactions.list_transactions(coordination, is_orphan)
    await together(_abort(coordination, name) for name in orphans)


async def finish_earlier(
    coordination: Coordination, sink: Sink, decision: Decision, *, skip_lost: int | None
) -> None:
    """Commit the transactions that an earlier run decided but did not commit, for writes that are
    never repeated.

    Each coordinator is asked, because the next decision replaces this one and its list of
    transactions. Asking takes at most `Coordination.limit_s`, and committing has the limits of
    `ending.end_decided`.

    Raises:
        KafkaError: see `ending.end_decided`; and if a coordinator does not respond.
    """
    prepared = decision.prepared(sink)
    names = [each.transactional_id for each in prepared]
    found = await transactions.describe_transactions(coordination, names)
    left = [
        each.transactional_id
        for each in prepared
        if found[each.transactional_id].is_open(each)
        or found[each.transactional_id].was_aborted(each)
    ]
    await end_decided(coordination, sink, decision, skip_lost=skip_lost, only=left)


async def _abort(coordination: Coordination, transactional_id: str) -> None:
    try:
        await transactions.abort_transaction(coordination, transactional_id)
    except KafkaError as error:
        log.warning(
            (
                "the open transaction of %r could not be aborted; it hides later records until "
                "it times out: %s"
            ),
            transactional_id,
            error,
        )
    else:
        log.info(
            "aborted the open transaction of %r, which belongs to no decided batch",
            transactional_id,
        )

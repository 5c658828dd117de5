"""Checks of a share group's history: the fate of each record. The guarantees are in
docs/share-groups.md, the anomalies in docs/testing-aioprod.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aioprod.testing.broker.share_groups.records import Acknowledge
from tests.simulation.call_checks import check_call
from tests.simulation.history import Finding, Moment
from tests.simulation.shares.history import (
    Acquired,
    Applied,
    Dead,
    Freed,
    Handed,
    Late,
    Place,
    Reason,
    Reported,
    Said,
    ShareHistory,
    name,
)

ACCEPT, RENEW = Acknowledge.ACCEPT, Acknowledge.RENEW
_SLACK_SECONDS = 0.05
# How long a request may be on its way if there are no faults.
_ON_ITS_WAY_SECONDS = 0.2
# The client counts the time of a lock from the request, which waits for records.
_EARLY_SECONDS = 0.4 + _ON_ITS_WAY_SECONDS


@dataclass(slots=True)
class Delivery:
    """A record from its lock for a member on.

    Attributes:
        acquired: when the broker locked it.
        locked_at: the time at which its lock began, or was renewed.
        freed: when the broker took it from the member, and why.
        handed: when the application got it.
        said: the acknowledgements of the application.
        applied: the acknowledgements that the broker has applied, without renewals.
        is_renewing: whether a renewal that the application asked for has no outcome.
        is_unsure: whether an outcome may be that of a renewal, or of what was said later.
        outcome: the last outcome, without those of renewals; its error is None if confirmed.
    """

    member: str
    place: Place
    number: int
    acquired: Moment
    locked_at: float
    freed: tuple[Moment, Reason] | None = None
    handed: Moment | None = None
    said: list[Acknowledge] = field(default_factory=list)
    applied: Acknowledge | None = None
    is_renewing: bool = False
    is_unsure: bool = False
    outcome: Reported | None = None

    @property
    def reason(self) -> Reason | None:
        """The reason why the broker took the record from the member."""
        return None if self.freed is None else self.freed[1]

    @property
    def is_accepted(self) -> bool:
        """True if it was reported to its member that the record is accepted."""
        reported = self.outcome is not None and self.outcome.error is None
        return reported and self.said[-1] is ACCEPT

    @property
    def is_late(self) -> bool:
        """True if an acceptance was confirmed that had no effect."""
        return self.is_accepted and self.applied is None


def check(history: ShareHistory) -> list[Finding]:
    """Return all anomalies of a history."""
    ledger = Ledger(history)
    findings = list(ledger.read())
    return [*findings, *(finding for checker in CHECKERS for finding in checker(history, ledger))]


class Ledger:
    """Reads the events in their order, and reports those that must not be.

    Attributes:
        deliveries: deliveries of each record, in the order of its locks.
        dead: the records that were rejected, or delivered too often.
    """

    def __init__(self, history: ShareHistory) -> None:
        self.deliveries: dict[Place, list[Delivery]] = {}
        self.dead: dict[Place, Dead] = {}
        self._history = history

    def read(self) -> Iterator[Finding]:
        """Yield the anomalies."""
        for moment, event in self._history.events:
            match event:
                case Acquired():
                    yield from self._acquired(event, moment)
                case Dead():
                    self.dead[event.place] = event
                case Said():
                    self._said(event)
                case _:
                    delivery = self.last(event.member, event.place)
                    if delivery is None:
                        text = f"{event.member}: {event}, but it never had the record"
                        yield _finding("invented", event.place, text)
                    else:
                        yield from self._goes_on(delivery, event, moment)

    def of(self, member: str, place: Place) -> list[Delivery]:
        """Return the deliveries of a record to a member."""
        return [each for each in self.deliveries.get(place, ()) if each.member == member]

    def last(self, member: str, place: Place) -> Delivery | None:
        """Return the last delivery of a record to a member."""
        return next(reversed(self.of(member, place)), None)

    def _goes_on(self, delivery: Delivery, event: object, moment: Moment) -> Iterator[Finding]:
        match event:
            case Freed():
                yield from self._freed(delivery, event, moment)
            case Applied():
                yield from self._applied(delivery, event, moment)
            case Late():
                yield from self._late(delivery, moment)
            case Handed():
                yield from self._handed(delivery, event, moment)
            case Reported():
                yield from self._reported(event, moment)

    def _is_calm(self, delivery: Delivery) -> bool:
        """Return whether the record was locked when the faults and their effects had ended."""
        final = self._history.final
        return (
            final is not None
            and final.calm is not None
            and delivery.acquired.order > final.calm.order
        )

    # -- the broker --------------------------------------------------------------------------------

    def _acquired(self, event: Acquired, moment: Moment) -> Iterator[Finding]:
        earlier = self.deliveries.setdefault(event.place, [])
        last = earlier[-1] if earlier else None
        if last is not None and last.applied is None and last.freed is None:
            yield _finding("two-owners", event.place, f"{last.member} and {event.member} have it")
        if any(each.applied is ACCEPT for each in earlier):
            yield _finding("acquired-again", event.place, f"by {event.member}, it was accepted")
        # A new leader does not know of a delivery that had no end.
        uncounted = last is not None and last.reason is Reason.LEADER
        expected = 1 if last is None else last.number if uncounted else last.number + 1
        if event.delivery != expected:
            yield _finding("wrong-count", event.place, f"{event.delivery}, not {expected}")
        if event.delivery > self._history.delivery_limit:
            yield _finding("too-often", event.place, f"delivery {event.delivery}")
        earlier.append(Delivery(event.member, event.place, event.delivery, moment, moment.at))

    def _freed(self, delivery: Delivery, event: Freed, moment: Moment) -> Iterator[Finding]:
        """A client that renews locks keeps them, if there are no faults."""
        delivery.freed = moment, event.reason
        if (
            event.reason is Reason.LOCK
            and delivery.handed is not None
            and not delivery.said
            and self._is_calm(delivery)
            and moment.at - delivery.handed.at < self._history.members[event.member].renews
        ):
            yield _finding("not-renewed", event.place, f"{event.member} loses it")

    def _applied(self, delivery: Delivery, event: Applied, moment: Moment) -> Iterator[Finding]:
        kind, member = event.kind, self._history.members[event.member]
        if kind is Acknowledge.GAP:
            if event.place in self._history.logged:
                yield _finding("lost", event.place, f"{event.member} says that it does not exist")
        elif delivery.handed is None:
            if kind is not Acknowledge.RELEASE:
                yield _finding("unwanted", event.place, f"{kind.name}, but not returned")
        elif kind not in delivery.said and not (kind is RENEW and member.renews):
            said = [each.name for each in delivery.said]
            text = f"{event.member} sends {kind.name}, the application said {said}"
            yield _finding("unwanted", event.place, text)
        if kind is RENEW:
            delivery.locked_at = moment.at
        else:
            delivery.applied = kind

    def _late(self, delivery: Delivery, moment: Moment) -> Iterator[Finding]:
        """A client does not send what it knows to be too late."""
        if delivery.applied is not None:
            text = f"{delivery.member}, {delivery.applied.name} was applied"
            yield _finding("sent-twice", delivery.place, text)
        elif (
            delivery.freed is not None
            and delivery.reason is Reason.LOCK
            and self._is_calm(delivery)
            and moment.at > delivery.freed[0].at + _ON_ITS_WAY_SECONDS
        ):
            yield _finding("sent-too-late", delivery.place, f"by {delivery.member}")

    # -- members -----------------------------------------------------------------------------------

    def _handed(self, delivery: Delivery, event: Handed, moment: Moment) -> Iterator[Finding]:
        place, member = event.place, event.member
        if delivery.number != event.delivery:
            yield _finding("wrong-count", place, f"{event.delivery}, not {delivery.number}")
        if delivery.handed is not None:
            yield _finding("handed-twice", place, f"{member} gets delivery {event.delivery} again")
        if delivery.reason is Reason.LOCK or self._is_known(delivery, moment):
            text = f"{member} has lost it, because of the {delivery.reason}"
            yield _finding("handed-too-late", place, text)
        delivery.handed = moment
        for other in self.deliveries[place]:
            if not other.is_accepted or other is delivery:
                continue
            if other.is_late:
                self._history.counts["returned again, the confirmed acceptance was late"] += 1
            elif delivery.reason is not None:
                # The member has not received yet that it lost the lock.
                text = f"returned again, unaware that the {delivery.reason} was lost"
                self._history.counts[text] += 1
            else:
                text = f"{member} gets what {other.member} had accepted"
                yield _finding("accepted-and-handed-out", place, text)

    def _is_known(self, delivery: Delivery, moment: Moment) -> bool:
        """Return whether a member must know that its session is lost: there are no faults, but all
        connections were cut once.
        """
        final = self._history.final
        return (
            delivery.freed is not None
            and delivery.reason is Reason.SESSION
            and final is not None
            and final.cut is not None
            and delivery.freed[0].order > final.cut.order
            and moment.at > delivery.freed[0].at + _ON_ITS_WAY_SECONDS
        )

    def _said(self, event: Said) -> None:
        handed = [each for each in self.of(event.member, event.place) if each.handed]
        if not handed:
            return  # it was not the member's, which is reported
        delivery = handed[-1]
        delivery.is_unsure = delivery.is_unsure or delivery.is_renewing
        delivery.is_renewing = event.kind is RENEW
        delivery.said.append(event.kind)

    def _reported(self, event: Reported, moment: Moment) -> Iterator[Finding]:
        waiting = [
            each
            for each in self.of(event.member, event.place)
            if each.said and each.outcome is None
        ]
        # An unsure one may have had its last outcome already.
        waiting.sort(
            key=lambda each: (
                each.is_unsure,
                event.error is None and each.applied != each.said[-1],
            )
        )
        if not waiting:
            yield _finding("invented", event.place, f"{event.member} is called for it: {event}")
            return
        delivery = waiting[0]
        if delivery.is_renewing:
            delivery.is_renewing = False
        elif not delivery.is_unsure:
            delivery.outcome = event
            if event.error is None:
                yield from self._confirmed(delivery)
            else:
                yield from self._failed(delivery, moment)

    def _confirmed(self, delivery: Delivery) -> Iterator[Finding]:
        """The broker has done what it confirms, or the group is done with the record. Only one
        acceptance has an effect, however many are confirmed.
        """
        place, kind = delivery.place, delivery.said[-1]
        others = [each for each in self.deliveries[place] if each is not delivery]
        is_done = place in self.dead or any(each.applied is ACCEPT for each in others)
        if delivery.applied is None and delivery.freed is not None and is_done:
            self._history.counts["confirmed, but late"] += 1
        elif delivery.applied != kind:
            done = "nothing" if delivery.applied is None else delivery.applied.name
            text = f"{delivery.member} learned that {kind.name} is confirmed; the broker did {done}"
            yield _finding("lost-acknowledgement", place, text)
        for other in others if kind is ACCEPT else ():
            if other.is_accepted:
                if delivery.is_late or other.is_late:
                    self._history.counts["confirmed for two deliveries, one was late"] += 1
                else:
                    both = f"{other.member} and {delivery.member}"
                    yield _finding("accepted-twice", place, both)

    def _failed(self, delivery: Delivery, moment: Moment) -> Iterator[Finding]:
        """Without faults, acknowledgements fail only if the lock has ended, or is about to."""
        certain = delivery.locked_at + self._history.lock_s - _EARLY_SECONDS
        if delivery.freed is None and self._is_calm(delivery) and moment.at < certain:
            yield _finding("failed-acknowledgement", delivery.place, str(delivery.outcome))


# -- the end, calls and leftovers ------------------------------------------------------------------


def check_end(history: ShareHistory, ledger: Ledger) -> Iterator[Finding]:
    """Check that the final state of each record was chosen by a member, or follows from the limit
    of deliveries.
    """
    final = history.final
    if final is None:
        yield Finding("not-live", "the run has not come to its end", ("fault",))
        return
    for place in final.undone:
        yield _finding("not-live", place, f"not done {final.limit:.0f} s after the last fault")
    for place in sorted(history.logged - set(final.undone)):
        applied = {each.applied for each in ledger.deliveries.get(place, ())}
        dead = ledger.dead.get(place)
        if ACCEPT in applied:
            history.counts["accepted"] += 1
        elif dead is not None and dead.is_rejected and Acknowledge.REJECT in applied:
            history.counts["rejected"] += 1
        elif dead is not None and not dead.is_rejected and dead.delivery >= history.delivery_limit:
            history.counts["delivered too often"] += 1
        else:
            yield _finding("lost", place, "it is done, and no member wanted that")
    for member in final.kept_back:
        yield Finding("still-locked", f"{member} is closed, and has records", (member,))


def check_outcomes(history: ShareHistory, ledger: Ledger) -> Iterator[Finding]:
    """Check that each acknowledgement has an outcome. A member that gets a record again while an
    acknowledgement waits learns of both at once.
    """
    for member in history.members.values():
        for place in ledger.deliveries if member.explicit and not member.dies else ():
            received = False
            for each in reversed(ledger.of(member.name, place)):
                received = received or each.outcome is not None or each.is_unsure
                if each.said and not received:
                    yield _finding("no-outcome", place, f"{member.name} said {each.said[-1].name}")


def check_calls(history: ShareHistory, ledger: Ledger) -> Iterator[Finding]:
    """Check that each call ends within its limit, and raises nothing because of a fault."""
    for call in history.calls:
        yield from check_call(history, call, _SLACK_SECONDS)
    for trace in history.members.values():
        for text in trace.failures:
            yield Finding("failed-call", f"{trace.name}: {text}", (trace.name,))


def check_leftovers(history: ShareHistory, ledger: Ledger) -> Iterator[Finding]:
    """Check that no task, timer or connection is left, and that the log reports no bug."""
    for trace in history.members.values():
        for leftover in trace.leftovers:
            yield Finding("leak", f"{trace.name}: {leftover}", (trace.name,))
    yield from (Finding("leak", leftover) for leftover in history.leftovers)
    yield from (Finding("fault", line) for line in history.unexpected_log)


CHECKERS: tuple[Callable[[ShareHistory, Ledger], Iterator[Finding]], ...] = (
    check_end,
    check_outcomes,
    check_calls,
    check_leftovers,
)


def _finding(anomaly: str, place: Place, text: str) -> Finding:
    return Finding(anomaly, f"{name(place)}: {text}", (name(place),))

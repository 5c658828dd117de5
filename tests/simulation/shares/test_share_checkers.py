"""The checkers of share groups report each anomaly under its name, and nothing that is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioprod.testing.broker.share_groups.records import Acknowledge
from tests.simulation.history import OK
from tests.simulation.shares.checkers import check
from tests.simulation.shares.history import (
    Acquired,
    Applied,
    Dead,
    Event,
    FinalState,
    Freed,
    Handed,
    Late,
    MemberTrace,
    Place,
    Reason,
    Reported,
    Said,
    ShareHistory,
)

P: Place = ("t", 0, 0)
ACCEPT, REJECT = Acknowledge.ACCEPT, Acknowledge.REJECT
RELEASE, RENEW = Acknowledge.RELEASE, Acknowledge.RENEW
LIMIT = 3


class Group:
    """Builds a history of members a (explicit mode; renews locks for a minute) and b (implicit
    mode): each call adds the next event. There are no faults, unless ``calm`` is False.
    """

    def __init__(self, *, calm: bool = True) -> None:
        self.now = 0.0
        self.history = ShareHistory(clock=lambda: self.now, delivery_limit=LIMIT)
        self.history.members = {
            "a": MemberTrace("a", explicit=True, renews=60.0),
            "b": MemberTrace("b"),
        }
        self.history.logged = {P}
        begin = self.history.note("no faults from now on")
        self.history.final = FinalState(begin, 30.0, begin, begin if calm else None)

    def add(self, *events: Event) -> None:
        for event in events:
            self.now += 0.01
            self.history.add(event)

    def get(self, member: str, delivery: int = 1, place: Place = P) -> None:
        self.add(Acquired(member, place, delivery), Handed(member, place, delivery))

    def say(
        self,
        member: str,
        kind: Acknowledge = ACCEPT,
        *,
        applied: bool = True,
        error: str | None = None,
    ) -> None:
        self.add(Said(member, P, kind))
        if applied:
            self.add(Applied(member, P, kind))
        if kind is REJECT:
            self.add(Dead("broker", P, 1, True))
        self.add(Reported(member, P, error))

    def end_lock(self, member: str, reason: Reason = Reason.LOCK) -> None:
        self.add(Freed(member, P, reason))

    def anomalies(self) -> list[str]:
        return [finding.anomaly for finding in check(self.history)]


def an_accepted_record(group: Group) -> None:
    group.get("a")
    group.say("a")


def a_rejected_record(group: Group) -> None:
    group.get("a")
    group.say("a", REJECT)


def a_released_record(group: Group) -> None:
    group.get("a")
    group.say("a", RELEASE)
    group.get("b", 2)
    group.say("b")


def a_record_whose_lock_ends(group: Group) -> None:
    group.get("b")
    group.end_lock("b")
    group.get("a", 2)
    group.say("b", applied=False, error="INVALID_RECORD_STATE")
    group.say("a")


def a_renewed_lock(group: Group) -> None:
    group.get("a")
    group.say("a", RENEW)
    group.say("a")


def a_record_that_was_delivered_too_often(group: Group) -> None:
    for delivery in range(1, LIMIT + 1):
        group.get("b", delivery)
        group.end_lock("b")
    group.add(Dead("broker", P, LIMIT, False))


def a_delivery_that_a_new_leader_does_not_count(group: Group) -> None:
    group.get("a")
    group.end_lock("a", Reason.LEADER)
    group.get("b")
    group.say("b")


def a_confirmation_that_is_late(group: Group) -> None:
    """The group is done with the record since its leader has moved away and back."""
    group.get("b")
    group.end_lock("b", Reason.LEADER)
    group.get("a")
    group.say("a")
    group.add(Said("b", P, ACCEPT), Late("b", P), Reported("b", P, None))


def a_member_that_has_not_seen_the_new_leader(group: Group) -> None:
    group.add(Acquired("b", P, 1))
    group.end_lock("b", Reason.LEADER)
    group.get("a")
    group.say("a")
    group.add(Handed("b", P, 1))


@pytest.mark.parametrize(
    "happens",
    [
        an_accepted_record,
        a_rejected_record,
        a_released_record,
        a_record_whose_lock_ends,
        a_renewed_lock,
        a_record_that_was_delivered_too_often,
        a_delivery_that_a_new_leader_does_not_count,
        a_confirmation_that_is_late,
        a_member_that_has_not_seen_the_new_leader,
    ],
    ids=lambda each: each.__name__,
)
def test_what_may_happen(happens: Callable[[Group], None]) -> None:
    group = Group()
    happens(group)
    assert group.anomalies() == []


def test_what_is_late_is_counted() -> None:
    group = Group()
    a_confirmation_that_is_late(group)
    assert group.anomalies() == []
    assert group.history.counts == {
        "accepted": 1,
        "confirmed, but late": 1,
        "confirmed for two deliveries, one was late": 1,
    }


def test_after_a_fault_an_acknowledgement_may_fail() -> None:
    for calm, expected in ((False, []), (True, ["failed-acknowledgement"])):
        group = Group(calm=calm)
        group.get("a")
        group.say("a", error="BrokerConnectionError")
        assert group.anomalies() == expected


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        (["two-owners", "wrong-count"], [Acquired("b", P, 1)]),
        (["wrong-count"], [Freed("a", P, Reason.SESSION), Acquired("b", P, 3)]),
        (["wrong-count"], [Handed("a", P, 2)]),
        (["handed-twice"], [Handed("a", P, 1), Handed("a", P, 1)]),
        (["handed-too-late"], [Freed("a", P, Reason.LOCK), Handed("a", P, 1)]),
        (["invented"], [Handed("b", P, 1)]),
        (["invented"], [Reported("a", P, None)]),
        (["invented"], [Late("b", P)]),
        (["unwanted"], [Applied("a", P, ACCEPT)]),
        (["unwanted"], [Handed("a", P, 1), Applied("a", P, REJECT)]),
        (["sent-twice"], [Applied("a", P, RELEASE), Late("a", P)]),
        (["lost"], [Applied("a", P, Acknowledge.GAP)]),
        (
            ["lost-acknowledgement"],
            [Handed("a", P, 1), Said("a", P, ACCEPT), Reported("a", P, None)],
        ),
        (["no-outcome"], [Handed("a", P, 1), Said("a", P, RELEASE)]),
        (["not-renewed"], [Handed("a", P, 1), Freed("a", P, Reason.LOCK)]),
    ],
)
def test_what_must_not_happen(expected: list[str], events: list[Event]) -> None:
    group = Group()
    group.history.logged.clear()
    group.add(Acquired("a", P, 1))
    if expected == ["lost"]:
        group.history.logged = {P}
        group.history.final.undone = [P]  # type: ignore[union-attr]
        expected = ["lost", "not-live"]
    group.add(*events)
    assert group.anomalies() == expected


def test_an_accepted_record_is_not_delivered_again() -> None:
    group = Group()
    an_accepted_record(group)
    group.get("b", 2)
    group.say("b")
    found = ["acquired-again", "accepted-and-handed-out", "accepted-twice"]
    assert group.anomalies() == found


def test_an_acknowledgement_that_is_sent_after_its_lock() -> None:
    group = Group()
    group.get("b")
    group.end_lock("b")
    group.now += 1.0
    group.add(Late("b", P))
    group.history.logged.clear()
    assert group.anomalies() == ["sent-too-late"]


def test_records_of_a_session_that_is_known_to_be_lost() -> None:
    group = Group()
    group.history.logged.clear()
    for delivery, known in ((1, False), (2, True)):
        group.add(Acquired("b", P, delivery), Freed("b", P, Reason.SESSION))
        group.now += float(known)
        group.add(Handed("b", P, delivery))
        assert group.anomalies() == ["handed-too-late"] * known


def test_a_renewed_lock_must_not_be_given_up() -> None:
    for passes, expected in ((10.0, ["failed-acknowledgement"]), (40.0, [])):
        group = Group()
        group.history.logged.clear()
        group.get("a")
        group.now += 25.0
        group.say("a", RENEW)
        group.now += passes
        group.say("a", applied=False, error="INVALID_RECORD_STATE")
        assert group.anomalies() == expected


def test_a_delivery_beyond_the_limit() -> None:
    group = Group()
    for delivery in range(1, LIMIT + 2):
        group.get("b", delivery)
        group.end_lock("b")
    group.history.logged.clear()
    assert group.anomalies() == ["too-often"]


def test_a_record_that_ends_for_no_reason() -> None:
    group = Group()
    group.get("b")
    group.end_lock("b")
    assert group.anomalies() == ["lost"]
    group.add(Dead("broker", P, LIMIT - 1, False))
    assert group.anomalies() == ["lost"]


def test_what_is_left_in_the_end() -> None:
    group = Group()
    an_accepted_record(group)
    final = group.history.final
    assert final is not None
    final.undone, final.kept_back = [("t", 0, 7)], ["a"]
    group.history.members["a"].leftovers.append("a timer is left")
    group.history.members["b"].failures.append("poll: BrokerError")
    group.history.unexpected_log.append("Task was destroyed but it is pending!")
    found = ["not-live", "still-locked", "failed-call", "leak", "fault"]
    assert group.anomalies() == found


def test_a_run_that_does_not_come_to_its_end() -> None:
    group = Group()
    group.history.final = None
    assert group.anomalies() == ["not-live"]


@pytest.mark.parametrize(("took", "expected"), [(1.0, []), (1.2, ["late"]), (None, ["hang"])])
def test_the_limits_of_calls(took: float | None, expected: list[str]) -> None:
    group = Group()
    an_accepted_record(group)
    call = group.history.call("a", "commit", 1.0)
    if took is not None:
        group.now += took
        group.history.returned(call, OK)
    assert group.anomalies() == expected
    # The time in which its process was frozen does not count.
    group.history.freezes["a"] = [(call.begun.at, call.begun.at + 0.5)]
    assert group.anomalies() == (expected if took is None else [])

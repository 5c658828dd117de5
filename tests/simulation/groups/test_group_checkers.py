"""The checkers of groups report each anomaly under its name, and nothing that is allowed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioprod.types import TopicPartition
from tests.simulation.groups.checkers import check
from tests.simulation.groups.history import (
    ASSIGNED,
    LOST,
    REVOKED,
    FinalState,
    GroupHistory,
    MemberTrace,
)
from tests.simulation.history import OK

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """Builds a history of members a (automatic commits) and b: each call adds the next event."""

    def __init__(self, *, cooperative: bool = False) -> None:
        self.history = GroupHistory(lossless=True)
        for name in "ab":
            self.history.members[name] = MemberTrace(name, name == "a", cooperative)
        self.history.logs = {tp: {offset: offset for offset in range(20)} for tp in (P0, P1)}
        self.history.final = FinalState(self.history.note("repaired"), 30.0)
        self.owned: dict[str, frozenset[TopicPartition]] = {"a": frozenset(), "b": frozenset()}

    def joined(self, generation: int, *members: str) -> None:
        self.history.joined(generation, frozenset(members))

    def reported(
        self, member: str, kind: str, *partitions: TopicPartition, generation: int = 1
    ) -> None:
        changed = frozenset(partitions)
        if kind == ASSIGNED:
            self.owned[member] |= changed
        self.history.reported(member, kind, changed, generation, self.owned[member])
        self.history.ended(member, kind, changed)
        if kind != ASSIGNED:
            self.owned[member] -= changed

    def read(self, member: str, tp: TopicPartition, *offsets: int) -> None:
        self.history.began(member, "getmany")
        self.history.handed(member, [(tp, offset, offset) for offset in offsets])

    def store(self, member: str, tp: TopicPartition, offset: int, before: int | None) -> None:
        self.history.offset_stored(member, 1, tp, offset, before)

    def anomalies(self) -> list[str]:
        for member, owned in self.owned.items():
            if owned:
                self.reported(member, REVOKED, *owned)
        return [finding.anomaly for finding in check(self.history)]


def started(*, cooperative: bool = False) -> Group:
    """A group in which member a has read and committed the records 0 to 2 of P0."""
    group = Group(cooperative=cooperative)
    group.joined(1, "a", "b")
    group.history.shared(1, {"a": frozenset({P0}), "b": frozenset({P1})})
    group.reported("a", ASSIGNED, P0)
    group.reported("b", ASSIGNED, P1)
    group.read("a", P0, 0, 1, 2)
    group.history.began("a", "getmany")
    group.store("a", P0, 3, None)
    return group


def test_a_correct_history_has_no_findings() -> None:
    group = started()
    group.reported("a", REVOKED, P0)
    group.reported("b", REVOKED, P1)
    group.joined(2, "b")
    group.history.shared(2, {"b": frozenset({P0, P1})})
    group.reported("b", ASSIGNED, P0, P1, generation=2)
    group.read("b", P0, 3, 4)
    number = group.history.committing("b", {P0: 5})
    group.store("b", P0, 5, 3)
    group.history.committed("b", number, OK)
    assert group.anomalies() == []


def test_a_partition_with_two_owners_in_an_assignment() -> None:
    group = started()
    group.history.shared(2, {"a": frozenset({P0}), "b": frozenset({P0, P1})})
    assert group.anomalies() == ["double-assignment"]


def test_a_partition_that_its_owner_has_not_given_up() -> None:
    group = started(cooperative=True)
    group.joined(2, "a", "b")
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == ["two-owners"]


def test_the_partition_of_a_member_that_has_missed_the_generation_may_be_assigned() -> None:
    group = started(cooperative=True)
    group.joined(2, "b")
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == []


def test_the_partitions_of_a_dead_member_may_be_assigned() -> None:
    group = started(cooperative=True)
    group.history.gone("a")
    group.owned["a"] = frozenset()
    group.joined(2, "a", "b")
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == []


def test_a_static_member_takes_over_in_the_same_generation() -> None:
    group = started(cooperative=True)
    for trace in group.history.members.values():
        trace.instance = "i"
    group.reported("b", ASSIGNED, P0)
    assert group.anomalies() == []


def reads(*offsets: int, member: str = "a", tp: TopicPartition = P0) -> Callable[[Group], None]:
    return lambda group: group.read(member, tp, *offsets)


@pytest.mark.parametrize(
    ("step", "anomaly"),
    [
        (reads(4), "poll-skip"),
        (reads(3, 5), "poll-skip"),
        (reads(2), "nonmonotonic-poll"),
        (reads(1, member="b", tp=P1), "poll-skip"),
        (reads(3, member="b"), "unowned-read"),
        (lambda group: group.history.handed("a", [(P0, 3, 7)]), "wrong-record"),
        (lambda group: group.store("b", P1, 1, None), "committed-unread"),
        (lambda group: group.store("a", P0, 4, 3), "committed-unread"),
        (lambda group: group.store("a", P0, 2, 3), "committed-backwards"),
        (lambda group: group.reported("a", ASSIGNED, P0), "unbalanced-callbacks"),
        (lambda group: group.reported("a", REVOKED, P1), "unbalanced-callbacks"),
        (
            lambda group: group.reported("b", ASSIGNED, TopicPartition("t", 2)),
            "unbalanced-callbacks",
        ),
        (
            lambda group: group.history.poll_failed(group.history.members["a"], "KafkaError"),
            "poll-failed",
        ),
        (lambda group: group.history.members["a"].leftovers.append("task"), "leak"),
        (lambda group: group.history.unexpected_log.append("bug"), "fault"),
    ],
)
def test_one_wrong_step(step: Callable[[Group], None], anomaly: str) -> None:
    group = started()
    step(group)
    assert anomaly in group.anomalies()


def test_an_offset_that_is_committed_before_the_application_is_done() -> None:
    group = started()
    group.read("a", P0, 3)
    group.store("a", P0, 4, 3)
    assert group.anomalies() == ["committed-unfinished"]


def test_a_seek_moves_the_position_and_the_committed_offset() -> None:
    group = started()
    group.history.sought("a", P0, 1)
    group.read("a", P0, 1)
    group.history.began("a", "getmany")
    group.store("a", P0, 2, 3)
    assert group.anomalies() == []


def test_a_late_copy_of_a_commit_may_move_back() -> None:
    group = started()
    group.history.lossless = False
    group.store("a", P0, 1, 3)
    assert group.anomalies() == []


def test_a_commit_that_is_not_stored() -> None:
    group = started()
    group.read("b", P1, 0)
    number = group.history.committing("b", {P1: 1})
    group.history.committed("b", number, OK)
    assert group.anomalies() == ["lost-commit"]


def test_a_commit_may_be_sent_with_a_later_one_of_a_lower_position() -> None:
    group = started()
    group.read("b", P1, 0, 1)
    first = group.history.committing("b", {P1: 2})
    group.history.sought("b", P1, 1)
    second = group.history.committing("b", {P1: 1})
    group.store("b", P1, 1, None)
    group.history.committed("b", first, OK)
    group.history.committed("b", second, OK)
    assert group.anomalies() == []


def test_a_failed_commit_need_not_be_stored() -> None:
    group = started()
    number = group.history.committing("a", {P0: 3})
    group.history.committed("a", number, "CommitFailedError")
    assert group.anomalies() == []


def test_an_end_without_a_callback() -> None:
    group = started()
    group.owned["a"] = frozenset()
    assert group.anomalies() == ["unbalanced-callbacks"]


def test_lost_partitions_are_no_longer_owned() -> None:
    group = started()
    group.reported("a", LOST, P0)
    group.read("a", P0, 3)
    assert group.anomalies() == ["unowned-read"]


@pytest.mark.parametrize(("peaceful", "expected"), [(True, ["needless-duplicate"]), (False, [])])
def test_a_record_that_is_read_twice(peaceful: bool, expected: list[str]) -> None:
    group = started()
    group.history.peaceful = peaceful
    group.read("a", P0, 3)
    group.reported("a", REVOKED, P0)
    group.reported("b", REVOKED, P1)
    group.joined(2, "b")
    group.reported("b", ASSIGNED, P0, generation=2)
    group.read("b", P0, 3)
    assert group.anomalies() == expected


def with_epochs() -> Group:
    """A group of the consumer protocol: member a has P0, member b has P1."""
    group = Group(cooperative=True)
    group.history.epochs = True
    for member, tp in (("a", P0), ("b", P1)):
        group.history.granted(member, 1, frozenset({tp}))
        group.reported(member, ASSIGNED, tp)
    return group


def test_a_member_gets_what_the_coordinator_grants_after_its_owner_has_given_it_up() -> None:
    group = with_epochs()
    group.reported("a", REVOKED, P0)
    group.history.granted("b", 2, frozenset({P0, P1}))
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == []


def test_a_member_gets_what_the_coordinator_has_not_granted() -> None:
    group = with_epochs()
    group.reported("a", REVOKED, P0)
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == ["not-granted"]


def test_a_grant_counts_once() -> None:
    group = with_epochs()
    group.reported("a", REVOKED, P0)
    group.reported("a", ASSIGNED, P0)
    assert group.anomalies() == ["not-granted"]


def test_a_coordinator_that_grants_a_partition_too_early() -> None:
    group = with_epochs()
    group.history.granted("b", 2, frozenset({P0, P1}))
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == ["two-owners"]


@pytest.mark.parametrize("removed", ["a", "b"])
def test_one_of_two_owners_is_removed(removed: str) -> None:
    """Its commits are refused: a as the former owner, b as one that learns of it late."""
    group = with_epochs()
    group.history.granted("b", 2, frozenset({P0, P1}))
    group.history.removed(removed, "is removed from the group")
    group.reported("b", ASSIGNED, P0, generation=2)
    assert group.anomalies() == []


def test_an_instance_that_was_not_released_may_be_refused_to_a_static_member_only() -> None:
    group = started()
    group.history.members["a"].instance = "i"
    for trace in group.history.members.values():
        group.history.poll_failed(trace, "BrokerError: UNRELEASED_INSTANCE_ID")
    assert group.anomalies() == ["poll-failed"]


def end(change: Callable[[FinalState], object]) -> list[str]:
    group = started()
    assert group.history.final is not None
    change(group.history.final)
    return group.anomalies()


@pytest.mark.parametrize(
    ("change", "anomaly"),
    [
        (lambda final: final.unread.update({P0: "3 of 5 committed"}), "not-live"),
        (lambda final: final.unprobed.append(P0), "not-live"),
        (
            lambda final: final.assignments.update({"a": (frozenset(), frozenset({P0}))}),
            "wrong-assignment",
        ),
        (lambda final: final.troubled.update({"a": "stalled"}), "troubled"),
        (lambda final: final.present.append("a"), "not-left"),
    ],
)
def test_an_end_with_something_wrong(change: Callable[[FinalState], object], anomaly: str) -> None:
    assert end(change) == [anomaly]


def test_a_member_without_time_to_close_need_not_have_left() -> None:
    group = started()
    assert group.history.final is not None
    group.history.final.present.append("a")
    group.history.members["a"].hurried = True
    assert group.anomalies() == []


def test_a_run_without_an_end() -> None:
    group = started()
    group.history.final = None
    assert group.anomalies() == ["not-live"]


@pytest.mark.parametrize(
    ("took", "frozen", "expected"),
    [(0.5, 0.0, []), (3.0, 0.0, ["late"]), (3.0, 2.5, []), (None, 0.0, ["hang"])],
)
def test_calls_end_within_their_limits(
    took: float | None, frozen: float, expected: list[str]
) -> None:
    group, now = started(), [0.0]
    group.history.clock = lambda: now[0]
    call = group.history.call("a", "getmany", 1.0)
    group.history.freezes["a"] = [(0.1, 0.1 + frozen)]
    if took is not None:
        now[0] = took
        group.history.returned(call, OK)
    assert group.anomalies() == expected

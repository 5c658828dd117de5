"""A topic that is deleted and created again loses records, except those of the last incarnation."""

from __future__ import annotations

from tests.anomalies.anomaly import Kind
from tests.anomalies.checker import check
from tests.anomalies.history import Entry, History, Operation, Outcome, Read, Reader, Send
from tests.anomalies.incarnations import keep_last_incarnation

PARTITION = "t/0"
RECREATED = 10.0
BEFORE, AFTER = 5.0, 15.0


def sent(number: int, at: float, value: int, offset: int) -> Operation:
    sends = (Send(PARTITION, value, offset),)
    return Operation(number, "sender", 0, at, at + 0.1, Outcome.OK, sends)


def polled(number: int, at: float, *reads: tuple[int, int]) -> Operation:
    found = tuple(Read(PARTITION, offset, value) for offset, value in reads)
    return Operation(number, "member-0", 0, at, at + 0.1, Outcome.OK, reads=found)


def committed(number: int, at: float, offset: int) -> Operation:
    commits = {PARTITION: offset}
    return Operation(number, "member-0", 0, at, at + 0.1, Outcome.OK, commits=commits)


def kinds(*operations: Operation, log: list[Entry]) -> set[Kind]:
    history = History([*operations], {PARTITION: log}, readers={"member-0": Reader("g")})
    history.final_polls, history.ended = {"g"}, 20.0
    keep_last_incarnation(history, RECREATED)
    return {each.kind for each in check(history)}


def test_records_of_a_deleted_topic_may_be_lost_and_their_offsets_used_again() -> None:
    assert not kinds(
        sent(0, BEFORE, 1, 0),
        sent(1, BEFORE, 2, 1),
        polled(2, BEFORE, (0, 1), (1, 2)),
        committed(3, BEFORE, 2),
        sent(4, AFTER, 3, 0),
        polled(5, AFTER, (0, 3)),
        committed(6, AFTER + 1, 1),
        log=[Entry(0, 3)],
    )


def test_records_of_the_last_incarnation_count() -> None:
    assert kinds(sent(0, AFTER, 1, 0), log=[]) == {Kind.LOST_WRITE}
    assert kinds(sent(0, AFTER, 1, 3), polled(1, AFTER, (0, 1)), log=[Entry(0, 1)]) == {
        Kind.WRONG_OFFSET
    }
    assert kinds(sent(0, BEFORE, 1, 0), log=[Entry(0, 1)]) == {Kind.UNSEEN}


def test_a_record_that_a_retry_stores_in_the_next_incarnation_counts() -> None:
    operation = sent(0, RECREATED - 0.01, 1, 0)
    assert not kinds(operation, polled(1, AFTER, (0, 1)), log=[Entry(0, 1)])
    operation = sent(0, RECREATED - 0.01, 1, 0)
    again = [Entry(0, 1), Entry(1, 1)]
    assert Kind.DUPLICATE in kinds(operation, polled(1, AFTER, (0, 1), (1, 1)), log=again)


def test_a_member_must_not_commit_the_position_of_a_deleted_incarnation() -> None:
    assert kinds(
        sent(0, AFTER, 1, 0), committed(1, AFTER, 500), polled(2, AFTER, (0, 1)), log=[Entry(0, 1)]
    ) == {Kind.COMMIT_BEYOND_READ}

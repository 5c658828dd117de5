"""The checkers, on made-up histories: each anomaly is found by its name, and what is allowed is
not.
"""

from __future__ import annotations

import pytest

from tests.simulation.checkers import check
from tests.simulation.histories import P0, P1, Story
from tests.simulation.history import (
    CANCELLED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Ending,
    History,
    Promise,
    SentRecord,
)


def anomalies(history: History) -> list[str]:
    return [finding.anomaly for finding in check(history)]


def acknowledged(story: Story, count: int) -> list[SentRecord]:
    records = [story.send() for _ in range(count)]
    for offset, record in enumerate(records):
        story.acknowledge(record, offset)
    return records


def test_a_history_without_fault_has_no_findings() -> None:
    story = Story()
    records = acknowledged(story, 3)
    story.read(READ_UNCOMMITTED, *enumerate(records))
    story.call(took=0.5)
    story.store(*records)
    assert anomalies(story.end()) == []


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "promise", [Promise.EXACTLY_ONCE, Promise.AT_LEAST_ONCE, Promise.UNLESS_LEADER_DIES]
)
def test_an_acknowledged_record_that_is_nowhere_is_a_lost_write(promise: Promise) -> None:
    story = Story(promise)
    first, _ = acknowledged(story, 2)
    story.store(first)
    assert anomalies(story.end()) == ["lost-write"]


def test_without_acknowledgements_nothing_is_lost() -> None:
    story = Story(Promise.NOTHING, ordered=False)
    story.acknowledge(story.send(), -1)
    assert anomalies(story.end()) == []


def test_the_leaders_word_alone_holds_unless_it_dies() -> None:
    story = Story(Promise.UNLESS_LEADER_DIES, ordered=False)
    acknowledged(story, 1)
    story.history.leader_died = True
    assert anomalies(story.end()) == []


def test_a_record_elsewhere_than_acknowledged_is_found() -> None:
    story = Story()
    first, second = acknowledged(story, 2)
    story.store(first, second, first_offset=1)
    assert anomalies(story.end()) == ["inconsistent-offsets", "inconsistent-offsets"]


def test_an_acknowledgement_without_an_offset_names_the_partition() -> None:
    for place, found in ((P0, []), (P1, ["inconsistent-offsets"])):
        story = Story()
        record = story.send(partition=None)
        story.acknowledge(record, -1)
        story.store(record, place=place)
        assert anomalies(story.end()) == found


def test_a_failed_record_may_be_there_or_not() -> None:
    story = Story()
    lost, kept, cancelled = story.send(), story.send(), story.call_send()
    story.fail(lost)
    story.fail(kept)
    story.history.refused(cancelled, CANCELLED)
    story.store(kept, cancelled)
    assert anomalies(story.end()) == []


def test_a_record_that_certainly_never_left_must_not_be_there() -> None:
    story = Story()
    too_large, refused = story.send(), story.call_send()
    story.fail(too_large, never_left=True)
    story.history.refused(refused, "BufferExhaustedError")
    story.store(too_large, refused)
    assert anomalies(story.end()) == ["aborted-read", "aborted-read"]


def test_only_idempotence_forbids_duplicates_and_it_does_so_for_failed_records_too() -> None:
    for promise, found in ((Promise.EXACTLY_ONCE, ["duplicate"]), (Promise.AT_LEAST_ONCE, [])):
        story = Story(promise)
        record = story.send()
        story.fail(record)
        story.store(record, record)
        assert anomalies(story.end()) == found


def test_one_partition_keeps_the_order_of_the_calls() -> None:
    story = Story()
    first, second = story.send(), story.send()
    story.acknowledge(first, 1)
    story.acknowledge(second, 0)
    story.store(second, first)
    assert anomalies(story.end()) == ["nonmonotonic-send"]


def test_failed_records_keep_the_order_under_idempotence_only() -> None:
    for promise, found in (
        (Promise.EXACTLY_ONCE, ["nonmonotonic-send"]),
        (Promise.AT_LEAST_ONCE, []),
    ):
        story = Story(promise)
        first, second = story.send(), story.send()
        story.fail(first)
        story.acknowledge(second, 0)
        story.store(second, first)
        assert anomalies(story.end()) == found


@pytest.mark.parametrize("overtaken", [False, True])
def test_calls_of_several_tasks_are_ordered_by_when_they_began(overtaken: bool) -> None:
    """Whichever of them returns first."""
    story = Story()
    first, second = story.call_send(), story.call_send()
    stored = (second, first) if overtaken else (first, second)
    for record in (second, first):
        story.history.taken(record)
        story.acknowledge(record, stored.index(record))
    story.store(*stored)
    assert anomalies(story.end()) == (["nonmonotonic-send"] if overtaken else [])


def test_a_foreign_record_and_one_in_the_wrong_partition_are_found() -> None:
    story = Story()
    record = story.send(partition=1)
    story.acknowledge(record, 1)
    story.store(None, record)
    assert anomalies(story.end()) == ["invented", "misplaced"]


def test_a_key_has_one_partition() -> None:
    story = Story()
    for place in (P0, P1):
        record = story.send(partition=None, key=b"k")
        story.acknowledge(record, 0, place)
        story.store(record, place=place)
    assert anomalies(story.end()) == ["misplaced"]


# -- transactions ----------------------------------------------------------------------------------


def transaction(ending: Ending, *, asked: bool = True) -> tuple[Story, list[SentRecord]]:
    """One transaction of two records, both acknowledged and stored."""
    story = Story(transactional_id="id")
    trace = story.history.begin("p", 1)
    records = [story.send(transaction=trace) for _ in range(2)]
    for offset, record in enumerate(records):
        story.acknowledge(record, offset)
    if asked:
        story.history.asks_commit(trace)
    if ending is not Ending.OPEN:
        story.history.end(trace, ending)
    story.store(*records)
    return story, records


@pytest.mark.parametrize("visible", [0, 1, 2])
@pytest.mark.parametrize(
    ("ending", "asked", "found"),
    [
        (Ending.COMMITTED, True, {0: "torn-transaction", 1: "torn-transaction", 2: None}),
        (Ending.ABORTED, True, {0: None, 1: "aborted-read", 2: "aborted-read"}),
        (Ending.UNKNOWN, True, {0: None, 1: "torn-transaction", 2: None}),
        (Ending.OPEN, False, {0: None, 1: "aborted-read", 2: "aborted-read"}),
    ],
)
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    ending: Ending, asked: bool, found: dict[int, str | None], visible: int
) -> None:
    story, records = transaction(ending, asked=asked)
    expected = found[visible]
    assert anomalies(story.end(invisible=tuple(records[visible:]))) == (
        [] if expected is None else [expected]
    )


def test_a_commit_over_a_failed_record_is_torn() -> None:
    story = Story(transactional_id="id")
    trace = story.history.begin("p", 1)
    record = story.send(transaction=trace)
    story.fail(record)
    story.history.asks_commit(trace)
    story.history.end(trace, Ending.COMMITTED)
    assert anomalies(story.end()) == ["torn-transaction"]


def test_reading_before_the_commit_was_asked_for_is_found() -> None:
    story = Story(transactional_id="id")
    trace = story.history.begin("p", 1)
    record = story.send(transaction=trace)
    story.acknowledge(record, 0)
    story.read(READ_COMMITTED, (0, record))
    story.history.asks_commit(trace)
    story.history.end(trace, Ending.COMMITTED)
    story.store(record)
    assert anomalies(story.end()) == ["precommitted-read"]


def test_reading_a_record_of_an_aborted_transaction_is_found() -> None:
    story, records = transaction(Ending.ABORTED)
    story.read(READ_COMMITTED, (0, records[0]))
    assert set(anomalies(story.end(invisible=tuple(records)))) == {
        "aborted-read",
        "inconsistent-offsets",
    }


@pytest.mark.parametrize(
    ("ending", "position", "found"),
    [
        (Ending.COMMITTED, 7, []),
        (Ending.COMMITTED, None, ["torn-offsets"]),
        (Ending.ABORTED, 7, ["torn-offsets"]),
        (Ending.ABORTED, None, []),
    ],
)
def test_positions_stand_or_fall_with_their_transaction(
    ending: Ending, position: int | None, found: list[str]
) -> None:
    story, records = transaction(ending)
    story.history.transactions[0].group_position = 7
    if position is not None:
        story.history.group_positions["id"] = position
    assert (
        anomalies(story.end(invisible=() if ending is Ending.COMMITTED else tuple(records)))
        == found
    )


def test_records_tell_how_a_transaction_of_unknown_ending_ended() -> None:
    for invisible, position, found in (
        (True, None, []),
        (True, 7, ["torn-offsets"]),
        (False, 7, []),
        (False, None, ["torn-offsets"]),
    ):
        story, records = transaction(Ending.UNKNOWN)
        story.history.transactions[0].group_position = 7
        if position is not None:
            story.history.group_positions["id"] = position
        assert anomalies(story.end(invisible=tuple(records) if invisible else ())) == found


# -- readers ---------------------------------------------------------------------------------------


def test_a_reader_that_goes_back_is_found() -> None:
    story = Story()
    records = acknowledged(story, 2)
    story.read(READ_UNCOMMITTED, (1, records[1]), (0, records[0]))
    story.store(*records)
    assert anomalies(story.end()) == ["nonmonotonic-poll"]


def test_a_reader_that_leaves_something_out_is_found() -> None:
    story = Story()
    records = acknowledged(story, 3)
    story.read(READ_UNCOMMITTED, (0, records[0]), (2, records[2]))
    story.store(*records)
    assert anomalies(story.end()) == ["poll-skip"]


def test_a_reader_may_begin_later_and_end_early() -> None:
    story = Story()
    records = acknowledged(story, 4)
    story.read(READ_UNCOMMITTED, (1, records[1]), (2, records[2]), start=1)
    story.store(*records)
    assert anomalies(story.end()) == []


def test_a_reader_that_got_what_is_not_there_in_the_end_is_found() -> None:
    story = Story(Promise.UNLESS_LEADER_DIES, ordered=False)
    story.history.leader_died = True
    lost, kept = acknowledged(story, 2)
    story.read(READ_UNCOMMITTED, (0, lost))
    story.store(kept)
    assert anomalies(story.end()) == ["inconsistent-offsets"]


def test_a_reader_that_gives_up_and_one_that_sees_less_than_the_broker_has_are_found() -> None:
    story = Story()
    records = acknowledged(story, 2)
    story.read(READ_UNCOMMITTED).failure = "RequestTimedOutError"
    story.history.stored[P0] = [(0, 0), (1, 1), (2, 5)]
    story.store(*records)
    assert anomalies(story.end()) == ["reader-failed", "unseen"]


# -- time and what is left -------------------------------------------------------------------------


def test_a_delivery_without_an_outcome_and_a_late_one_are_found() -> None:
    story = Story()
    late, hanging = story.send(), story.send()
    story.now += 11
    story.acknowledge(late, 0)
    story.store(late)
    assert sorted(anomalies(story.end())) == ["hang", "late"]
    assert hanging.resolved is None


def test_time_in_which_the_process_stood_still_does_not_count() -> None:
    story = Story()
    record = story.send()
    story.history.suspensions.append((2.0, 5.0))
    story.now += 14
    story.acknowledge(record, 0)
    story.store(record)
    assert anomalies(story.end()) == []


def test_a_send_that_hangs_or_takes_too_long_is_found() -> None:
    story = Story()
    story.call_send()
    late = story.call_send()
    story.now += 2
    story.history.refused(late, "BufferExhaustedError")
    assert anomalies(story.end()) == ["hang", "late"]


def test_calls_that_hang_are_late_or_fail_where_they_must_not_are_found() -> None:
    story = Story()
    story.call(took=5.0)
    story.call(took=0.1, outcome="KafkaError", must_succeed=True)
    story.call(took=0.1, outcome="KafkaError")
    story.call(took=None)
    assert anomalies(story.end()) == ["late", "not-live", "hang"]


def test_leftovers_are_found() -> None:
    story = Story()
    story.history.producers["p"].leftovers.append("17 bytes")
    story.history.producers["p"].fatal = "FatalProducerError"
    story.history.leftovers.append("a task")
    story.history.unexpected_log.append("a fault")
    assert anomalies(story.end()) == ["leak", "fatal-without-cause", "leak", "fault"]


def test_a_second_outcome_of_a_record_is_found() -> None:
    story = Story()
    record = story.send()
    story.acknowledge(record, 0)
    story.acknowledge(record, 0)
    story.store(record)
    assert anomalies(story.end()) == ["leak"]


def test_a_finding_names_the_lines_that_show_it() -> None:
    story = Story()
    _, other = acknowledged(story, 2)
    story.store(other, first_offset=1)
    history = story.end()
    (finding,) = check(history)
    shown = [line.text for line in history.about(finding.subjects)]
    assert shown == [
        "p sends record 0 to t-0",
        "record 0 is taken",
        "record 0 is acknowledged at t-0@0",
    ]

"""The checkers report each anomaly of a history under its name, and nothing that is allowed."""

from __future__ import annotations

import pytest

from tests.simulation.checkers import check
from tests.simulation.history import (
    CANCELLED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Guarantee,
    History,
    SentRecord,
    TransactionOutcome,
)
from tests.simulation.history_builder import P0, P1, HistoryBuilder


def anomalies(history: History) -> list[str]:
    return [finding.anomaly for finding in check(history)]


def acknowledged(builder: HistoryBuilder, count: int) -> list[SentRecord]:
    records = [builder.send() for _ in range(count)]
    for offset, record in enumerate(records):
        builder.acknowledge(record, offset)
    return records


def test_a_correct_history_has_no_findings() -> None:
    builder = HistoryBuilder()
    records = acknowledged(builder, 3)
    builder.read(READ_UNCOMMITTED, *enumerate(records))
    builder.call(took=0.5)
    builder.store(*records)
    assert anomalies(builder.end()) == []


# -- records ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.UNLESS_LEADER_FAILS]
)
def test_a_missing_acknowledged_record_is_a_lost_write(guarantee: Guarantee) -> None:
    builder = HistoryBuilder(guarantee)
    first, _ = acknowledged(builder, 2)
    builder.store(first)
    assert anomalies(builder.end()) == ["lost-write"]


def test_without_acknowledgements_nothing_is_lost() -> None:
    builder = HistoryBuilder(Guarantee.NOTHING, ordered=False)
    builder.acknowledge(builder.send(), -1)
    assert anomalies(builder.end()) == []


def test_acks_1_allows_loss_only_if_the_leader_fails() -> None:
    builder = HistoryBuilder(Guarantee.UNLESS_LEADER_FAILS, ordered=False)
    acknowledged(builder, 1)
    builder.history.leader_failed = True
    assert anomalies(builder.end()) == []


def test_a_record_at_another_offset_is_found() -> None:
    builder = HistoryBuilder()
    first, second = acknowledged(builder, 2)
    builder.store(first, second, first_offset=1)
    assert anomalies(builder.end()) == ["inconsistent-offsets", "inconsistent-offsets"]


def test_an_acknowledgement_without_an_offset_names_the_partition() -> None:
    for place, found in ((P0, []), (P1, ["inconsistent-offsets"])):
        builder = HistoryBuilder()
        record = builder.send(partition=None)
        builder.acknowledge(record, -1)
        builder.store(record, place=place)
        assert anomalies(builder.end()) == found


def test_a_failed_record_may_be_stored_or_not() -> None:
    builder = HistoryBuilder()
    lost, kept, cancelled = builder.send(), builder.send(), builder.call_send()
    builder.fail(lost)
    builder.fail(kept)
    builder.history.refused(cancelled, CANCELLED)
    builder.store(kept, cancelled)
    assert anomalies(builder.end()) == []


def test_a_refused_record_must_not_be_stored() -> None:
    builder = HistoryBuilder()
    too_large, refused = builder.send(), builder.call_send()
    builder.fail(too_large, never_left=True)
    builder.history.refused(refused, "BufferExhaustedError")
    builder.store(too_large, refused)
    assert anomalies(builder.end()) == ["aborted-read", "aborted-read"]


def test_only_idempotence_forbids_duplicates_of_failed_records() -> None:
    for guarantee, found in (
        (Guarantee.EXACTLY_ONCE, ["duplicate"]),
        (Guarantee.AT_LEAST_ONCE, []),
    ):
        builder = HistoryBuilder(guarantee)
        record = builder.send()
        builder.fail(record)
        builder.store(record, record)
        assert anomalies(builder.end()) == found


def test_each_partition_keeps_the_order_of_the_calls() -> None:
    builder = HistoryBuilder()
    first, second = builder.send(), builder.send()
    builder.acknowledge(first, 1)
    builder.acknowledge(second, 0)
    builder.store(second, first)
    assert anomalies(builder.end()) == ["nonmonotonic-send"]


def test_failed_records_keep_the_order_only_with_idempotence() -> None:
    for guarantee, found in (
        (Guarantee.EXACTLY_ONCE, ["nonmonotonic-send"]),
        (Guarantee.AT_LEAST_ONCE, []),
    ):
        builder = HistoryBuilder(guarantee)
        first, second = builder.send(), builder.send()
        builder.fail(first)
        builder.acknowledge(second, 0)
        builder.store(second, first)
        assert anomalies(builder.end()) == found


@pytest.mark.parametrize("overtaken", [False, True])
def test_calls_of_several_tasks_are_ordered_by_their_start(overtaken: bool) -> None:
    builder = HistoryBuilder()
    first, second = builder.call_send(), builder.call_send()
    stored = (second, first) if overtaken else (first, second)
    for record in (second, first):
        builder.history.accepted(record)
        builder.acknowledge(record, stored.index(record))
    builder.store(*stored)
    assert anomalies(builder.end()) == (["nonmonotonic-send"] if overtaken else [])


def test_unknown_and_misplaced_records_are_found() -> None:
    builder = HistoryBuilder()
    record = builder.send(partition=1)
    builder.acknowledge(record, 1)
    builder.store(None, record)
    assert anomalies(builder.end()) == ["invented", "misplaced"]


def test_a_key_has_one_partition() -> None:
    builder = HistoryBuilder()
    for place in (P0, P1):
        record = builder.send(partition=None, key=b"k")
        builder.acknowledge(record, 0, place)
        builder.store(record, place=place)
    assert anomalies(builder.end()) == ["misplaced"]


# -- transactions ----------------------------------------------------------------------------------


def transaction(
    outcome: TransactionOutcome, *, asked: bool = True
) -> tuple[HistoryBuilder, list[SentRecord]]:
    """One transaction of two records, both acknowledged and stored."""
    builder = HistoryBuilder(transactional_id="id")
    trace = builder.history.begin("p", 1)
    records = [builder.send(transaction=trace) for _ in range(2)]
    for offset, record in enumerate(records):
        builder.acknowledge(record, offset)
    if asked:
        builder.history.commit_called(trace)
    if outcome is not TransactionOutcome.OPEN:
        builder.history.end(trace, outcome)
    builder.store(*records)
    return builder, records


@pytest.mark.parametrize("visible", [0, 1, 2])
@pytest.mark.parametrize(
    ("outcome", "asked", "found"),
    [
        (
            TransactionOutcome.COMMITTED,
            True,
            {0: "torn-transaction", 1: "torn-transaction", 2: None},
        ),
        (TransactionOutcome.ABORTED, True, {0: None, 1: "aborted-read", 2: "aborted-read"}),
        (TransactionOutcome.UNKNOWN, True, {0: None, 1: "torn-transaction", 2: None}),
        (TransactionOutcome.OPEN, False, {0: None, 1: "aborted-read", 2: "aborted-read"}),
    ],
)
def test_a_transaction_is_visible_completely_or_not_at_all(
    outcome: TransactionOutcome, asked: bool, found: dict[int, str | None], visible: int
) -> None:
    builder, records = transaction(outcome, asked=asked)
    expected = found[visible]
    assert anomalies(builder.end(invisible=tuple(records[visible:]))) == (
        [] if expected is None else [expected]
    )


def test_a_commit_over_a_failed_record_is_torn() -> None:
    builder = HistoryBuilder(transactional_id="id")
    trace = builder.history.begin("p", 1)
    record = builder.send(transaction=trace)
    builder.fail(record)
    builder.history.commit_called(trace)
    builder.history.end(trace, TransactionOutcome.COMMITTED)
    assert anomalies(builder.end()) == ["torn-transaction"]


def test_reading_before_the_commit_is_found() -> None:
    builder = HistoryBuilder(transactional_id="id")
    trace = builder.history.begin("p", 1)
    record = builder.send(transaction=trace)
    builder.acknowledge(record, 0)
    builder.read(READ_COMMITTED, (0, record))
    builder.history.commit_called(trace)
    builder.history.end(trace, TransactionOutcome.COMMITTED)
    builder.store(record)
    assert anomalies(builder.end()) == ["precommitted-read"]


def test_reading_a_record_of_an_aborted_transaction_is_found() -> None:
    builder, records = transaction(TransactionOutcome.ABORTED)
    builder.read(READ_COMMITTED, (0, records[0]))
    assert set(anomalies(builder.end(invisible=tuple(records)))) == {
        "aborted-read",
        "inconsistent-offsets",
    }


@pytest.mark.parametrize(
    ("outcome", "position", "found"),
    [
        (TransactionOutcome.COMMITTED, 7, []),
        (TransactionOutcome.COMMITTED, None, ["torn-offsets"]),
        (TransactionOutcome.ABORTED, 7, ["torn-offsets"]),
        (TransactionOutcome.ABORTED, None, []),
    ],
)
def test_group_offsets_are_committed_only_with_their_transaction(
    outcome: TransactionOutcome, position: int | None, found: list[str]
) -> None:
    builder, records = transaction(outcome)
    builder.history.transactions[0].group_offset = 7
    if position is not None:
        builder.history.group_offsets["id"] = position
    assert (
        anomalies(
            builder.end(invisible=() if outcome is TransactionOutcome.COMMITTED else tuple(records))
        )
        == found
    )


def test_visible_records_show_an_unknown_outcome() -> None:
    for invisible, position, found in (
        (True, None, []),
        (True, 7, ["torn-offsets"]),
        (False, 7, []),
        (False, None, ["torn-offsets"]),
    ):
        builder, records = transaction(TransactionOutcome.UNKNOWN)
        builder.history.transactions[0].group_offset = 7
        if position is not None:
            builder.history.group_offsets["id"] = position
        assert anomalies(builder.end(invisible=tuple(records) if invisible else ())) == found


# -- readers ---------------------------------------------------------------------------------------


def test_a_reader_that_moves_back_is_found() -> None:
    builder = HistoryBuilder()
    records = acknowledged(builder, 2)
    builder.read(READ_UNCOMMITTED, (1, records[1]), (0, records[0]))
    builder.store(*records)
    assert anomalies(builder.end()) == ["nonmonotonic-poll"]


def test_a_reader_that_skips_a_record_is_found() -> None:
    builder = HistoryBuilder()
    records = acknowledged(builder, 3)
    builder.read(READ_UNCOMMITTED, (0, records[0]), (2, records[2]))
    builder.store(*records)
    assert anomalies(builder.end()) == ["poll-skip"]


def test_a_reader_may_start_late_and_end_early() -> None:
    builder = HistoryBuilder()
    records = acknowledged(builder, 4)
    builder.read(READ_UNCOMMITTED, (1, records[1]), (2, records[2]), start=1)
    builder.store(*records)
    assert anomalies(builder.end()) == []


def test_a_record_that_was_read_and_is_gone_is_found() -> None:
    builder = HistoryBuilder(Guarantee.UNLESS_LEADER_FAILS, ordered=False)
    builder.history.leader_failed = True
    lost, kept = acknowledged(builder, 2)
    builder.read(READ_UNCOMMITTED, (0, lost))
    builder.store(kept)
    assert anomalies(builder.end()) == ["inconsistent-offsets"]


def test_failed_and_incomplete_readers_are_found() -> None:
    builder = HistoryBuilder()
    records = acknowledged(builder, 2)
    builder.read(READ_UNCOMMITTED).failure = "RequestTimedOutError"
    builder.history.stored[P0] = [(0, 0), (1, 1), (2, 5)]
    builder.store(*records)
    assert anomalies(builder.end()) == ["reader-failed", "unseen"]


# -- limits and leftovers --------------------------------------------------------------------------


def test_unresolved_and_late_deliveries_are_found() -> None:
    builder = HistoryBuilder()
    late, hanging = builder.send(), builder.send()
    builder.now += 11
    builder.acknowledge(late, 0)
    builder.store(late)
    assert sorted(anomalies(builder.end())) == ["hang", "late"]
    assert hanging.resolved is None


def test_suspensions_do_not_count() -> None:
    builder = HistoryBuilder()
    record = builder.send()
    builder.history.suspensions.append((2.0, 5.0))
    builder.now += 14
    builder.acknowledge(record, 0)
    builder.store(record)
    assert anomalies(builder.end()) == []


def test_hanging_and_slow_sends_are_found() -> None:
    builder = HistoryBuilder()
    builder.call_send()
    late = builder.call_send()
    builder.now += 2
    builder.history.refused(late, "BufferExhaustedError")
    assert anomalies(builder.end()) == ["hang", "late"]


def test_hanging_late_and_failed_calls_are_found() -> None:
    builder = HistoryBuilder()
    builder.call(took=5.0)
    builder.call(took=0.1, outcome="KafkaError", must_succeed=True)
    builder.call(took=0.1, outcome="KafkaError")
    builder.call(took=None)
    assert anomalies(builder.end()) == ["late", "not-live", "hang"]


def test_leftovers_are_found() -> None:
    builder = HistoryBuilder()
    builder.history.producers["p"].leftovers.append("17 bytes")
    builder.history.producers["p"].fatal = "FatalProducerError"
    builder.history.leftovers.append("a task")
    builder.history.unexpected_log.append("a fault")
    assert anomalies(builder.end()) == ["leak", "fatal-without-cause", "leak", "fault"]


def test_a_record_that_is_resolved_twice_is_found() -> None:
    builder = HistoryBuilder()
    record = builder.send()
    builder.acknowledge(record, 0)
    builder.acknowledge(record, 0)
    builder.store(record)
    assert anomalies(builder.end()) == ["leak"]


def test_a_finding_names_the_lines_that_show_it() -> None:
    builder = HistoryBuilder()
    _, other = acknowledged(builder, 2)
    builder.store(other, first_offset=1)
    history = builder.end()
    (finding,) = check(history)
    shown = [line.text for line in history.about(finding.subjects)]
    assert shown == [
        "p sends record 0 to t-0",
        "record 0 is accepted",
        "record 0 is acknowledged at t-0@0",
    ]

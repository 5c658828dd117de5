"""Checks of a history: functions that return its anomalies, under the names that Jepsen uses.

A record that failed may be in the log or not, unless it certainly never left the client. The same
is true of a transaction with an unknown outcome: all of its records are visible, or none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from aioprod.types import TopicPartition
from tests.simulation.call_checks import check_call
from tests.simulation.history import (
    FLUSH,
    OK,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Finding,
    Guarantee,
    History,
    Reading,
    SentRecord,
    TransactionOutcome,
    TransactionTrace,
)

# Timers fire after their time, and the tasks that they wake run after that.
_SLACK_SECONDS = 0.02


class Log:
    """All partitions as read at the end of the run, at one isolation level."""

    def __init__(self, history: History, isolation: str) -> None:
        self.partitions: dict[TopicPartition, list[tuple[int, int | None]]] = {
            reading.partition: [(read.offset, read.number) for read in reading.reads]
            for reading in history.readings
            if reading.final and reading.isolation == isolation
        }
        self.at: dict[tuple[TopicPartition, int], int | None] = {}
        self.places: dict[int, list[tuple[TopicPartition, int]]] = defaultdict(list)
        for partition, entries in self.partitions.items():
            for offset, number in entries:
                self.at[partition, offset] = number
                if number is not None:
                    self.places[number].append((partition, offset))

    def keeps(self, number: int) -> bool:
        """Return whether the record is in any partition."""
        return number in self.places


def check(history: History) -> list[Finding]:
    """Return all anomalies of a history, the most severe first."""
    return [finding for checker in CHECKERS for finding in checker(history)]


# -- records ---------------------------------------------------------------------------------------


def check_acknowledged(history: History) -> Iterator[Finding]:
    """Check that each acknowledged record is at its acknowledged position."""
    log = Log(history, READ_UNCOMMITTED)
    for record in history.records:
        guarantee = history.producers[record.producer].guarantee
        if (
            record.position is None
            or guarantee is Guarantee.NOTHING
            or (guarantee is Guarantee.UNLESS_LEADER_FAILS and history.leader_failed)
        ):
            continue
        places = log.places.get(record.number, [])
        if not places:
            yield _finding("lost-write", record, "was acknowledged and is in no partition")
        elif record.position.offset >= 0 and tuple(record.position) not in places:
            yield _finding(
                "inconsistent-offsets",
                record,
                f"was acknowledged at {_at(*record.position)} and is at {_listed(places)}",
            )
        elif all(partition != record.position.partition for partition, _ in places):
            yield _finding(
                "inconsistent-offsets",
                record,
                f"was acknowledged in {record.position.partition} and is at {_listed(places)}",
            )


def check_duplicates(history: History) -> Iterator[Finding]:
    """Check that an idempotent producer stores no record twice, acknowledged or not."""
    log = Log(history, READ_UNCOMMITTED)
    for record in history.records:
        places = log.places.get(record.number, [])
        if (
            len(places) > 1
            and history.producers[record.producer].guarantee is Guarantee.EXACTLY_ONCE
        ):
            yield _finding(
                "duplicate", record, f"is stored {len(places)} times, at {_listed(places)}"
            )


def check_order(history: History) -> Iterator[Finding]:
    """Check that each partition has a producer's records in the order of the calls of `send`,
    for any number of tasks. Duplicates are ignored.
    """
    for partition, entries in Log(history, READ_UNCOMMITTED).partitions.items():
        latest: dict[str, SentRecord] = {}
        seen: set[int] = set()
        for _, number in entries:
            if number is None or number in seen:
                continue
            seen.add(number)
            record = history.records[number]
            if not _is_ordered(history, record):
                continue
            before = latest.get(record.producer)
            if before is not None and record.called.order < before.called.order:
                text = (
                    f"was sent before record {before.number} and is after it in "
                    f"{partition.topic}-{partition.partition}"
                )
                yield Finding(
                    "nonmonotonic-send",
                    f"record {record.number} {text}",
                    (f"record {record.number}", f"record {before.number}"),
                )
            else:
                latest[record.producer] = record


def _is_ordered(history: History, record: SentRecord) -> bool:
    producer = history.producers[record.producer]
    # Without idempotence a late copy of a failed record may be stored at any time.
    return producer.ordered and (
        producer.guarantee is Guarantee.EXACTLY_ONCE or record.acknowledged
    )


def check_contents(history: History) -> Iterator[Finding]:
    """Check that each stored record was sent, was not refused, and is in the right partition; each
    key has one partition.
    """
    homes: dict[tuple[str, bytes], SentRecord] = {}
    log = Log(history, READ_UNCOMMITTED)
    for (partition, offset), number in log.at.items():
        if number is None:
            yield Finding(
                "invented",
                f"no producer sent the record at {_at(partition, offset)}",
                ("an unknown record",),
            )
            continue
        record = history.records[number]
        if record.forbidden:
            yield _finding(
                "aborted-read",
                record,
                (
                    f"was refused ({record.refusal or record.error}) and is at "
                    f"{_at(partition, offset)}"
                ),
            )
        if partition.topic != record.topic or record.partition not in (None, partition.partition):
            yield _finding("misplaced", record, f"is at {_at(partition, offset)}")
        if record.content.key is not None and record.partition is None:
            home = homes.setdefault((record.topic, record.content.key), record)
            if log.places[home.number][0][0] != partition:
                yield _finding(
                    "misplaced",
                    record,
                    (
                        f"has the key of record {home.number} and is in another partition, at "
                        f"{_at(partition, offset)}"
                    ),
                )


# -- transactions ----------------------------------------------------------------------------------


def check_transactions(history: History) -> Iterator[Finding]:
    """Check that all records of a transaction are visible or none, as its outcome says."""
    committed = Log(history, READ_COMMITTED)
    records = _by_transaction(history)
    for trace in history.transactions:
        own = records.get((trace.producer, trace.number), [])
        visible = [record for record in own if committed.keeps(record.number)]
        acknowledged = [record for record in own if record.acknowledged]
        name = f"{trace.producer} transaction {trace.number}"
        subjects = (name, *(f"record {record.number}" for record in own))
        if visible and (trace.outcome is TransactionOutcome.ABORTED or trace.commit_called is None):
            yield Finding(
                "aborted-read",
                f"{name} was {_reported_outcome(trace)}, and {_numbers(visible)} of it are visible",
                subjects,
            )
        elif trace.outcome is TransactionOutcome.COMMITTED:
            lost = [
                record for record in own if record.accepted and not committed.keeps(record.number)
            ]
            if lost:
                yield Finding(
                    "torn-transaction",
                    f"{name} was committed, and {_numbers(lost)} of it are not visible",
                    subjects,
                )
        elif visible and len(acknowledged) > sum(record.acknowledged for record in visible):
            hidden = [record for record in acknowledged if not committed.keeps(record.number)]
            yield Finding(
                "torn-transaction",
                f"{name}: {_numbers(visible)} are visible, {_numbers(hidden)} are not",
                subjects,
            )


def check_reads_of_transactions(history: History) -> Iterator[Finding]:
    """Check that readers of committed records receive no record before its commit was called, and
    none of an aborted transaction.
    """
    traces = {(trace.producer, trace.number): trace for trace in history.transactions}
    for reading in history.readings:
        if reading.isolation != READ_COMMITTED or reading.final:
            continue
        for read in reading.reads:
            record = history.records[read.number] if read.number is not None else None
            if record is None or record.transaction is None:
                continue
            trace = traces[record.producer, record.transaction]
            if trace.outcome is TransactionOutcome.ABORTED:
                yield _finding(
                    "aborted-read", record, f"of an aborted transaction was read by {reading.name}"
                )
            elif trace.commit_called is None or read.moment.order < trace.commit_called.order:
                yield _finding(
                    "precommitted-read",
                    record,
                    f"was read by {reading.name} before its commit was called",
                )


def check_group_offsets(history: History) -> Iterator[Finding]:
    """Check that the offsets of a consumer group are those of its committed transactions."""
    committed = Log(history, READ_COMMITTED)
    records = _by_transaction(history)
    allowed: dict[str, list[int | None]] = defaultdict(lambda: [None])
    for trace in history.transactions:
        transactional_id = history.producers[trace.producer].transactional_id
        if trace.group_offset is None or transactional_id is None:
            continue
        outcome = _outcome(trace, records.get((trace.producer, trace.number), []), committed)
        offsets = allowed[transactional_id]
        if outcome is TransactionOutcome.COMMITTED:
            offsets.clear()
        if outcome is not TransactionOutcome.ABORTED:
            offsets.append(trace.group_offset)
    for transactional_id, offsets in allowed.items():
        found = history.group_offsets.get(transactional_id)
        if found not in offsets:
            text = (
                f"{transactional_id} has committed one of {offsets} for its group, and the "
                f"broker has {found}"
            )
            owners = tuple(
                name
                for name, known in history.producers.items()
                if known.transactional_id == transactional_id
            )
            yield Finding("torn-offsets", text, owners)


def _outcome(
    trace: TransactionTrace, records: list[SentRecord], committed: Log
) -> TransactionOutcome:
    """Return the outcome; if the producer does not know it, what its visible records show."""
    if trace.outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED):
        return trace.outcome
    if trace.commit_called is None:
        return TransactionOutcome.ABORTED
    acknowledged = [record for record in records if record.acknowledged]
    if not acknowledged:
        return TransactionOutcome.UNKNOWN
    return (
        TransactionOutcome.COMMITTED
        if committed.keeps(acknowledged[0].number)
        else TransactionOutcome.ABORTED
    )


def _by_transaction(history: History) -> dict[tuple[str, int], list[SentRecord]]:
    found: dict[tuple[str, int], list[SentRecord]] = defaultdict(list)
    for record in history.records:
        if record.transaction is not None:
            found[record.producer, record.transaction].append(record)
    return found


def _reported_outcome(trace: TransactionTrace) -> str:
    return "aborted" if trace.outcome is TransactionOutcome.ABORTED else "never to be committed"


# -- readers ---------------------------------------------------------------------------------------


def check_readers(history: History) -> Iterator[Finding]:
    """Check that readers receive each visible record once and in order, that all readers see the
    same log, and that none fails.
    """
    logs = {isolation: Log(history, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)}
    for reading in history.readings:
        if reading.failure is not None:
            yield Finding("reader-failed", f"{reading.name}: {reading.failure}", (reading.name,))
        yield from _check_one_reader(
            reading, logs[reading.isolation].partitions.get(reading.partition, [])
        )
    for partition, stored in history.stored.items():
        final = logs[READ_UNCOMMITTED].partitions.get(partition, [])
        if final != stored:
            differing = sorted(set(final) ^ set(stored), key=str)[:5]
            yield Finding(
                "unseen",
                f"the broker stores other records in {partition} than readers receive: {differing}",
            )


def _check_one_reader(reading: Reading, final: list[tuple[int, int | None]]) -> Iterator[Finding]:
    offsets = [read.offset for read in reading.reads]
    back = next((second for first, second in pairwise(offsets) if second <= first), None)
    if back is not None:
        yield Finding(
            "nonmonotonic-poll",
            f"{reading.name} receives offset {back} of {reading.partition} after a higher one",
            (reading.name,),
        )
        return
    if not offsets or reading.final:
        return
    got = {read.offset: read.number for read in reading.reads}
    expected = dict(
        final[
            bisect_left(final, reading.start, key=_offset_of) : bisect_right(
                final, offsets[-1], key=_offset_of
            )
        ]
    )
    for offset, number in got.items():
        if offset not in expected or expected[offset] != number:
            text = (
                f"{reading.name} received record {number} at {_at(reading.partition, offset)}; "
                f"the log has {expected.get(offset)}"
            )
            yield Finding("inconsistent-offsets", text, (f"record {number}",))
    for offset in [offset for offset in expected if offset not in got][:3]:
        text = (
            f"{reading.name} skipped record {expected[offset]} at {_at(reading.partition, offset)}"
        )
        yield Finding("poll-skip", text, (reading.name, f"record {expected[offset]}"))


def _offset_of(entry: tuple[int, int | None]) -> int:
    return entry[0]


# -- limits and leftovers --------------------------------------------------------------------------


def check_limits(history: History) -> Iterator[Finding]:
    """Check that each delivery and each call ends within its limit."""
    for record in history.records:
        producer = history.producers[record.producer]
        if record.returned is None:
            yield _finding("hang", record, "was passed to send, which did not return")
            continue
        took = history.duration(record.called, record.returned)
        yield from _check_duration(
            record, "was accepted or refused", took, record.waits * producer.send_limit
        )
        if record.accepted and record.resolved is None:
            yield _finding(
                "hang", record, f"was never resolved; the limit is {producer.delivery_limit} s"
            )
        elif record.resolved is not None:
            took = history.duration(record.returned, record.resolved)
            yield from _check_duration(record, "was resolved", took, producer.delivery_limit)
    for call in history.calls:
        yield from check_call(history, call, _SLACK_SECONDS, "not-live")


def check_flushes(history: History) -> Iterator[Finding]:
    """Check that a flush waits for all records that were accepted before it was called."""
    flushes = [call for call in history.calls if call.name == FLUSH and call.outcome == OK]
    for record in history.records if flushes else ():
        for call in flushes:
            if (
                call.ended is None
                or call.owner != record.producer
                or not record.accepted
                or record.returned is None
            ):
                continue
            if record.returned.order < call.begun.order and (
                record.resolved is None or record.resolved.order > call.ended.order
            ):
                yield _finding(
                    "flushed-too-early",
                    record,
                    f"was accepted before the flush of {call.begun.order}, which did not wait",
                )


def _check_duration(record: SentRecord, what: str, took: float, limit: float) -> Iterator[Finding]:
    if took > limit + _SLACK_SECONDS:
        yield _finding("late", record, f"{what} after {took:.3f} s; the limit is {limit} s")


def check_leftovers(history: History) -> Iterator[Finding]:
    """Check that no tasks, connections or memory are left, that the log reports no bug, and that no
    producer failed without a cause.
    """
    for producer in history.producers.values():
        for leftover in producer.leftovers:
            yield Finding("leak", f"{producer.name}: {leftover}", (producer.name,))
        if producer.fatal is not None and not producer.may_be_fatal:
            yield Finding(
                "fatal-without-cause", f"{producer.name}: {producer.fatal}", (producer.name,)
            )
    yield from (Finding("leak", leftover) for leftover in history.leftovers)
    yield from (Finding("fault", line) for line in history.unexpected_log)


# -- text ------------------------------------------------------------------------------------------


def _finding(anomaly: str, record: SentRecord, text: str) -> Finding:
    subjects = (f"record {record.number}", f"{record.producer} transaction {record.transaction}")
    return Finding(anomaly, f"record {record.number} of {record.producer} {text}", subjects)


def _at(partition: TopicPartition, offset: int) -> str:
    return f"{partition.topic}-{partition.partition}@{offset}"


def _listed(places: Iterable[tuple[TopicPartition, int]]) -> str:
    return ", ".join(_at(*place) for place in places)


def _numbers(records: list[SentRecord]) -> str:
    shown = ", ".join(str(record.number) for record in records[:5])
    return f"records {shown}" + (f" and {len(records) - 5} more" if len(records) > 5 else "")


CHECKERS: tuple[Callable[[History], Iterator[Finding]], ...] = (
    check_acknowledged,
    check_duplicates,
    check_order,
    check_contents,
    check_transactions,
    check_reads_of_transactions,
    check_group_offsets,
    check_readers,
    check_limits,
    check_flushes,
    check_leftovers,
)

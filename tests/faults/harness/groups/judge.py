"""Judge a group by what was written and by the ledgers of its members. Functions over these, so
that tests can plant faults.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from tests.faults.harness.groups.ledger import Ledger, Ownership
from tests.faults.harness.timeline import Timeline


class Written(NamedTuple):
    """An acknowledged record."""

    at: float
    partition: int
    number: int


class Idle(NamedTuple):
    """A member owned a partition for ``seconds``, and a record of it waited for that time."""

    seconds: float
    member: str
    partition: int
    since: float


@dataclass
class Verdict:
    """The result of a group.

    Attributes:
        written: the number of records that had to be processed.
        lost: records that no member processed, although later ones of their partition were.
        stuck: records that no member processed, at the end of their partition.
        duplicates: how often records were processed again.
        idle: the longest time in which a member owned a partition with records and processed none.
        errors: errors that clients raised or reported, by member.
    """

    written: int
    lost: list[Written]
    stuck: list[Written]
    duplicates: int
    idle: Idle | None
    errors: list[str]

    @property
    def idle_seconds(self) -> float:
        """The time of ``idle``; 0 if there was none."""
        return self.idle.seconds if self.idle else 0.0

    def findings(self, most_idle_seconds: float) -> list[str]:
        """Return what must not be, one line each."""
        found = [f"{record} is lost" for record in self.lost]
        found += [f"{record} is not processed at the end" for record in self.stuck]
        if self.idle is not None and self.idle.seconds > most_idle_seconds:
            found.append(f"{self.idle}: longer than {most_idle_seconds:g} s")
        return found


def judge(
    written: Sequence[Written],
    ledgers: Sequence[Ledger],
    excused: Sequence[tuple[float, float]] = (),
) -> Verdict:
    """Judge a group after it had time to process everything.

    Args:
        excused: times in which members can't read, such as while their network is cut.
    """
    first = first_processed(ledgers)
    processed = sum(len(ledger.processed) for ledger in ledgers)
    last: dict[int, int] = {}
    for partition, number in first:
        last[partition] = max(last.get(partition, -1), number)
    missing = [record for record in written if (record.partition, record.number) not in first]
    return Verdict(
        len(written),
        [record for record in missing if record.number < last.get(record.partition, -1)],
        [record for record in missing if record.number >= last.get(record.partition, -1)],
        processed - len(first),
        _longest_idle(written, ledgers, first, excused),
        [f"{ledger.member}: {error}" for ledger in ledgers for error in ledger.errors],
    )


def first_processed(ledgers: Iterable[Ledger]) -> dict[tuple[int, int], float]:
    """Return when each record, by partition and number, was processed first."""
    first: dict[tuple[int, int], float] = {}
    for ledger in ledgers:
        for at, partition, number in ledger.processed:
            place = (partition, number)
            first[place] = min(at, first.get(place, at))
    return first


def timeline(ledgers: Iterable[Ledger]) -> Timeline:
    """Return when records were processed for the first time, by partition."""
    found = Timeline()
    for (partition, _), at in first_processed(ledgers).items():
        found.acknowledged[partition].append(at)
    for moments in found.acknowledged.values():
        moments.sort()
    return found


def acknowledgements(written: Iterable[Written]) -> Timeline:
    """Return when records were acknowledged, by partition."""
    found = Timeline()
    for at, partition, _ in sorted(written):
        found.acknowledged[partition].append(at)
    return found


def _longest_idle(
    written: Sequence[Written],
    ledgers: Sequence[Ledger],
    first: dict[tuple[int, int], float],
    excused: Sequence[tuple[float, float]],
) -> Idle | None:
    waits: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for record in written:
        end = first.get((record.partition, record.number), float("inf"))
        waits[record.partition].append((record.at, end))
    merged = {partition: merge(spans) for partition, spans in waits.items()}
    longest: Idle | None = None
    for ledger in ledgers:
        present = [
            piece
            for owned in ledger.owned
            for piece in _without(owned, ledger, [*ledger.away, *excused])
        ]
        for partition, start, end in present:
            progress = [at for at, read, _ in ledger.processed if read == partition]
            for since, seconds in _silences(start, end, merged.get(partition, []), progress):
                if longest is None or seconds > longest.seconds:
                    longest = Idle(seconds, ledger.member, partition, since)
    return longest


def merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join spans that overlap."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _without(
    owned: Ownership, ledger: Ledger, absences: Sequence[tuple[float, float]]
) -> list[Ownership]:
    """Return the pieces of an ownership outside of the absences, while the process lived."""
    pieces, start, end = [], owned.start, min(owned.end, ledger.ended_at)
    for left, back in merge(absences):
        if left < end and back > start:
            pieces.append((start, left))
            start = back
    pieces.append((start, end))
    return [Ownership(owned.partition, begin, until) for begin, until in pieces if until > begin]


def _silences(
    start: float, end: float, waits: Sequence[tuple[float, float]], progress: Sequence[float]
) -> Iterable[tuple[float, float]]:
    """Yield beginning and length of the times in which a record waited and the owner processed
    none.
    """
    moments = sorted(at for at in progress if start <= at <= end)
    for wait_start, wait_end in waits:
        since, until = max(start, wait_start), min(end, wait_end)
        if until <= since:
            continue
        edges = [since, *(at for at in moments if since < at < until), until]
        for earlier, later in pairwise(edges):
            yield earlier, later - earlier

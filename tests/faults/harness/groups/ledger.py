"""The ledger of a member: what it owned and which records it processed, written by the member's
process and read by the judge.

A line has an event, the time (monotonic clock, the same for all processes) and what it is about,
separated by tabs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

RECORD, ASSIGNED, REVOKED, ERROR, CLOSED = "record", "assigned", "revoked", "error", "closed"


class LedgerWriter:
    """Writes lines so that they outlive the process as soon as a call returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def records(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Note records, by partition and value, as processed."""
        now = time.monotonic()
        self._write(
            "".join(
                f"{RECORD}\t{now:.6f}\t{partition} {int(value)}\n" for partition, value in records
            )
        )

    def partitions(self, event: str, partitions: Iterable[int]) -> None:
        """Note that partitions were assigned or revoked."""
        self.note(event, " ".join(map(str, partitions)))

    def note(self, event: str, text: str = "") -> None:
        """Note another event."""
        self._write(f"{event}\t{time.monotonic():.6f}\t{' '.join(text.split())}\n")

    def _write(self, lines: str) -> None:
        os.write(self._file, lines.encode())


class Processed(NamedTuple):
    """A record that a member has processed."""

    at: float
    partition: int
    number: int


class Ownership(NamedTuple):
    """The time in which a member owned a partition."""

    partition: int
    start: float
    end: float


@dataclass
class Ledger:
    """The events that a member noted.

    Attributes:
        ended_at: when its process ended.
        away: the times in which it was frozen or its handler busy, by beginning and end.
        closed_at: when it had closed its client.
    """

    member: str
    processed: list[Processed] = field(default_factory=list)
    owned: list[Ownership] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    ended_at: float = float("inf")
    away: list[tuple[float, float]] = field(default_factory=list)
    closed_at: float | None = None

    @classmethod
    def read(cls, member: str, path: Path, ended_at: float = float("inf")) -> Ledger:
        """Read a ledger; a line that was cut by the end of the process does not count."""
        ledger = cls(member, ended_at=ended_at)
        since: dict[int, float] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines(keepends=True):
            if not line.endswith("\n"):
                break
            event, time_text, rest = line.rstrip("\n").split("\t")
            at = float(time_text)
            numbers = [] if event in (ERROR, CLOSED) else list(map(int, rest.split()))
            match event:
                case "record":
                    ledger.processed.append(Processed(at, *numbers))
                case "assigned":
                    for partition in numbers:
                        since.setdefault(partition, at)
                case "revoked":
                    ledger._ended(since, numbers, at)
                case "error":
                    ledger.errors.append(f"{at:.3f} {rest}")
                case "closed":
                    ledger.closed_at = at
                    ledger._ended(since, list(since), at)
        ledger._ended(since, list(since), ended_at)
        return ledger

    def owned_at(self, now: float) -> list[int]:
        """Return the partitions that the member owned at a time."""
        return sorted(each.partition for each in self.owned if each.start <= now < each.end)

    def _ended(self, since: dict[int, float], partitions: Iterable[int], at: float) -> None:
        for partition in partitions:
            if (start := since.pop(partition, None)) is not None:
                self.owned.append(Ownership(partition, start, at))

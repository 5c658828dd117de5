"""Acknowledgements that wait to be sent, and how they are written in requests (KIP-932)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from aioprod.types import AcknowledgeType, TopicPartition

GAP = 0
"""The type of acquired offsets without a record: compacted ones, and control records."""

BatchT = TypeVar("BatchT")
PartitionKey = tuple[uuid.UUID, int]


class SharePartition(NamedTuple):
    """A partition of a share group: brokers know it by the id of its topic."""

    topic_id: uuid.UUID
    topic: str
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> PartitionKey:
        """The partition as responses name it."""
        return self.topic_id, self.partition


class OffsetRun(NamedTuple):
    """Consecutive offsets.

    Attributes:
        first, last: the offsets; both belong to it.
        types: one for all offsets, or one for each.
    """

    first: int
    last: int
    types: list[int]


class Skipped(NamedTuple):
    """Offsets that the application did not get.

    Attributes:
        locked_until: loop time at which their lock ends.
    """

    run: OffsetRun
    locked_until: float


def offset_runs(types: Mapping[int, int], others: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Return acknowledgements in ascending order, with those of neighboring records in one run.

    Args:
        types: the type by offset.
        others: further runs; they overlap neither each other nor ``types``.
    """
    if len(said := set(types.values())) == 1:  # as most often
        lowest, highest = min(types), max(types)
        if highest - lowest + 1 == len(types):
            return sorted([OffsetRun(lowest, highest, [*said]), *others])
    starts: list[int] = []
    of_runs: list[list[int]] = []
    following = -1
    for offset, kind in sorted(types.items()):
        if offset != following:
            starts.append(offset)
            of_runs.append([])
        of_runs[-1].append(kind)
        following = offset + 1
    of_records = [
        OffsetRun(first, first + len(kinds) - 1, kinds[:1] if len(set(kinds)) == 1 else kinds)
        for first, kinds in zip(starts, of_runs, strict=True)
    ]
    return sorted([*of_records, *others])


@dataclass(slots=True)
class PartitionAcknowledgements:
    """The acknowledgements of one partition.

    Attributes:
        since: loop time at which the first of them was given.
        types: the type by offset; the last one counts.
        locked_until: loop time at which the lock of each of these offsets ends.
        others: the offsets that the application did not get.
    """

    since: float
    types: dict[int, AcknowledgeType] = field(default_factory=dict)
    locked_until: dict[int, float] = field(default_factory=dict)
    others: list[Skipped] = field(default_factory=list)

    @property
    def records(self) -> int:
        """How many records they are of; gaps are none."""
        return len(self.types) + sum(
            run.last - run.first + 1 for run, _ in self.others if run.types != [GAP]
        )

    def batches(self, make: Callable[[int, int, list[int]], BatchT]) -> list[BatchT]:
        """Return the batches of a request."""
        return [make(*run) for run in offset_runs(self.types, (run for run, _ in self.others))]

    def renewals(self) -> list[int]:
        """Return the offsets of the records whose locks are to be renewed."""
        if AcknowledgeType.RENEW not in self.types.values():
            return []
        return [offset for offset, kind in self.types.items() if kind is AcknowledgeType.RENEW]

    def pop_late(self, now: float) -> PartitionAcknowledgements:
        """Remove those whose lock has ended, and return those of records."""
        late = PartitionAcknowledgements(self.since)
        if self.others:
            self.others = [each for each in self.others if each.locked_until > now]
        if min(self.locked_until.values(), default=now + 1) <= now:
            for offset in [offset for offset, end in self.locked_until.items() if end <= now]:
                late.locked_until[offset] = self.locked_until.pop(offset)
                late.types[offset] = self.types.pop(offset)
        return late

    def add_older(self, older: PartitionAcknowledgements) -> None:
        """Add acknowledgements that were given before these."""
        self.types = {**older.types, **self.types}
        self.locked_until = {**older.locked_until, **self.locked_until}
        self.others = older.others + self.others
        self.since = min(self.since, older.since)


class Acknowledgements:
    """The acknowledgements for one broker that are not sent yet."""

    def __init__(self) -> None:
        self._waiting: dict[SharePartition, PartitionAcknowledgements] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def renews(self) -> bool:
        """Whether a lock is to be renewed, which is a request of its own."""
        return any(
            AcknowledgeType.RENEW in waiting.types.values() for waiting in self._waiting.values()
        )

    def only_of(self, partitions: frozenset[SharePartition]) -> bool:
        """Return whether all are of these partitions."""
        return self._waiting.keys() <= partitions

    def add(
        self,
        partition: SharePartition,
        offsets: Iterable[int],
        kind: AcknowledgeType,
        now: float,
        locked_until: float,
    ) -> None:
        """Add the acknowledgement of records."""
        waiting = self._of(partition, now)
        types = dict.fromkeys(offsets, kind)
        waiting.types |= types
        waiting.locked_until |= dict.fromkeys(types, locked_until)

    def extend_lock(self, partition: SharePartition, offset: int, locked_until: float) -> None:
        """Note the new end of a lock, for what was said of the record since."""
        waiting = self._waiting.get(partition)
        if waiting is not None and offset in waiting.locked_until:
            waiting.locked_until[offset] = locked_until

    def add_runs(
        self,
        partition: SharePartition,
        runs: Sequence[tuple[int, int]],
        kind: int,
        now: float,
        locked_until: float,
    ) -> None:
        """Add runs of offsets that the application did not get; ``GAP`` is a type, too."""
        if runs:
            self._of(partition, now).others += [
                Skipped(OffsetRun(first, last, [kind]), locked_until) for first, last in runs
            ]

    def put_back(self, partition: SharePartition, sent: PartitionAcknowledgements) -> None:
        """Add those of a request that is to be repeated."""
        self._of(partition, sent.since).add_older(sent)

    def take(
        self, now: float
    ) -> tuple[
        dict[SharePartition, PartitionAcknowledgements],
        dict[SharePartition, PartitionAcknowledgements],
    ]:
        """Return those to send, and those whose lock has ended; forget all.

        A broker does not refuse each late acknowledgement: not if another member has accepted the
        record, and the group has gone on. If it refuses one, it refuses all of the partition.
        """
        taken, self._waiting = self._waiting, {}
        late = {partition: waiting.pop_late(now) for partition, waiting in taken.items()}
        return (
            {each: waiting for each, waiting in taken.items() if waiting.types or waiting.others},
            {each: waiting for each, waiting in late.items() if waiting.types},
        )

    def drop_renewals(self) -> None:
        """Forget renewals: the session ends."""
        for partition, waiting in list(self._waiting.items()):
            for offset in waiting.renewals():
                del waiting.types[offset], waiting.locked_until[offset]
            if not (waiting.types or waiting.others):
                del self._waiting[partition]

    def _of(self, partition: SharePartition, since: float) -> PartitionAcknowledgements:
        found = self._waiting.get(partition)
        if found is None:
            found = self._waiting[partition] = PartitionAcknowledgements(since)
        return found

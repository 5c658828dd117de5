"""Computes the assignment of the sticky assignors: equal shares with as few moves as possible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from aioprod.consumer.group.assignors.assignor import (
    MemberSubscription,
    all_partitions,
    java_order,
    member_order,
)
from aioprod.types import TopicPartition

Claims = Mapping[str, tuple[Collection[TopicPartition], int]]
"""By member id: the partitions that it had, and the generation in which they were assigned."""


def rightful_owners(claims: Claims) -> dict[TopicPartition, str]:
    """Return the member that had each partition last. The claim of the newest generation counts;
    two claims of the same generation are both ignored.
    """
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (partitions, generation) in claims.items():
        for partition in partitions:
            known = newest.get(partition)
            if known is None or generation > known[0]:
                newest[partition] = generation, member_id
            elif generation == known[0] and member_id != known[1]:
                newest[partition] = generation, None
    return {
        partition: member_id
        for partition, (_, member_id) in newest.items()
        if member_id is not None
    }


class Balancing:
    """An assignment in progress.

    Topics with the same readers form one group; the partitions of a group are interchangeable.
    """

    def __init__(self, members: Sequence[MemberSubscription]) -> None:
        ordered = sorted(members, key=member_order)
        self._rank = {member.member_id: rank for rank, member in enumerate(ordered)}
        self._ids = [member.member_id for member in ordered]
        self._count = [0] * len(ordered)
        readers: dict[str, list[int]] = defaultdict(list)
        for rank, member in enumerate(ordered):
            for topic in set(member.topics):
                readers[topic].append(rank)
        self._readers = {topic: tuple(ranks) for topic, ranks in readers.items()}
        self._groups_of: list[set[tuple[int, ...]]] = [set() for _ in ordered]
        for ranks in set(self._readers.values()):
            for rank in ranks:
                self._groups_of[rank].add(ranks)
        # For each group of topics a heap of its readers by their number of partitions. Outdated
        # entries are skipped.
        self._least = {
            ranks: [(0, rank) for rank in ranks] for ranks in set(self._readers.values())
        }
        for entries in self._least.values():
            heapify(entries)
        self._by_readers: list[dict[tuple[int, ...], list[TopicPartition]]] = [
            defaultdict(list) for _ in ordered
        ]

    @property
    def topics(self) -> Iterable[str]:
        """The topics that a member reads."""
        return self._readers

    def keep(self, partition: TopicPartition, member_id: str) -> bool:
        """Leave a partition with a member, if the member still reads its topic."""
        rank = self._rank.get(member_id, -1)
        readers = self._readers.get(partition.topic, ())
        if rank not in readers:
            return False
        self._give(partition, readers, rank)
        return True

    def distribute(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign each partition to the reader with the fewest; topics with few readers first."""
        for partition in sorted(
            partitions,
            key=lambda each: (
                len(self._readers[each.topic]),
                java_order(each.topic),
                each.partition,
            ),
        ):
            readers = self._readers[partition.topic]
            self._give(partition, readers, self._least_of(readers))

    def even_out(self) -> None:
        """Move partitions while a member has two more than another subscriber of their topic."""
        moved = True
        while moved:
            moved = False
            # Always from the member that has the most now, so that no member loses more than it
            # must.
            richest = [(-count, rank) for rank, count in enumerate(self._count)]
            heapify(richest)
            while richest:
                count, rank = heappop(richest)
                if -count == self._count[rank] and self._move_one(rank):
                    heappush(richest, (-self._count[rank], rank))
                    moved = True

    def _move_one(self, rank: int) -> bool:
        """Move one partition to the member with the fewest; return whether that evens out."""
        movable = [readers for readers, theirs in self._by_readers[rank].items() if theirs]
        poorest = min(
            ((self._count[self._least_of(readers)], readers) for readers in movable), default=None
        )
        if poorest is None or self._count[rank] <= poorest[0] + 1:
            return False
        readers = poorest[1]
        receiver = self._least_of(readers)
        self._take(rank)
        # The newest first: partitions that the member had before stay as long as possible.
        self._give(self._by_readers[rank][readers].pop(), readers, receiver)
        return True

    def result(self) -> dict[str, list[TopicPartition]]:
        """Return sorted partitions by member id."""
        return {
            member_id: sorted(
                partition for theirs in self._by_readers[rank].values() for partition in theirs
            )
            for rank, member_id in enumerate(self._ids)
        }

    def _give(self, partition: TopicPartition, readers: tuple[int, ...], rank: int) -> None:
        self._by_readers[rank][readers].append(partition)
        self._count[rank] += 1
        self._changed(rank)

    def _take(self, rank: int) -> None:
        self._count[rank] -= 1
        self._changed(rank)

    def _changed(self, rank: int) -> None:
        for readers in self._groups_of[rank]:
            heappush(self._least[readers], (self._count[rank], rank))

    def _least_of(self, readers: tuple[int, ...]) -> int:
        entries = self._least[readers]
        while self._count[entries[0][1]] != entries[0][0]:
            heappop(entries)
        return entries[0][1]


def balance(
    partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription], claims: Claims
) -> dict[str, list[TopicPartition]]:
    """Return partitions by member id. No member has two more than another subscriber of their
    topics; within this rule, members keep their partitions.
    """
    balancing = Balancing(members)
    owners = rightful_owners(claims)
    left = [
        partition
        for partition in all_partitions(partitions_per_topic, balancing.topics)
        if not (partition in owners and balancing.keep(partition, owners[partition]))
    ]
    balancing.distribute(left)
    balancing.even_out()
    return balancing.result()

"""The range assignor: every member gets a range of consecutive partitions of each topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aioprod.consumer.group.assignors.assignor import (
    MemberSubscription,
    StatelessAssignor,
    all_partitions,
    member_order,
)
from aioprod.types import TopicPartition


class RangeAssignor(StatelessAssignor):
    """Assigns topic by topic. Topics with the same number of partitions and the same readers are
    co-partitioned: a member gets the same partition numbers of each, so that joins work.

    Racks are ignored (KIP-881). Java's assignor uses them only if consumers and replicas both have
    racks.
    """

    name = "range"

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id."""
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        ordered = sorted(members, key=member_order)
        for topic in sorted({topic for member in members for topic in member.topics}):
            readers = [member.member_id for member in ordered if topic in member.topics]
            partitions = all_partitions(partitions_per_topic, [topic])
            share, larger_shares = divmod(len(partitions), len(readers))
            start = 0
            for index, reader in enumerate(readers):
                end = start + share + (index < larger_shares)
                assignment[reader] += partitions[start:end]
                start = end
        return assignment

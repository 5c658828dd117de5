"""The round robin assignor: assigns the sorted partitions of all topics to the members in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from aioprod.consumer.group.assignors.assignor import (
    MemberSubscription,
    StatelessAssignor,
    all_partitions,
    member_order,
)
from aioprod.types import TopicPartition


class RoundRobinAssignor(StatelessAssignor):
    """Equal shares if all members read the same topics; a member that does not read a partition's
    topic is skipped.
    """

    name = "roundrobin"

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return partitions by member id."""
        assignment: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        turns = cycle(sorted(members, key=member_order))
        for partition in all_partitions(
            partitions_per_topic, (topic for member in members for topic in member.topics)
        ):
            reader = next(member for member in turns if partition.topic in member.topics)
            assignment[reader.member_id].append(partition)
        return assignment

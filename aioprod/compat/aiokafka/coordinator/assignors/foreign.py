"""Adapts assignors that were written for aiokafka."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from aioprod import MemberSubscription, RebalanceProtocol, TopicPartition
from aioprod.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aioprod.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


def assignors(strategy: Iterable[Any]) -> list[Any]:
    """Convert aiokafka's ``partition_assignment_strategy`` to aioprod's."""
    return [
        ForeignAssignor(each) if issubclass(each, AbstractPartitionAssignor) else each.name
        for each in strategy
    ]


class Topics:
    """The partitions of topics: the part of aiokafka's ClusterMetadata that assignors use."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def topics(self) -> set[str]:
        """Return the names of the topics."""
        return set(self._counts)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions of a topic; None if it does not exist."""
        count = self._counts.get(topic)
        return None if count is None else set(range(count))


class ForeignAssignor:
    """Calls a subclass of AbstractPartitionAssignor for aioprod."""

    supported_protocols: Collection[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def __init__(self, foreign: type[AbstractPartitionAssignor]) -> None:
        self._foreign: Any = foreign
        self.name: str = str(self._foreign.name)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the user data that the member sends to the leader."""
        found: ConsumerProtocolMemberMetadata = self._foreign.metadata(set(topics))
        return found.user_data

    def assign(
        self, partitions_per_topic: Mapping[str, int], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the assigned partitions by member id."""
        metadata = {
            member.member_id: ConsumerProtocolMemberMetadata(
                0, list(member.topics), member.user_data or b""
            )
            for member in members
        }
        found: Mapping[str, ConsumerProtocolMemberAssignment]
        found = self._foreign.assign(Topics(partitions_per_topic), metadata)
        return {member_id: each.partitions() for member_id, each in found.items()}

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """Pass this member's partitions to the assignor."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(partitions):
            by_topic.setdefault(topic, []).append(number)
        self._foreign.on_assignment(
            ConsumerProtocolMemberAssignment(0, list(by_topic.items()), b"")
        )

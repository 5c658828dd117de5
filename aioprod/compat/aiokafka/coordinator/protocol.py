"""The data that assignors exchange, as in ``aiokafka.coordinator.protocol``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aioprod import TopicPartition


class ConsumerProtocolMemberMetadata(NamedTuple):
    """The subscription of a group member."""

    version: int
    subscription: Sequence[str]
    user_data: bytes


class ConsumerProtocolMemberAssignment(NamedTuple):
    """The assignment of a group member: partitions by topic."""

    version: int
    assignment: Sequence[tuple[str, Sequence[int]]]
    user_data: bytes

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions."""
        return [
            TopicPartition(topic, number)
            for topic, numbers in self.assignment
            for number in numbers
        ]

"""The base class of assignors, as in ``aiokafka.coordinator.assignors.abstract``."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any

from aioprod.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)


class AbstractPartitionAssignor(abc.ABC):
    """Assigns the partitions of topics to the members of a group."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the protocol; all members need an assignor with the same name."""

    @classmethod
    @abc.abstractmethod
    def assign(
        cls, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return the assignments by member id. ``cluster.partitions_for_topic`` returns a topic's
        partitions.
        """

    @classmethod
    @abc.abstractmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the subscription that the member sends to the leader."""

    @classmethod
    @abc.abstractmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Handle the assignment of this member."""

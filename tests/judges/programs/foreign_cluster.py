"""What the tests of our own client ask of a broker that others wrote."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

CoordinatorKind = Literal["group", "transaction"]


class ForeignCluster(ABC):
    """Three nodes with the ids 1, 2 and 3. Partition 0 of a topic is led by node 1, partition 1 by
    node 2, and so on.
    """

    checks_sequences = True
    """Whether it tells duplicates and gaps of idempotent producers."""
    ends_transactions = True
    """Whether an end has its effects: readers of committed records get nothing of an aborted
    transaction, and offsets of a committed one are kept.
    """

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """For a client's setting of that name."""

    @abstractmethod
    async def create_topic(self, name: str, partitions: int) -> None:
        """Make a topic."""

    @abstractmethod
    async def fail(self, api_key: int, code: int, times: int = 1) -> None:
        """Answer the next requests of an API with an error."""

    @abstractmethod
    async def cut(self, api_key: int, times: int = 1) -> None:
        """Close the connection instead of handling the next requests of an API."""

    @abstractmethod
    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Have another node lead a partition."""

    @abstractmethod
    async def move_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Have another node coordinate a group or a transactional id."""

    @abstractmethod
    async def stop_node(self, node: int) -> None:
        """Close a node's port and its connections."""

    @abstractmethod
    async def start_node(self, node: int) -> None:
        """Have a node that was stopped serve again."""

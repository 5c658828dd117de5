"""The interface of foreign brokers in the tests of our clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

CoordinatorKind = Literal["group", "transaction"]


class ForeignCluster(ABC):
    """A cluster with the nodes 1, 2 and 3. Node 1 leads partition 0 of each topic, node 2 leads
    partition 1, and so on.
    """

    checks_sequences = True
    """True if it detects duplicates and gaps of idempotent producers."""
    ends_transactions = True
    """True if it implements transactions: readers of committed records do not see aborted ones, and
    offsets are committed.
    """

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """The bootstrap servers."""

    @abstractmethod
    async def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic."""

    @abstractmethod
    async def fail(self, api_key: int, code: int, times: int = 1) -> None:
        """Respond to the next requests of an API with an error."""

    @abstractmethod
    async def cut(self, api_key: int, times: int = 1) -> None:
        """Close the connection instead of handling the next requests of an API."""

    @abstractmethod
    async def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Make a node the leader of a partition."""

    @abstractmethod
    async def move_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Move the coordinator of a group or transactional id to another node."""

    @abstractmethod
    async def stop_node(self, node: int) -> None:
        """Stop a node: close its port and its connections."""

    @abstractmethod
    async def start_node(self, node: int) -> None:
        """Start a stopped node."""

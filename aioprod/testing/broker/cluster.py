"""The nodes of a cluster: which of them run, lead partitions and coordinate groups. Synchronous
decisions, without sockets, clock or event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from aioprod.errors import ConfigError
from aioprod.testing.broker.imitation import Imitation

FIRST_NODE_ID = 1
NO_NODE = -1
GROUP = 0
TRANSACTION = 1
_DEFAULT_REPLICAS = 3  # as in most clusters; fewer if there are fewer nodes


class NodeAddress(NamedTuple):
    """A node as responses describe it."""

    node_id: int
    host: str
    port: int


@dataclass(slots=True)
class Leadership:
    """The replicas of a partition.

    Attributes:
        replicas: the nodes that have the partition, the preferred leader first.
        in_sync: the replicas that have all records that consumers may read. If no replica is
            running, the last one that was in sync.
        leader: one of the replicas, or -1.
    """

    replicas: tuple[int, ...] = (FIRST_NODE_ID,)
    in_sync: tuple[int, ...] = (FIRST_NODE_ID,)
    leader: int = FIRST_NODE_ID


class Cluster:
    """The nodes of an embedded cluster.

    Args:
        size: the number of nodes; their ids are 1, 2, ...
        replication_factor: the default for new topics; None for 3, or for all nodes if there are
            fewer.
        imitation: how the nodes differ from Apache Kafka.

    Attributes:
        imitation: see the argument.
        paused: the nodes whose replication is paused.
    """

    def __init__(
        self,
        size: int = 1,
        replication_factor: int | None = None,
        imitation: Imitation | None = None,
    ) -> None:
        self.imitation: Imitation = imitation or Imitation()
        self.cluster_id = "aioprod-embedded-broker"
        self.node_ids: tuple[int, ...] = tuple(range(FIRST_NODE_ID, FIRST_NODE_ID + size))
        self.replication_factor: int = (
            min(size, _DEFAULT_REPLICAS) if replication_factor is None else replication_factor
        )
        self.paused: set[int] = set()
        self._addresses: dict[int, NodeAddress] = {}
        # Called when a node starts or stops, or a coordinator moves.
        self.watchers: list[Callable[[], None]] = []
        self._moved_coordinators: dict[tuple[int, str], int] = {}
        if not 1 <= self.replication_factor <= size:
            raise ConfigError(
                f"replication_factor={replication_factor}: must be 1 to {size}, the number of nodes"
            )

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def running(self) -> list[NodeAddress]:
        """The running nodes, by id."""
        return [address for _, address in sorted(self._addresses.items())]

    @property
    def running_ids(self) -> Collection[int]:
        """The ids of the running nodes."""
        return self._addresses.keys()

    @property
    def controller_id(self) -> int:
        """The id of the controller in responses, or -1 if no node is running."""
        return min(self._addresses, default=NO_NODE)

    def find_address(self, node_id: int) -> NodeAddress | None:
        """Return the address of a node, or None while it is stopped."""
        return self._addresses.get(node_id)

    def node_up(self, address: NodeAddress) -> None:
        """Record that a node is listening."""
        self._addresses[address.node_id] = address
        self._call_watchers()

    def node_down(self, node_id: int) -> None:
        """Record that a node has stopped."""
        self._addresses.pop(node_id, None)
        self._call_watchers()

    def check_node(self, node_id: int) -> int:
        """Return ``node_id``; raise ConfigError if the node does not exist."""
        if node_id not in self.node_ids:
            raise ConfigError(
                f"node_id={node_id}: must be {self.node_ids[0]} to {self.node_ids[-1]}"
            )
        return node_id

    def check_running(self, node_id: int) -> int:
        """Return ``node_id``; raise ConfigError if the node does not exist or is stopped."""
        if self.check_node(node_id) not in self._addresses:
            raise ConfigError(f"node_id={node_id}: this node is stopped: start it first")
        return node_id

    # -- partitions --------------------------------------------------------------------------------

    def spread(self, count: int, replication_factor: int) -> list[tuple[int, ...]]:
        """Choose the replicas of ``count`` new partitions. The preferred leader of partition 0 is
        the first node, that of partition 1 the second, and so on.
        """
        size = len(self.node_ids)
        return [
            tuple(self.node_ids[(index + step) % size] for step in range(replication_factor))
            for index in range(count)
        ]

    def new_leadership(self, replicas: tuple[int, ...]) -> Leadership:
        """Choose the leader and the in-sync replicas of a new partition: the running nodes are in
        sync and the first of them leads. Before the start, all nodes count as running.
        """
        alive = (
            tuple(node_id for node_id in replicas if node_id in self._addresses)
            if self._addresses
            else replicas
        )
        return Leadership(replicas, alive or replicas[:1], alive[0] if alive else NO_NODE)

    def find_offline(self, leadership: Leadership) -> list[int]:
        """Return the replicas of a partition whose nodes are stopped."""
        return [node_id for node_id in leadership.replicas if node_id not in self._addresses]

    # -- coordinators ------------------------------------------------------------------------------

    def coordinator_node(self, kind: int, key: str) -> int:
        """Return the node that coordinates a group (kind 0) or a transactional id (kind 1), or -1
        if no node is running.

        It is chosen by hash or by :meth:`move_coordinator`. While it is stopped, the next running
        node takes over.
        """
        size = len(self.node_ids)
        first = (
            self._moved_coordinators.get((kind, key), FIRST_NODE_ID + crc32(key.encode()) % size)
            - FIRST_NODE_ID
        )
        return next(
            (
                node_id
                for step in range(size)
                if (node_id := self.node_ids[(first + step) % size]) in self._addresses
            ),
            NO_NODE,
        )

    def move_coordinator(self, kind: int, key: str, node_id: int) -> None:
        """Make a node the coordinator. Requests to other nodes are refused with NOT_COORDINATOR."""
        self._moved_coordinators[kind, key] = node_id
        self._call_watchers()

    def _call_watchers(self) -> None:
        for watcher in self.watchers:
            watcher()

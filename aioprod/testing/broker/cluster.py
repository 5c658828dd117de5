"""Which nodes a cluster has, which of them run, and who leads and coordinates what. Plain decisions: no socket, no clock, no loop."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple
from zlib import crc32

from aioprod.errors import ConfigError

CLUSTER_ID = "aioprod-embedded-broker"
FIRST_NODE_ID = 1
NOBODY = -1
GROUP = 0
TRANSACTION = 1
_DEFAULT_REPLICAS = 3  # as most clusters are set up; fewer where there are fewer nodes


class NodeAddress(NamedTuple):
    """A node as answers name it."""

    node_id: int
    host: str
    port: int
    cluster_id: str = CLUSTER_ID


@dataclass(slots=True)
class Leadership:
    """Who keeps a partition.

    All nodes of this broker share one log per partition, so a replica is in sync whenever its node runs, and any of them may lead.

    Attributes:
        replicas: the nodes that keep the partition, the preferred leader first.
        in_sync: those of them that run; the last of them where none does.
        leader: one of them, or -1.
    """

    replicas: tuple[int, ...] = (FIRST_NODE_ID,)
    in_sync: tuple[int, ...] = (FIRST_NODE_ID,)
    leader: int = FIRST_NODE_ID

    def follow(self, running: Container[int]) -> bool:
        """Adapt to the nodes that run now; tell whether the leader changed."""
        alive = tuple(node_id for node_id in self.replicas if node_id in running)
        self.in_sync = alive or self.in_sync[:1]
        before = self.leader
        if before not in alive:
            self.leader = alive[0] if alive else NOBODY
        return self.leader != before


class Cluster:
    """The nodes of one embedded broker.

    Args:
        size: how many nodes there are; their ids are 1, 2, ...
        replication_factor: of topics that are created without one; None for three, or for all where there are fewer nodes.
    """

    def __init__(self, size: int = 1, replication_factor: int | None = None) -> None:
        self.node_ids = tuple(range(FIRST_NODE_ID, FIRST_NODE_ID + size))
        self.replication_factor = min(size, _DEFAULT_REPLICAS) if replication_factor is None else replication_factor
        self._addresses: dict[int, NodeAddress] = {}
        self._moved_coordinators: dict[tuple[int, str], int] = {}
        if not 1 <= self.replication_factor <= size:
            raise ConfigError(f"replication_factor={replication_factor}: must be 1 to {size}, the number of nodes")

    # -- nodes ---------------------------------------------------------------------------------------------------

    @property
    def running(self) -> list[NodeAddress]:
        """The nodes that clients hear of, by id."""
        return [address for _, address in sorted(self._addresses.items())]

    @property
    def controller_id(self) -> int:
        """The node that answers name as the controller, -1 where none runs."""
        return min(self._addresses, default=NOBODY)

    def find_address(self, node_id: int) -> NodeAddress | None:
        """Where a node listens; None while it is down."""
        return self._addresses.get(node_id)

    def node_up(self, address: NodeAddress) -> None:
        """A node listens now."""
        self._addresses[address.node_id] = address

    def node_down(self, node_id: int) -> None:
        """A node is gone."""
        self._addresses.pop(node_id, None)

    def check_node(self, node_id: int) -> int:
        """Return ``node_id``; raise ConfigError where there is no such node."""
        if node_id not in self.node_ids:
            raise ConfigError(f"node_id={node_id}: must be {self.node_ids[0]} to {self.node_ids[-1]}")
        return node_id

    # -- partitions ----------------------------------------------------------------------------------------------

    def spread(self, count: int, replication_factor: int) -> list[tuple[int, ...]]:
        """The replicas of ``count`` new partitions: partition 0 prefers the first node, partition 1 the second, and so on."""
        size = len(self.node_ids)
        return [tuple(self.node_ids[(index + step) % size] for step in range(replication_factor)) for index in range(count)]

    def new_leadership(self, replicas: tuple[int, ...]) -> Leadership:
        """Of a new partition on these nodes: the first of them that runs leads."""
        leadership = Leadership(replicas, replicas, replicas[0])
        if self._addresses:  # before the start all are as good as up
            leadership.follow(self._addresses)
        return leadership

    def follow(self, leadership: Leadership) -> bool:
        """Have a partition adapt to the nodes that run; tell whether its leader changed."""
        return leadership.follow(self._addresses)

    def find_offline(self, leadership: Leadership) -> list[int]:
        """The replicas of a partition whose nodes are down."""
        return [node_id for node_id in leadership.replicas if node_id not in self._addresses]

    # -- coordinators --------------------------------------------------------------------------------------------

    def coordinator_node(self, kind: int, key: str) -> int:
        """The node that coordinates a group (kind 0) or a transactional id (kind 1); -1 while no node runs.

        It is chosen by hash, or by :meth:`move_coordinator`. While that node is down the next one that runs takes over.
        """
        size = len(self.node_ids)
        first = self._moved_coordinators.get((kind, key), FIRST_NODE_ID + crc32(key.encode()) % size) - FIRST_NODE_ID
        return next((node_id for step in range(size) if (node_id := self.node_ids[(first + step) % size]) in self._addresses), NOBODY)

    def move_coordinator(self, kind: int, key: str, node_id: int) -> None:
        """Have a node coordinate from now on; whoever asks another gets NOT_COORDINATOR."""
        self._moved_coordinators[kind, key] = node_id

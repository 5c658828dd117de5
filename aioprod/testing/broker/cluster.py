"""Which nodes a cluster has, which of them run, and who leads and coordinates what. Plain
decisions: no socket, no clock, no loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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

    Attributes:
        replicas: the nodes that keep the partition, the preferred leader first.
        in_sync: those of them that have all that consumers may see; the last of them where none
            runs.
        leader: one of them, or -1.
    """

    replicas: tuple[int, ...] = (FIRST_NODE_ID,)
    in_sync: tuple[int, ...] = (FIRST_NODE_ID,)
    leader: int = FIRST_NODE_ID


class Cluster:
    """The nodes of one embedded broker.

    Args:
        size: how many nodes there are; their ids are 1, 2, ...
        replication_factor: of topics that are created without one; None for three, or for all where
            there are fewer nodes.

    Attributes:
        paused: the nodes that replicate nothing at present.
    """

    def __init__(self, size: int = 1, replication_factor: int | None = None) -> None:
        self.node_ids = tuple(range(FIRST_NODE_ID, FIRST_NODE_ID + size))
        self.replication_factor = (
            min(size, _DEFAULT_REPLICAS) if replication_factor is None else replication_factor
        )
        self.paused: set[int] = set()
        self._addresses: dict[int, NodeAddress] = {}
        self.watchers: list[
            Callable[[], None]
        ] = []  # called when a node comes or goes, or a coordinator moves
        self._moved_coordinators: dict[tuple[int, str], int] = {}
        if not 1 <= self.replication_factor <= size:
            raise ConfigError(
                f"replication_factor={replication_factor}: must be 1 to {size}, the number of nodes"
            )

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def running(self) -> list[NodeAddress]:
        """The nodes that clients hear of, by id."""
        return [address for _, address in sorted(self._addresses.items())]

    @property
    def running_ids(self) -> Collection[int]:
        """Their ids."""
        return self._addresses.keys()

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
        self._tell_watchers()

    def node_down(self, node_id: int) -> None:
        """A node is gone."""
        self._addresses.pop(node_id, None)
        self._tell_watchers()

    def check_node(self, node_id: int) -> int:
        """Return ``node_id``; raise ConfigError where there is no such node."""
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
        """The replicas of ``count`` new partitions: partition 0 prefers the first node, partition 1
        the second, and so on.
        """
        size = len(self.node_ids)
        return [
            tuple(self.node_ids[(index + step) % size] for step in range(replication_factor))
            for index in range(count)
        ]

    def new_leadership(self, replicas: tuple[int, ...]) -> Leadership:
        """Of a new partition on these nodes: those that run are in sync, and the first of them
        leads. Before the start all are as good as up.
        """
        alive = (
            tuple(node_id for node_id in replicas if node_id in self._addresses)
            if self._addresses
            else replicas
        )
        return Leadership(replicas, alive or replicas[:1], alive[0] if alive else NOBODY)

    def find_offline(self, leadership: Leadership) -> list[int]:
        """The replicas of a partition whose nodes are down."""
        return [node_id for node_id in leadership.replicas if node_id not in self._addresses]

    # -- coordinators ------------------------------------------------------------------------------

    def coordinator_node(self, kind: int, key: str) -> int:
        """The node that coordinates a group (kind 0) or a transactional id (kind 1); -1 while no
        node runs.

        It is chosen by hash, or by :meth:`move_coordinator`. While that node is down the next one
        that runs takes over.
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
            NOBODY,
        )

    def move_coordinator(self, kind: int, key: str, node_id: int) -> None:
        """Have a node coordinate from now on; whoever asks another gets NOT_COORDINATOR."""
        self._moved_coordinators[kind, key] = node_id
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in self.watchers:
            watcher()

"""Starts, stops and freezes nodes, and chooses coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Literal

from aioprod.errors import ConfigError
from aioprod.testing.broker.broker_node import Balancer, BrokerNode
from aioprod.testing.broker.cluster import GROUP, TRANSACTION, Cluster
from aioprod.testing.broker.store import Store

CoordinatorKind = Literal["group", "transaction"]
_KINDS = {"group": GROUP, "transaction": TRANSACTION}


class NodeControls:
    """The nodes of an embedded cluster."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        nodes: Mapping[int, BrokerNode],
        balancer: Balancer | None = None,
    ) -> None:
        self._balancer = balancer
        self._cluster = cluster
        self._store = store
        self._nodes = nodes

    # -- starting and stopping ---------------------------------------------------------------------

    async def start(self) -> None:
        """Start all nodes."""
        if any(node.running for node in self._nodes.values()):
            raise ConfigError("the broker is already running: stop it before starting it again")
        try:
            for node in self._listeners():
                await node.start()
        except BaseException:
            await self.stop()
            raise
        for node in self._nodes.values():
            self._cluster.node_up(node.address)
        self._resume()

    async def stop(self) -> None:
        """Close all ports and connections within five seconds, including connections that wait for
        an action. Topics and records are kept for the next start.
        """
        await self._stop_all(keep_ports=False)

    async def stop_all(self) -> None:
        """Stop all nodes at the same time: a complete outage. :meth:`start` or :meth:`start_node`
        ends it. Until then the ports stay reserved.
        """
        await self._stop_all(keep_ports=True)

    async def stop_node(self, node_id: int) -> None:
        """Shut down a node cleanly: replicate its partitions, then close its port and connections.

        The partitions that it led and the ids that it coordinated move to nodes that are running
        and in sync. A partition with no such node has no leader. The port stays reserved until the
        broker is stopped. Stopping a stopped node does nothing.
        """
        self._store.replicate_led_by(self._node(node_id).node_id)
        await self.kill_node(node_id)

    async def kill_node(self, node_id: int) -> None:
        """Stop a node at once, like ``kill -9``. Records that no new leader has are lost."""
        node = self._node(node_id)
        self._go_down(node_id)
        self._store.elect_leaders()
        await node.stop(keep_port=True)
        if not self._cluster.running:
            self._suspend()

    async def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """Start a stopped node on its old port, or on a new one. It leads only partitions that have
        no leader; use :meth:`move_leader` to give it more.

        Raises:
            ConfigError: if the node is running.
            OSError: if the port is not available.
        """
        node = self._node(node_id)
        if node.running:
            raise ConfigError(f"node_id={node_id}: this node is already running")
        if new_port:
            node.port = 0
        await node.start()
        self._cluster.node_up(node.address)
        self._resume()

    def freeze_node(self, node_id: int) -> None:
        """Freeze a node, like a process stopped by SIGSTOP: it accepts connections and reads
        requests, but does not respond.

        It remains a leader, and as a follower it still replicates; use :meth:`pause_replication` to
        stop that too.
        """
        self._running_node(node_id).freeze()

    def unfreeze_node(self, node_id: int) -> None:
        """Let a frozen node handle the requests that it received, and continue."""
        self._running_node(node_id).unfreeze()

    async def _stop_all(self, *, keep_ports: bool) -> None:
        for node_id in self._nodes:
            self._go_down(node_id)
        # Stop all of them now: a cancelled ``gather`` might not start them.
        waits = [node.begin_stop(keep_port=keep_ports) for node in self._listeners()]
        self._suspend()
        await asyncio.gather(*waits)

    def _listeners(self) -> list[BrokerNode]:
        balancer = [] if self._balancer is None else [self._balancer]
        return [*self._nodes.values(), *balancer]

    def _go_down(self, node_id: int) -> None:
        self._cluster.node_down(node_id)
        self._store.forget_fetch_sessions(node_id)

    def _resume(self) -> None:
        self._store.lag_watch.resume()
        self._store.elect_leaders()
        self._store.transactions.timers.resume()

    def _suspend(self) -> None:
        self._store.lag_watch.suspend()
        self._store.transactions.timers.suspend()

    # -- addresses ---------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of the running nodes, or of all nodes if none is running. If there is a
        load balancer, its address.
        """
        nodes = [self._balancer] if self._balancer is not None else self._nodes.values()
        listed = [node for node in nodes if node.running] or [node for node in nodes if node.port]
        if not listed:
            raise ConfigError("the broker has no port yet: start it first")
        return ",".join(f"{node.host}:{node.port}" for node in listed)

    def address(self, node_id: int) -> str:
        """Return ``host:port`` of a node. A node keeps its address while it is stopped."""
        node = self._node(node_id)
        if not node.port:
            raise ConfigError(f"node_id={node_id}: this node has no port yet: start it first")
        return f"{node.host}:{node.port}"

    def connection_count(self, node_id: int) -> int:
        """Return the number of connections to a node."""
        return self._node(node_id).connection_count

    # -- coordinators ------------------------------------------------------------------------------

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node that coordinates a group or a transactional id, or -1 if no node is
        running.
        """
        return self._cluster.coordinator_node(_kind(kind), key)

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Make a node the coordinator of a group or a transactional id. While it is stopped, the
        next running node takes over.
        """
        self._cluster.move_coordinator(_kind(kind), key, self._node(node_id).node_id)

    def _node(self, node_id: int) -> BrokerNode:
        return self._nodes[self._cluster.check_node(node_id)]

    def _running_node(self, node_id: int) -> BrokerNode:
        return self._nodes[self._cluster.check_running(node_id)]


def _kind(name: CoordinatorKind) -> int:
    if name not in _KINDS:
        raise ConfigError(f"kind={name!r}: must be one of {list(_KINDS)}")
    return _KINDS[name]

"""The embedded broker: Kafka on loopback ports of this process, one node or several. It keeps
everything in memory, until it is dropped.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, Self, TypedDict

from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.admin_controls import AdminControls
from aioprod.testing.broker.cluster import FIRST_NODE_ID, GROUP, TRANSACTION, Cluster
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.fault_controls import FaultControls
from aioprod.testing.broker.group_controls import GroupControls
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.internal_topics import is_internal
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.node import Node
from aioprod.testing.broker.replication_controls import ReplicationControls
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.testing.broker.store import Store, Topic
from aioprod.testing.broker.transactions import Transaction

_MAX_NODES = 100
CoordinatorKind = Literal["group", "transaction"]
_KINDS = {"group": GROUP, "transaction": TRANSACTION}


class ClusterSettings(TypedDict, total=False):
    """The arguments of :class:`EmbeddedCluster`."""

    nodes: int
    host: str
    port: int
    replication_factor: int | None
    num_partitions: int
    auto_create_topics: bool
    max_message_bytes: int
    max_memory_bytes: int
    wall_clock: Callable[[], float] | None
    random_source: random.Random | None
    transaction_version: int
    replica_lag_time_max_ms: int
    groups: GroupSettings | None
    security: BrokerSecurity | None


class ClusterOnLoop(FaultControls, ReplicationControls, GroupControls, AdminControls):
    """All of :class:`aioprod.testing.EmbeddedCluster`, but for its running in a thread."""

    def __init__(
        self,
        *,
        nodes: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        replication_factor: int | None = None,
        num_partitions: int = 1,
        auto_create_topics: bool = True,
        max_message_bytes: int = 1_048_588,
        max_memory_bytes: int = 2 << 30,
        wall_clock: Callable[[], float] | None = None,
        random_source: random.Random | None = None,
        transaction_version: int = 2,
        replica_lag_time_max_ms: int = 30_000,
        groups: GroupSettings | None = None,
        security: BrokerSecurity | None = None,
    ) -> None:
        at_least_one = {
            "num_partitions": num_partitions,
            "max_message_bytes": max_message_bytes,
            "max_memory_bytes": max_memory_bytes,
            "replica_lag_time_max_ms": replica_lag_time_max_ms,
        }
        for name, value in at_least_one.items():
            if value < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
        if not 1 <= nodes <= _MAX_NODES:
            raise ConfigError(f"nodes={nodes}: must be 1 to {_MAX_NODES}")
        if not 0 <= transaction_version <= 2:
            raise ConfigError(f"transaction_version={transaction_version}: must be 0 to 2")
        self._cluster = Cluster(nodes, replication_factor)
        self._store = Store(
            num_partitions=num_partitions,
            auto_create_topics=auto_create_topics,
            max_message_bytes=max_message_bytes,
            max_memory_bytes=max_memory_bytes,
            wall_clock=wall_clock or time.time,
            random_source=random_source,
            cluster=self._cluster,
            group_settings=groups,
            transaction_version=transaction_version,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
        )
        self._dispatcher = Dispatcher(self._store)
        self._nodes = {
            node_id: Node(
                node_id, host, port and port + node_id - FIRST_NODE_ID, self._dispatcher, security
            )
            for node_id in self._cluster.node_ids
        }

    # -- starting and stopping ---------------------------------------------------------------------

    async def start(self) -> Self:
        """Listen, on all nodes. Raises OSError where a port can't be had."""
        if any(node.running for node in self._nodes.values()):
            raise ConfigError("the broker is running already")
        try:
            for node in self._nodes.values():
                await node.start()
        except BaseException:
            await self.stop()
            raise
        for node in self._nodes.values():
            self._cluster.node_up(node.address)
        self._resume()
        return self

    async def stop(self) -> None:
        """Close all ports and connections, also those that wait on a hook, within five seconds.
        Topics and records stay for a new start.
        """
        await self._stop_all(keep_ports=False)

    async def stop_all(self) -> None:
        """Stop all nodes at the same moment: a total outage. :meth:`start` or :meth:`start_node`
        ends it; nobody else gets the ports meanwhile.
        """
        await self._stop_all(keep_ports=True)

    async def stop_node(self, node_id: int) -> None:
        """Shut one node down properly: what it leads is replicated first. Then its port and
        connections are closed.

        What it led or coordinated moves to nodes that run and are in sync; a partition without any
        has no leader. Nobody else gets the port until the broker is stopped. A node that is down
        already stays so.
        """
        self._store.hand_over(self._node(node_id).node_id)
        await self.kill_node(node_id)

    async def kill_node(self, node_id: int) -> None:
        """End one node at once, as kill -9 does: what it led goes on with what the new leader has,
        and other records are lost.
        """
        node = self._node(node_id)
        self._go_down(node_id)
        self._store.elect_leaders()
        await node.stop(keep_port=True)
        if not self._cluster.running:
            self._suspend()

    async def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """Have a node listen again, on its port or on a new one. It leads only what has no leader:
        :meth:`move_leader` gives it more.

        Raises OSError where the port can't be had.
        """
        node = self._node(node_id)
        if node.running:
            raise ConfigError(f"node_id={node_id}: this node is running already")
        if new_port:
            node.port = 0
        await node.start()
        self._cluster.node_up(node.address)
        self._resume()

    def freeze_node(self, node_id: int) -> None:
        """Make a node silent: it accepts connections and reads requests, and answers none, as a
        process that got SIGSTOP.

        It stays a leader, and as a follower it goes on to replicate: see :meth:`pause_replication`
        where it shall not.
        """
        self._running_node(node_id).freeze()

    def unfreeze_node(self, node_id: int) -> None:
        """Have a frozen node handle what came meanwhile, and go on."""
        self._running_node(node_id).unfreeze()

    async def _stop_all(self, *, keep_ports: bool) -> None:
        for node_id in self._nodes:
            self._go_down(node_id)
        await asyncio.gather(*(node.stop(keep_port=keep_ports) for node in self._nodes.values()))
        self._suspend()

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

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    # -- nodes -------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the nodes that run, for a client's bootstrap.servers; of all
        nodes while none does.
        """
        nodes = self._nodes.values()
        listed = [node for node in nodes if node.running] or [node for node in nodes if node.port]
        if not listed:
            raise ConfigError("the broker has no port yet: start it first")
        return ",".join(f"{node.host}:{node.port}" for node in listed)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return self._cluster.node_ids

    def address(self, node_id: int) -> str:
        """``host:port`` of one node, which it keeps while it is down."""
        node = self._node(node_id)
        if not node.port:
            raise ConfigError(f"node_id={node_id}: this node has no port yet: start it first")
        return f"{node.host}:{node.port}"

    def connection_count(self, node_id: int) -> int:
        """How many clients are connected to a node."""
        return self._node(node_id).connection_count

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition, -1 where none does. Raises BrokerError where there is no
        such partition.
        """
        return self._store.get_partition(topic, partition).leadership.leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Have another node lead a partition, under the next leader epoch. It has to run and to be
        a replica in sync.

        Records that only the old leader has are lost.
        """
        chosen = self._store.get_partition(topic, partition)
        self._running_node(node_id)
        leadership = chosen.leadership
        if node_id not in leadership.replicas:
            raise ConfigError(
                f"node_id={node_id}: must be one of the replicas of {topic}-{partition}: "
                f"{list(leadership.replicas)}"
            )
        if node_id not in leadership.in_sync:
            raise ConfigError(
                f"node_id={node_id}: must be in sync, as of {topic}-{partition} only "
                f"{list(leadership.in_sync)} are"
            )
        self._store.move_leader(chosen, node_id)

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The node that coordinates a group or a transactional id, -1 while none runs."""
        return self._cluster.coordinator_node(_kind(kind), key)

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Have another node coordinate a group or a transactional id; while it is down the next one
        that runs does.
        """
        self._cluster.move_coordinator(_kind(kind), key, self._node(node_id).node_id)

    # -- topics and records ------------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without Kafka's own (``__consumer_offsets`` and the like)."""
        return {name: topic for name, topic in self._store.topics.items() if not is_internal(name)}

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic, with the broker's numbers of partitions and replicas where none are
        given. Raises BrokerError where it can't be.

        Partition 0 is led by the first node, partition 1 by the second, and so on; its other
        replicas are the nodes after its leader.
        """
        return self._store.create_topic(name, num_partitions, configs, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises BrokerError where there is none."""
        self._store.delete_topic(self._store.get_topic(name))

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """Decode what a partition holds, or all partitions of the topic one after another. Raises
        BrokerError where there is none such.

        Transaction markers are left out; with ``committed_only`` also records of open and of
        aborted transactions.
        """
        chosen = (
            self._store.get_topic(topic).partitions
            if partition is None
            else [self._store.get_partition(topic, partition)]
        )
        return [record for each in chosen for record in each.records(committed_only=committed_only)]

    async def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """Return the topic's records as soon as there are ``count`` or more. Raises
        KafkaTimeoutError where there are too few in that time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        logs = [partition.log for partition in self._store.get_topic(topic).partitions]
        while sum(log.record_count for log in logs) < count:
            left = deadline - loop.time()
            if left <= 0:
                raise KafkaTimeoutError(
                    f"{topic}: {sum(log.record_count for log in logs)} of {count} records "
                    f"after {timeout_seconds} s"
                )
            await wait_for_append(logs, left)
        return self.records(topic)

    # -- transactions ------------------------------------------------------------------------------

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactional ids, each with its producer id and epoch and the state of its newest
        transaction.
        """
        return self._store.transactions.transactions

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer at once, as when its time-out has
        passed.
        """
        self._store.transactions.expire(transactional_id)

    def pause_markers(self) -> None:
        """Write no transaction markers until :meth:`resume_markers`: transactions that end
        meanwhile stay in PrepareCommit or PrepareAbort.
        """
        self._store.transactions.pause_markers()

    def resume_markers(self) -> None:
        """Write the markers that wait, and further ones at once."""
        self._store.transactions.resume_markers()

    def _node(self, node_id: int) -> Node:
        return self._nodes[self._cluster.check_node(node_id)]

    def _running_node(self, node_id: int) -> Node:
        node = self._node(node_id)
        if not node.running:
            raise ConfigError(f"node_id={node_id}: this node is down")
        return node


def _kind(name: CoordinatorKind) -> int:
    if name not in _KINDS:
        raise ConfigError(f"kind={name!r}: must be one of {list(_KINDS)}")
    return _KINDS[name]

"""The embedded broker: Kafka on loopback ports of this process, one node or several. It keeps everything in memory, until it is dropped."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Literal, Self, TypedDict

from aioprod.error_codes import ErrorCode
from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.protocol.message import Message
from aioprod.protocol.record_reader import Record
from aioprod.testing.broker.cluster import FIRST_NODE_ID, GROUP, TRANSACTION, Cluster
from aioprod.testing.broker.control import Action, Rule
from aioprod.testing.broker.dispatcher import Dispatcher, SeenRequest
from aioprod.testing.broker.handlers import HANDLERS
from aioprod.testing.broker.log import wait_for_append
from aioprod.testing.broker.node import Node
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.testing.broker.store import Partition, Store, StoreError, Topic
from aioprod.testing.broker.transactions import Transaction
from aioprod.types import TopicPartition

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
    wall_clock: Callable[[], float]
    random_source: random.Random | None
    transaction_version: int
    security: BrokerSecurity | None


class ClusterOnLoop:
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
        wall_clock: Callable[[], float] = time.time,
        random_source: random.Random | None = None,
        transaction_version: int = 2,
        security: BrokerSecurity | None = None,
    ) -> None:
        for name, value in (("num_partitions", num_partitions), ("max_message_bytes", max_message_bytes), ("max_memory_bytes", max_memory_bytes)):
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
            wall_clock=wall_clock,
            random_source=random_source,
            cluster=self._cluster,
            transaction_version=transaction_version,
        )
        self._dispatcher = Dispatcher(self._store)
        self._nodes = {
            node_id: Node(node_id, host, port and port + node_id - FIRST_NODE_ID, self._dispatcher, security) for node_id in self._cluster.node_ids
        }

    # -- starting and stopping -----------------------------------------------------------------------------------

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
        self._store.elect_leaders()
        self._store.transactions.timers.resume()
        return self

    async def stop(self) -> None:
        """Close all ports and connections, also those that wait on a hook, within five seconds. Topics and records stay for a new start."""
        await self._stop_all(keep_ports=False)

    async def stop_all(self) -> None:
        """Stop all nodes at the same moment: a total outage. :meth:`start` or :meth:`start_node` ends it; nobody else gets the ports meanwhile."""
        await self._stop_all(keep_ports=True)

    async def stop_node(self, node_id: int) -> None:
        """Close one node's port and connections. What it led or coordinated moves to nodes that run; a partition without any has no leader.

        Nobody else gets the port until the broker is stopped. A node that is down already stays so.
        """
        node = self._node(node_id)
        self._cluster.node_down(node_id)
        self._store.elect_leaders()
        await node.stop(keep_port=True)
        if not self._cluster.running:
            self._store.transactions.timers.suspend()

    async def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """Have a node listen again, on its port or on a new one. It leads only what has no leader: :meth:`move_leader` gives it more.

        Raises OSError where the port can't be had.
        """
        node = self._node(node_id)
        if node.running:
            raise ConfigError(f"node_id={node_id}: this node is running already")
        if new_port:
            node.port = 0
        await node.start()
        self._cluster.node_up(node.address)
        self._store.elect_leaders()
        self._store.transactions.timers.resume()

    def freeze_node(self, node_id: int) -> None:
        """Make a node silent: it accepts connections and reads requests, and answers none, as a process that got SIGSTOP. It stays a leader."""
        self._running_node(node_id).freeze()

    def unfreeze_node(self, node_id: int) -> None:
        """Have a frozen node handle what came meanwhile, and go on."""
        self._running_node(node_id).unfreeze()

    async def _stop_all(self, *, keep_ports: bool) -> None:
        for node_id in self._nodes:
            self._cluster.node_down(node_id)
        await asyncio.gather(*(node.stop(keep_port=keep_ports) for node in self._nodes.values()))
        self._store.transactions.timers.suspend()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    # -- nodes ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the nodes that run, for a client's bootstrap.servers; of all nodes while none does."""
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
        """The node that leads a partition, -1 where none does. Raises BrokerError where there is no such partition."""
        return self._partition(topic, partition).leadership.leader

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Have another node lead a partition, under the next leader epoch. It has to run and to be one of the partition's replicas."""
        chosen = self._partition(topic, partition)
        self._running_node(node_id)
        leadership = chosen.leadership
        if node_id not in leadership.replicas:
            raise ConfigError(f"node_id={node_id}: must be one of the replicas of {topic}-{partition}: {list(leadership.replicas)}")
        if leadership.leader != node_id:
            leadership.leader = node_id
            chosen.leader_changed()

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """The node that coordinates a group or a transactional id, -1 while none runs."""
        return self._cluster.coordinator_node(_kind(kind), key)

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Have another node coordinate a group or a transactional id; while it is down the next one that runs does."""
        self._cluster.move_coordinator(_kind(kind), key, self._node(node_id).node_id)

    # -- topics and records --------------------------------------------------------------------------------------

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests that came in, oldest first."""
        return self._dispatcher.requests

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name."""
        return self._store.topics

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic, with the broker's numbers of partitions and replicas where none are given. Raises BrokerError where it can't be.

        Partition 0 is led by the first node, partition 1 by the second, and so on; its other replicas are the nodes after its leader.
        """
        return self._store.create_topic(name, num_partitions, configs, replication_factor)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records. Raises BrokerError where there is none."""
        self._store.delete_topic(self._topic(name))

    def records(self, topic: str, partition: int | None = None, *, committed_only: bool = False) -> list[Record]:
        """Decode what a partition holds, or all partitions of the topic one after another. Raises BrokerError where there is none such.

        Transaction markers are left out; with ``committed_only`` also records of open and of aborted transactions.
        """
        chosen = self._topic(topic).partitions if partition is None else [self._partition(topic, partition)]
        return [record for each in chosen for record in each.records(committed_only=committed_only)]

    async def wait_for_records(self, topic: str, count: int, timeout_seconds: float = 10.0) -> list[Record]:
        """Return the topic's records as soon as there are ``count`` or more. Raises KafkaTimeoutError where there are too few in that time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        logs = [partition.log for partition in self._topic(topic).partitions]
        while sum(log.record_count for log in logs) < count:
            left = deadline - loop.time()
            if left <= 0:
                raise KafkaTimeoutError(f"{topic}: {sum(log.record_count for log in logs)} of {count} records after {timeout_seconds} s")
            await wait_for_append(logs, left)
        return self.records(topic)

    # -- transactions and groups ---------------------------------------------------------------------------------

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactional ids, each with its producer id and epoch and the state of its newest transaction."""
        return self._store.transactions.transactions

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer at once, as when its time-out has passed."""
        self._store.transactions.expire(transactional_id)

    def pause_markers(self) -> None:
        """Write no transaction markers until :meth:`resume_markers`: transactions that end meanwhile stay in PrepareCommit or PrepareAbort."""
        self._store.transactions.pause_markers()

    def resume_markers(self) -> None:
        """Write the markers that wait, and further ones at once."""
        self._store.transactions.resume_markers()

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed; those of open transactions are not among them."""
        group = self._store.offsets.groups.get(group_id)
        return {} if group is None else {place: committed.offset for place, committed in group.offsets.items()}

    def set_group_members(self, group_id: str, generation_id: int, members: Mapping[str, str | None]) -> None:
        """Give a consumer group members (member id to group.instance.id or None), so that commits by others are refused (KIP-447)."""
        self._store.offsets.set_members(group_id, generation_id, members)

    # -- misbehaving ---------------------------------------------------------------------------------------------

    def on(
        self, api_key: int, *actions: Action, times: int | None = 1, where: Callable[[Message], bool] | None = None, node: int | None = None
    ) -> Rule:
        """Do something to the next ``times`` requests of an API (None: to all) to ``node`` (None: any), for which ``where(request)`` is true.

        Rules of the same API are used up one after another, in the order in which they were made.
        """
        if api_key not in HANDLERS:
            raise ConfigError(f"API key {api_key} is none that this broker handles: {sorted(HANDLERS)}")
        rule = Rule(actions, times, where, node if node is None else self._node(node).node_id)
        self._dispatcher.rules.add(api_key, rule)
        return rule

    def clear_rules(self) -> None:
        """Forget everything that :meth:`on` set up."""
        self._dispatcher.rules.clear()

    def _topic(self, name: str) -> Topic:
        topic = self._store.find_topic(name)
        if topic is None:
            raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic

    def _partition(self, topic: str, partition: int) -> Partition:
        found = self._topic(topic)
        chosen = found.partition(partition)
        if chosen is None:
            raise StoreError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has partitions 0 to {len(found.partitions) - 1}, not {partition}")
        return chosen

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

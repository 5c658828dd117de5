"""The embedded broker as tests use it: :class:`EmbeddedCluster` on their event loop, and
:class:`ThreadedCluster` for code that blocks.

What a call does is in ``controls/``, which has a class for each theme.
"""

from __future__ import annotations

import hashlib
import random
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from types import TracebackType
from typing import Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioprod.protocol.acls import AclBinding, AclOperation
from aioprod.protocol.message import Message
from aioprod.protocol.record_reader import Record
from aioprod.public_module import Uncopyable, set_module
from aioprod.running_loop import running_loop
from aioprod.testing.broker.access.authorizer import ANYTHING, Authorizer
from aioprod.testing.broker.actions import Action
from aioprod.testing.broker.broker_node import listeners
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.cluster_settings import (
    ClusterSettings,
    check_at_least_one,
    check_range,
)
from aioprod.testing.broker.controls.access import AccessControls
from aioprod.testing.broker.controls.configs import ConfigControls
from aioprod.testing.broker.controls.groups import GroupControls
from aioprod.testing.broker.controls.nodes import CoordinatorKind, NodeControls
from aioprod.testing.broker.controls.replicas import ReplicaControls
from aioprod.testing.broker.controls.requests import RequestControls
from aioprod.testing.broker.controls.topics import TopicControls
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.groups.view import ConsumerGroup
from aioprod.testing.broker.imitation import Imitation
from aioprod.testing.broker.quirks import find
from aioprod.testing.broker.request_log import SeenRequest
from aioprod.testing.broker.rules import Rule, ThreadedRule
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.testing.broker.store import Store, Topic
from aioprod.testing.broker.telemetry.receiver import CODEC_NAMES, MetricsPush
from aioprod.testing.broker.transactions.transaction import Transaction
from aioprod.types import TopicPartition

T = TypeVar("T")
_MAX_NODES = 100
# Cluster ids are made without random numbers, of which tests in virtual time draw a fixed sequence.


@set_module("aioprod.testing")
class EmbeddedCluster(Uncopyable):
    """A Kafka cluster in this process and on this event loop, for tests, demos and experiments.

    It speaks Kafka's protocol to any client: metadata, produce (idempotent too), fetch, offsets,
    transactions, administration, consumer groups of both protocols, and share groups. Its
    ApiVersions response leaves out unsupported APIs. It writes nothing to disk, and deletes and
    compacts only on demand, by :meth:`apply_retention` and :meth:`compact`.

    Each node has its own port, leads some partitions and coordinates some groups and transactional
    ids. Nodes can be stopped, started and frozen, and leaders moved. Followers replicate at once,
    unless their replication is paused.

    Args:
        nodes: the number of nodes, 1 to 100; their ids are 1, 2, ...
        host: the address to bind and to advertise.
        port: the port of the first node; the next node uses the next port. 0 for any free ports.
            A node that is stopped and started again keeps its port.
        replication_factor: the default for new topics (broker setting default.replication.factor);
            None for 3, or for all nodes if there are fewer.
        num_partitions: the default for new topics (broker setting num.partitions).
        auto_create_topics: create a topic when a client asks for its metadata (broker setting
            auto.create.topics.enable).
        max_message_bytes: the largest record batch in bytes (broker setting message.max.bytes).
        max_memory_bytes: the most bytes of record batches to keep; further batches are refused with
            POLICY_VIOLATION.
        wall_clock: returns seconds since 1970, for log append time; None for ``time.time``.
        random_source: the source of topic and member ids. With one, runs repeat exactly, and the
            cluster's id is always the same; without, each cluster has another one.
        transaction_version: the feature transaction.version, 0 to 2. With 2, clients use the second
            transaction protocol (KIP-890).
        replica_lag_time_max_ms: the time in milliseconds after which a follower that lacks records
            is no longer in sync (broker setting replica.lag.time.max.ms).
        groups: limits of consumer groups; None for the defaults of
            :class:`aioprod.testing.GroupSettings`.
        security: TLS and SASL; None for neither.
        authorizer: access rights by user; None if all clients may do everything.
        client_metrics: take metrics of clients (KIP-714), as brokers with a ClientTelemetry plugin
            do; see :meth:`subscribe_to_metrics`.
        imitate: behave as a service such as ``"event-hubs"``, or with some of the quirks that
            docs/embedded-broker.md lists.

    Raises:
        ConfigError: if an argument is invalid.
    """

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
        authorizer: Authorizer | None = None,
        client_metrics: bool = False,
        imitate: str | Iterable[str] = (),
    ) -> None:
        check_at_least_one(
            num_partitions=num_partitions,
            max_message_bytes=max_message_bytes,
            max_memory_bytes=max_memory_bytes,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
        )
        check_range("nodes", nodes, 1, _MAX_NODES)
        check_range("transaction_version", transaction_version, 0, 2)
        self._cluster = Cluster(nodes, replication_factor, Imitation(find(imitate)))
        self._needs_id = random_source is None
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
            client_metrics=client_metrics,
            authorizer=authorizer,
        )
        self._dispatcher = Dispatcher(self._store)
        listening = listeners(self._cluster, host, port, self._dispatcher, security)
        self._nodes = NodeControls(self._cluster, self._store, *listening)
        self._topics = TopicControls(self._store)
        self._replicas = ReplicaControls(self._cluster, self._store)
        self._configs = ConfigControls(self._store)
        self._access = AccessControls(authorizer)
        self._groups = GroupControls(self._store)
        self._transactions = self._store.transactions
        self._telemetry = self._store.telemetry
        self._requests = RequestControls(self._cluster, self._dispatcher)

    async def start(self) -> Self:
        """Start all nodes.

        Raises:
            ConfigError: if a node is running.
            OSError: if a port is not available.
            WrongEventLoopError: if no event loop of asyncio runs here.
        """
        running_loop()
        await self._nodes.start()
        if self._needs_id:
            # Clusters that run at the same time differ, and runs in virtual time repeat exactly.
            place = f"{socket.gethostname()} {self.bootstrap_servers}"
            self._cluster.cluster_id = hashlib.sha256(place.encode()).hexdigest()[:22]
            self._needs_id = False
        return self

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @classmethod
    @contextmanager
    def in_thread(cls, **settings: Unpack[ClusterSettings]) -> Iterator[ThreadedCluster]:
        """Run a cluster on its own event loop in a separate thread until the ``with`` block ends,
        for synchronous code.

        The arguments are those of the class:
        ``with EmbeddedCluster.in_thread(num_partitions=3) as broker: ...``
        """
        with start_blocking_portal() as portal:
            broker = portal.call(lambda: cls(**settings))
            with portal.wrap_async_context_manager(broker):
                yield ThreadedCluster(broker, portal)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the running nodes, or of all nodes if none is running."""
        return self._nodes.bootstrap_servers

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return self._cluster.node_ids

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without Kafka's internal ones such as ``__consumer_offsets``."""
        return self._topics.topics

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return self._access.acls

    @property
    def group_ids(self) -> list[str]:
        """The ids of all consumer groups, sorted; also of groups that only committed offsets."""
        return self._groups.group_ids

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactional ids, each with its producer id, epoch and latest transaction."""
        return self._transactions.transactions

    @property
    def metrics_pushes(self) -> deque[MetricsPush]:
        """The last 1,000 pushes of metrics by clients, oldest first."""
        return self._telemetry.pushes

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests, oldest first."""
        return self._requests.requests

    # Generated by `python -m aioprod._tools.generate_cluster`:
    async def stop(self) -> None:
        """Close all ports and connections within five seconds, including connections that wait for
        an action. Topics and records are kept for the next start.
        """
        await self._nodes.stop()

    async def stop_all(self) -> None:
        """Stop all nodes at the same time: a complete outage. :meth:`start` or :meth:`start_node`
        ends it. Until then the ports stay reserved.
        """
        await self._nodes.stop_all()

    async def stop_node(self, node_id: int) -> None:
        """Shut down a node cleanly: replicate its partitions, then close its port and connections.

        The partitions that it led and the ids that it coordinated move to nodes that are running
        and in sync. A partition with no such node has no leader. The port stays reserved until the
        broker is stopped. Stopping a stopped node does nothing.
        """
        await self._nodes.stop_node(node_id)

    async def kill_node(self, node_id: int) -> None:
        """Stop a node at once, like ``kill -9``. Records that no new leader has are lost."""
        await self._nodes.kill_node(node_id)

    async def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """Start a stopped node on its old port, or on a new one. It leads only partitions that have
        no leader; use :meth:`move_leader` to give it more.

        Raises:
            ConfigError: if the node is running.
            OSError: if the port is not available.
        """
        await self._nodes.start_node(node_id, new_port=new_port)

    def freeze_node(self, node_id: int) -> None:
        """Make a node silent, like a process stopped by SIGSTOP: it accepts connections and reads
        requests, but answers none.

        It remains a leader, and as a follower it still replicates; use :meth:`pause_replication` to
        stop that too.
        """
        self._nodes.freeze_node(node_id)

    def unfreeze_node(self, node_id: int) -> None:
        """Let a frozen node handle the requests that it received, and continue."""
        self._nodes.unfreeze_node(node_id)

    def address(self, node_id: int) -> str:
        """Return ``host:port`` of a node. A node keeps its address while it is stopped."""
        return self._nodes.address(node_id)

    def connection_count(self, node_id: int) -> int:
        """Return the number of connections to a node."""
        return self._nodes.connection_count(node_id)

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node that coordinates a group or a transactional id, or -1 if no node is
        running.
        """
        return self._nodes.coordinator(kind, key)

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Make a node the coordinator of a group or a transactional id. While it is stopped, the
        next running node takes over.
        """
        self._nodes.move_coordinator(kind, key, node_id)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1 if none does.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._replicas.leader(topic, partition)

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition, under the next leader epoch. Records that only the
        old leader has are lost.

        Raises:
            BrokerError: if the partition does not exist.
            ConfigError: if the node is stopped or is not an in-sync replica.
        """
        self._replicas.move_leader(topic, partition, node_id)

    def pause_replication(self, node_id: int) -> None:
        """Stop replication to a node until :meth:`resume_replication`. The partitions that the node
        leads are not affected.

        Producers with acks=all wait for the node, and consumers do not see records that it lacks,
        until it leaves the in-sync replicas: ``replica_lag_time_max_ms`` after the first record
        that it lacks. New partitions count it as in sync at first, too.
        """
        self._replicas.pause_replication(node_id)

    def resume_replication(self, node_id: int) -> None:
        """Let a node fetch all records that it lacks at once, so that it is in sync again."""
        self._replicas.resume_replication(node_id)

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset up to which all in-sync replicas have a partition: consumers read only
        records before it.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._replicas.high_watermark(topic, partition)

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the nodes of a partition's in-sync replicas.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._replicas.in_sync_replicas(topic, partition)

    def end_offsets(self, topic: str, partition: int) -> dict[int, int]:
        """Return the end offset of each replica's log, by node.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._replicas.end_offsets(topic, partition)

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic.

        The first node leads partition 0, the second node partition 1, and so on. The other replicas
        of a partition are on the nodes that follow its leader.

        Args:
            name: the topic's name.
            num_partitions: None for the broker's num.partitions.
            configs: topic settings by Kafka's names.
            replication_factor: None for the broker's default.replication.factor.

        Raises:
            BrokerError: if the topic exists or an argument is invalid.
        """
        return self._topics.create_topic(
            name, num_partitions, configs, replication_factor=replication_factor
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            BrokerError: if the topic does not exist.
        """
        self._topics.delete_topic(name)

    def add_partitions(self, topic: str, num_partitions: int) -> None:
        """Increase the number of partitions of a topic to ``num_partitions``.

        Raises:
            BrokerError: if the topic does not exist or already has that many partitions.
        """
        self._topics.add_partitions(topic, num_partitions)

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """Return the records of a partition, or of all partitions in order, without transaction
        markers.

        Args:
            topic: the topic's name.
            partition: None for all partitions.
            committed_only: leave out the records of open and aborted transactions.

        Raises:
            BrokerError: if the topic or the partition does not exist.
        """
        return self._topics.records(topic, partition, committed_only=committed_only)

    async def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """Wait until a topic has at least ``count`` records, and return all its records.

        Raises:
            KafkaTimeoutError: if the topic has fewer records after ``timeout_seconds``.
        """
        return await self._topics.wait_for_records(topic, count, timeout_seconds)

    def apply_retention(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Delete what retention.ms and retention.bytes of a topic allow to delete, as Kafka does in
        the background, and return how many records that were.

        Whole batches are deleted, oldest first, and the partition starts later: those whose newest
        record is older than retention.ms, and those that are not needed for retention.bytes.

        Args:
            topic: None for all topics with cleanup.policy=delete.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy has no ``delete``.
        """
        return self._topics.apply_retention(topic, now_ms)

    def compact(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Keep only the last record of each key, as Kafka's log cleaner does in the background, and
        return how many records were removed.

        Offsets do not change. Records of open transactions and all after them stay, and so do
        transaction markers; records of aborted transactions are removed. A tombstone stays until a
        compaction that comes delete.retention.ms after the first one that saw it.

        Args:
            topic: None for all topics with cleanup.policy=compact.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy has no ``compact``.
        """
        return self._topics.compact(topic, now_ms)

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records of a partition before an offset, but none that consumers can't read
        yet.

        Raises:
            BrokerError: if the partition does not exist.
        """
        self._topics.delete_records(topic, partition, before_offset)

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Return the effective settings of a topic by Kafka's names.

        Raises:
            BrokerError: if the topic does not exist.
        """
        return self._configs.topic_configs(topic)

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change settings of a topic. None resets a setting to the broker's default.

        Raises:
            BrokerError: if the topic does not exist or a value is invalid.
        """
        self._configs.alter_topic_configs(topic, configs)

    def broker_configs(self, node_id: int) -> dict[str, str | None]:
        """Return the effective settings of a broker by Kafka's names. Secrets are None."""
        return self._configs.broker_configs(node_id)

    def alter_broker_configs(
        self, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """Change settings of one broker, or of all brokers if ``node_id`` is None.

        Raises:
            BrokerError: if a value is invalid, or a setting can't be changed while the broker is
                running.
        """
        self._configs.alter_broker_configs(configs, node_id)

    def set_quota(
        self,
        limits: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """Set quotas of a user, of a client id, or of a client id of a user.

        ``producer_byte_rate`` and ``consumer_byte_rate``, in bytes per second and node, throttle
        clients; Kafka's other quotas are stored and described, but have no effect. As in Kafka, a
        client is throttled only when it is ten seconds ahead.

        Args:
            limits: the quotas by name; None removes one.
            user: the user's name; "" for all users that have no quota.
            client_id: the client id; "" for all client ids that have no quota.

        Raises:
            BrokerError: if a name or a value is invalid.
        """
        self._configs.set_quota(limits, user=user, client_id=client_id)

    def allow(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Allow a principal operations on a resource; without a name of one, on the cluster:
        ``broker.allow("User:alice", AclOperation.WRITE, topic="orders")``.

        Args:
            principal: such as ``User:alice``; ``User:*`` for all.
            operations: what the principal may do.
            topic: the name of a topic; ``*`` for all.
            group: the id of a group; ``*`` for all.
            transactional_id: a transactional id; ``*`` for all.
            prefixed: the name is the beginning of names.
            host: the address of clients; ``*`` for any.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        self._access.allow(
            principal,
            *operations,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            prefixed=prefixed,
            host=host,
        )

    def deny(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Deny a principal operations, whatever is allowed. The arguments are those of
        :meth:`allow`.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        self._access.deny(
            principal,
            *operations,
            topic=topic,
            group=group,
            transactional_id=transactional_id,
            prefixed=prefixed,
            host=host,
        )

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group's current state, members and offsets.

        Raises:
            BrokerError: if the group does not exist (GROUP_ID_NOT_FOUND).
        """
        return self._groups.group(group_id)

    async def wait_for_group(
        self,
        group_id: str,
        state: str = "Stable",
        *,
        member_count: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ConsumerGroup:
        """Wait until a consumer group is in a state, and return the group.

        Args:
            group_id: the group's id.
            state: one of the states of :class:`ConsumerGroup`.
            member_count: the number of members to wait for; None for any number.
            timeout_seconds: the longest time to wait.

        Raises:
            KafkaTimeoutError: if the group is not in that state after ``timeout_seconds``.
        """
        return await self._groups.wait_for_group(
            group_id, state, member_count=member_count, timeout_seconds=timeout_seconds
        )

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group, without those of open transactions."""
        return self._groups.committed_offsets(group_id)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once, as if it had sent no heartbeat for session.timeout.ms.

        Raises:
            BrokerError: if the group or the member does not exist.
        """
        self._groups.expire_member(group_id, member_id)

    def rebalance_group(self, group_id: str) -> None:
        """Make all members of a consumer group rejoin; with the consumer protocol, begin a new
        epoch.

        Raises:
            BrokerError: if the group has no members.
        """
        self._groups.rebalance_group(group_id)

    def set_group_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a consumer group without clients, so that commits by other members are
        refused (KIP-447).

        Args:
            group_id: the group's id.
            generation_id: the group's generation.
            members: group.instance.id, or None, by member id.
        """
        self._groups.set_group_members(group_id, generation_id, members)

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when its timeout has passed. Do
        nothing if no transaction is open.
        """
        self._transactions.expire_transaction(transactional_id)

    def pause_markers(self) -> None:
        """Write no transaction markers until :meth:`resume_markers`: transactions that end
        before that stay in PrepareCommit or PrepareAbort.
        """
        self._transactions.pause_markers()

    def resume_markers(self) -> None:
        """Write the pending transaction markers, and stop pausing new ones."""
        self._transactions.resume_markers()

    def subscribe_to_metrics(
        self,
        metrics: Iterable[str] = ("*",),
        *,
        push_interval_ms: int = 300000,
        delta: bool = True,
        max_bytes: int = 1 << 20,
        compression_types: Iterable[str] = CODEC_NAMES,
    ) -> None:
        """Ask all clients to push metrics (KIP-714). The cluster must be made with
        ``client_metrics=True``.

        Args:
            metrics: prefixes of the names of metrics; ``"*"`` for all. Empty for none.
            push_interval_ms: the time between two pushes of a client.
            delta: whether sums count since the last push, and not since the client's start.
            max_bytes: the largest push (broker setting telemetry.max.bytes).
            compression_types: the accepted codecs, the preferred one first.

        Raises:
            ConfigError: if the cluster has no receiver, or an argument is invalid.
        """
        self._telemetry.subscribe_to_metrics(
            metrics,
            push_interval_ms=push_interval_ms,
            delta=delta,
            max_bytes=max_bytes,
            compression_types=compression_types,
        )

    def on(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> Rule:
        """Apply actions to the next requests of an API:
        ``cluster.on(ApiKey.PRODUCE, drop_after(), nth=3)``.

        One request uses one rule. Rules of the same API are used in the order in which they were
        made.

        Args:
            api_key: the API, such as ``ApiKey.PRODUCE``.
            actions: what to do, such as ``fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)``.
            nth: the first request to act on, counted from now.
            times: the number of requests to act on; None for no limit.
            where: count only requests for which this returns true.
            node: count only requests to this node; None for any node.

        Raises:
            ConfigError: if an argument is invalid.
        """
        return self._requests.on(api_key, *actions, nth=nth, times=times, where=where, node=node)

    def on_every(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> Rule:
        """Apply actions to every request of an API, or to every ``nth``, until the rule is
        canceled: ``cluster.on_every(ApiKey.FETCH, delay(0.1))``.

        The other arguments are those of :meth:`on`.

        Raises:
            ConfigError: if an argument is invalid.
        """
        return self._requests.on_every(api_key, *actions, nth=nth, where=where, node=node)

    def clear_rules(self) -> None:
        """Remove all rules made by :meth:`on` and :meth:`on_every`."""
        self._requests.clear_rules()

    def request_count(self, api_key: int, *, node: int | None = None) -> int:
        """Return the number of requests of an API that have arrived at a node, or at all nodes if
        ``node`` is None.
        """
        return self._requests.request_count(api_key, node=node)

    async def wait_for_request(
        self,
        api_key: int,
        count: int = 1,
        *,
        node: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Wait until ``count`` requests of an API have arrived since the cluster was created,
        whether or not they were applied.

        To wait for one more request:
        ``await cluster.wait_for_request(key, cluster.request_count(key) + 1)``.

        Raises:
            KafkaTimeoutError: if fewer requests have arrived after ``timeout_seconds``.
        """
        await self._requests.wait_for_request(
            api_key, count, node=node, timeout_seconds=timeout_seconds
        )

    # End of the generated part.


@set_module("aioprod.testing")
class ThreadedCluster(Uncopyable):
    """The calls of an :class:`EmbeddedCluster`, for any thread but that of its event loop.

    Each call runs on the cluster's event loop and blocks until it is done. Events for ``hold``
    belong to that loop: make and set them with :meth:`call`, as in ``broker.call(asyncio.Event)``.
    """

    def __init__(self, broker: EmbeddedCluster, portal: BlockingPortal) -> None:
        self._broker: EmbeddedCluster = broker
        self._portal = portal

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the cluster's event loop and return its result."""
        return self._portal.call(function)

    def start(self) -> None:
        """Start again after :meth:`stop` or :meth:`stop_all`, on the same ports."""
        self._portal.call(self._broker.start)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the running nodes, or of all nodes if none is running."""
        return self._portal.call(lambda: self._broker.bootstrap_servers)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return self._broker.node_ids

    @property
    def topics(self) -> Mapping[str, Topic]:
        """A copy of the topics by name."""
        return self._portal.call(lambda: dict(self._broker.topics))

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return self._portal.call(lambda: self._broker.acls)

    @property
    def group_ids(self) -> list[str]:
        """The ids of all consumer groups, sorted; also of groups that only committed offsets."""
        return self._portal.call(lambda: self._broker.group_ids)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """A copy of :attr:`EmbeddedCluster.transactions`."""
        return self._portal.call(lambda: deepcopy(dict(self._broker.transactions)))

    @property
    def metrics_pushes(self) -> list[MetricsPush]:
        """A copy of the last 1,000 pushes of metrics by clients, oldest first."""
        return self._portal.call(lambda: list(self._broker.metrics_pushes))

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last 10,000 requests, oldest first."""
        return self._portal.call(lambda: list(self._broker.requests))

    # Generated by `python -m aioprod._tools.generate_cluster`:
    def stop(self) -> None:
        """Close all ports and connections within five seconds, including connections that wait for
        an action. Topics and records are kept for the next start.
        """
        self._portal.call(lambda: self._broker.stop())

    def stop_all(self) -> None:
        """Stop all nodes at the same time: a complete outage. :meth:`start` or :meth:`start_node`
        ends it. Until then the ports stay reserved.
        """
        self._portal.call(lambda: self._broker.stop_all())

    def stop_node(self, node_id: int) -> None:
        """Shut down a node cleanly: replicate its partitions, then close its port and connections.

        The partitions that it led and the ids that it coordinated move to nodes that are running
        and in sync. A partition with no such node has no leader. The port stays reserved until the
        broker is stopped. Stopping a stopped node does nothing.
        """
        self._portal.call(lambda: self._broker.stop_node(node_id))

    def kill_node(self, node_id: int) -> None:
        """Stop a node at once, like ``kill -9``. Records that no new leader has are lost."""
        self._portal.call(lambda: self._broker.kill_node(node_id))

    def start_node(self, node_id: int, *, new_port: bool = False) -> None:
        """Start a stopped node on its old port, or on a new one. It leads only partitions that have
        no leader; use :meth:`move_leader` to give it more.

        Raises:
            ConfigError: if the node is running.
            OSError: if the port is not available.
        """
        self._portal.call(lambda: self._broker.start_node(node_id, new_port=new_port))

    def freeze_node(self, node_id: int) -> None:
        """Make a node silent, like a process stopped by SIGSTOP: it accepts connections and reads
        requests, but answers none.

        It remains a leader, and as a follower it still replicates; use :meth:`pause_replication` to
        stop that too.
        """
        self._portal.call(lambda: self._broker.freeze_node(node_id))

    def unfreeze_node(self, node_id: int) -> None:
        """Let a frozen node handle the requests that it received, and continue."""
        self._portal.call(lambda: self._broker.unfreeze_node(node_id))

    def address(self, node_id: int) -> str:
        """Return ``host:port`` of a node. A node keeps its address while it is stopped."""
        return self._portal.call(lambda: self._broker.address(node_id))

    def connection_count(self, node_id: int) -> int:
        """Return the number of connections to a node."""
        return self._portal.call(lambda: self._broker.connection_count(node_id))

    def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Return the node that coordinates a group or a transactional id, or -1 if no node is
        running.
        """
        return self._portal.call(lambda: self._broker.coordinator(kind, key))

    def move_coordinator(self, kind: CoordinatorKind, key: str, node_id: int) -> None:
        """Make a node the coordinator of a group or a transactional id. While it is stopped, the
        next running node takes over.
        """
        self._portal.call(lambda: self._broker.move_coordinator(kind, key, node_id))

    def leader(self, topic: str, partition: int) -> int:
        """Return the node that leads a partition, or -1 if none does.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._portal.call(lambda: self._broker.leader(topic, partition))

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        """Make a node the leader of a partition, under the next leader epoch. Records that only the
        old leader has are lost.

        Raises:
            BrokerError: if the partition does not exist.
            ConfigError: if the node is stopped or is not an in-sync replica.
        """
        self._portal.call(lambda: self._broker.move_leader(topic, partition, node_id))

    def pause_replication(self, node_id: int) -> None:
        """Stop replication to a node until :meth:`resume_replication`. The partitions that the node
        leads are not affected.

        Producers with acks=all wait for the node, and consumers do not see records that it lacks,
        until it leaves the in-sync replicas: ``replica_lag_time_max_ms`` after the first record
        that it lacks. New partitions count it as in sync at first, too.
        """
        self._portal.call(lambda: self._broker.pause_replication(node_id))

    def resume_replication(self, node_id: int) -> None:
        """Let a node fetch all records that it lacks at once, so that it is in sync again."""
        self._portal.call(lambda: self._broker.resume_replication(node_id))

    def high_watermark(self, topic: str, partition: int) -> int:
        """Return the offset up to which all in-sync replicas have a partition: consumers read only
        records before it.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._portal.call(lambda: self._broker.high_watermark(topic, partition))

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the nodes of a partition's in-sync replicas.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._portal.call(lambda: self._broker.in_sync_replicas(topic, partition))

    def end_offsets(self, topic: str, partition: int) -> dict[int, int]:
        """Return the end offset of each replica's log, by node.

        Raises:
            BrokerError: if the partition does not exist.
        """
        return self._portal.call(lambda: self._broker.end_offsets(topic, partition))

    def create_topic(
        self,
        name: str,
        num_partitions: int | None = None,
        configs: Mapping[str, str | None] | None = None,
        *,
        replication_factor: int | None = None,
    ) -> Topic:
        """Create a topic.

        The first node leads partition 0, the second node partition 1, and so on. The other replicas
        of a partition are on the nodes that follow its leader.

        Args:
            name: the topic's name.
            num_partitions: None for the broker's num.partitions.
            configs: topic settings by Kafka's names.
            replication_factor: None for the broker's default.replication.factor.

        Raises:
            BrokerError: if the topic exists or an argument is invalid.
        """
        return self._portal.call(
            lambda: self._broker.create_topic(
                name, num_partitions, configs, replication_factor=replication_factor
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its records.

        Raises:
            BrokerError: if the topic does not exist.
        """
        self._portal.call(lambda: self._broker.delete_topic(name))

    def add_partitions(self, topic: str, num_partitions: int) -> None:
        """Increase the number of partitions of a topic to ``num_partitions``.

        Raises:
            BrokerError: if the topic does not exist or already has that many partitions.
        """
        self._portal.call(lambda: self._broker.add_partitions(topic, num_partitions))

    def records(
        self, topic: str, partition: int | None = None, *, committed_only: bool = False
    ) -> list[Record]:
        """Return the records of a partition, or of all partitions in order, without transaction
        markers.

        Args:
            topic: the topic's name.
            partition: None for all partitions.
            committed_only: leave out the records of open and aborted transactions.

        Raises:
            BrokerError: if the topic or the partition does not exist.
        """
        return self._portal.call(
            lambda: self._broker.records(topic, partition, committed_only=committed_only)
        )

    def wait_for_records(
        self, topic: str, count: int, timeout_seconds: float = 10.0
    ) -> list[Record]:
        """Wait until a topic has at least ``count`` records, and return all its records.

        Raises:
            KafkaTimeoutError: if the topic has fewer records after ``timeout_seconds``.
        """
        return self._portal.call(
            lambda: self._broker.wait_for_records(topic, count, timeout_seconds)
        )

    def apply_retention(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Delete what retention.ms and retention.bytes of a topic allow to delete, as Kafka does in
        the background, and return how many records that were.

        Whole batches are deleted, oldest first, and the partition starts later: those whose newest
        record is older than retention.ms, and those that are not needed for retention.bytes.

        Args:
            topic: None for all topics with cleanup.policy=delete.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy has no ``delete``.
        """
        return self._portal.call(lambda: self._broker.apply_retention(topic, now_ms))

    def compact(self, topic: str | None = None, now_ms: int | None = None) -> int:
        """Keep only the last record of each key, as Kafka's log cleaner does in the background, and
        return how many records were removed.

        Offsets do not change. Records of open transactions and all after them stay, and so do
        transaction markers; records of aborted transactions are removed. A tombstone stays until a
        compaction that comes delete.retention.ms after the first one that saw it.

        Args:
            topic: None for all topics with cleanup.policy=compact.
            now_ms: the time in milliseconds since 1970; None for the broker's clock.

        Raises:
            BrokerError: if the topic does not exist, or its cleanup.policy has no ``compact``.
        """
        return self._portal.call(lambda: self._broker.compact(topic, now_ms))

    def delete_records(self, topic: str, partition: int, before_offset: int) -> None:
        """Delete the records of a partition before an offset, but none that consumers can't read
        yet.

        Raises:
            BrokerError: if the partition does not exist.
        """
        self._portal.call(lambda: self._broker.delete_records(topic, partition, before_offset))

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Return the effective settings of a topic by Kafka's names.

        Raises:
            BrokerError: if the topic does not exist.
        """
        return self._portal.call(lambda: self._broker.topic_configs(topic))

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str | None]) -> None:
        """Change settings of a topic. None resets a setting to the broker's default.

        Raises:
            BrokerError: if the topic does not exist or a value is invalid.
        """
        self._portal.call(lambda: self._broker.alter_topic_configs(topic, configs))

    def broker_configs(self, node_id: int) -> dict[str, str | None]:
        """Return the effective settings of a broker by Kafka's names. Secrets are None."""
        return self._portal.call(lambda: self._broker.broker_configs(node_id))

    def alter_broker_configs(
        self, configs: Mapping[str, str | None], node_id: int | None = None
    ) -> None:
        """Change settings of one broker, or of all brokers if ``node_id`` is None.

        Raises:
            BrokerError: if a value is invalid, or a setting can't be changed while the broker is
                running.
        """
        self._portal.call(lambda: self._broker.alter_broker_configs(configs, node_id))

    def set_quota(
        self,
        limits: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
    ) -> None:
        """Set quotas of a user, of a client id, or of a client id of a user.

        ``producer_byte_rate`` and ``consumer_byte_rate``, in bytes per second and node, throttle
        clients; Kafka's other quotas are stored and described, but have no effect. As in Kafka, a
        client is throttled only when it is ten seconds ahead.

        Args:
            limits: the quotas by name; None removes one.
            user: the user's name; "" for all users that have no quota.
            client_id: the client id; "" for all client ids that have no quota.

        Raises:
            BrokerError: if a name or a value is invalid.
        """
        self._portal.call(lambda: self._broker.set_quota(limits, user=user, client_id=client_id))

    def allow(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Allow a principal operations on a resource; without a name of one, on the cluster:
        ``broker.allow("User:alice", AclOperation.WRITE, topic="orders")``.

        Args:
            principal: such as ``User:alice``; ``User:*`` for all.
            operations: what the principal may do.
            topic: the name of a topic; ``*`` for all.
            group: the id of a group; ``*`` for all.
            transactional_id: a transactional id; ``*`` for all.
            prefixed: the name is the beginning of names.
            host: the address of clients; ``*`` for any.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        self._portal.call(
            lambda: self._broker.allow(
                principal,
                *operations,
                topic=topic,
                group=group,
                transactional_id=transactional_id,
                prefixed=prefixed,
                host=host,
            )
        )

    def deny(
        self,
        principal: str,
        *operations: AclOperation,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        prefixed: bool = False,
        host: str = ANYTHING,
    ) -> None:
        """Deny a principal operations, whatever is allowed. The arguments are those of
        :meth:`allow`.

        Raises:
            ConfigError: if the cluster has no authorizer, or an argument is invalid.
        """
        self._portal.call(
            lambda: self._broker.deny(
                principal,
                *operations,
                topic=topic,
                group=group,
                transactional_id=transactional_id,
                prefixed=prefixed,
                host=host,
            )
        )

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group's current state, members and offsets.

        Raises:
            BrokerError: if the group does not exist (GROUP_ID_NOT_FOUND).
        """
        return self._portal.call(lambda: self._broker.group(group_id))

    def wait_for_group(
        self,
        group_id: str,
        state: str = "Stable",
        *,
        member_count: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> ConsumerGroup:
        """Wait until a consumer group is in a state, and return the group.

        Args:
            group_id: the group's id.
            state: one of the states of :class:`ConsumerGroup`.
            member_count: the number of members to wait for; None for any number.
            timeout_seconds: the longest time to wait.

        Raises:
            KafkaTimeoutError: if the group is not in that state after ``timeout_seconds``.
        """
        return self._portal.call(
            lambda: self._broker.wait_for_group(
                group_id, state, member_count=member_count, timeout_seconds=timeout_seconds
            )
        )

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group, without those of open transactions."""
        return self._portal.call(lambda: self._broker.committed_offsets(group_id))

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once, as if it had sent no heartbeat for session.timeout.ms.

        Raises:
            BrokerError: if the group or the member does not exist.
        """
        self._portal.call(lambda: self._broker.expire_member(group_id, member_id))

    def rebalance_group(self, group_id: str) -> None:
        """Make all members of a consumer group rejoin; with the consumer protocol, begin a new
        epoch.

        Raises:
            BrokerError: if the group has no members.
        """
        self._portal.call(lambda: self._broker.rebalance_group(group_id))

    def set_group_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a consumer group without clients, so that commits by other members are
        refused (KIP-447).

        Args:
            group_id: the group's id.
            generation_id: the group's generation.
            members: group.instance.id, or None, by member id.
        """
        self._portal.call(lambda: self._broker.set_group_members(group_id, generation_id, members))

    def expire_transaction(self, transactional_id: str) -> None:
        """Abort an open transaction and fence its producer, as when its timeout has passed. Do
        nothing if no transaction is open.
        """
        self._portal.call(lambda: self._broker.expire_transaction(transactional_id))

    def pause_markers(self) -> None:
        """Write no transaction markers until :meth:`resume_markers`: transactions that end
        before that stay in PrepareCommit or PrepareAbort.
        """
        self._portal.call(lambda: self._broker.pause_markers())

    def resume_markers(self) -> None:
        """Write the pending transaction markers, and stop pausing new ones."""
        self._portal.call(lambda: self._broker.resume_markers())

    def subscribe_to_metrics(
        self,
        metrics: Iterable[str] = ("*",),
        *,
        push_interval_ms: int = 300000,
        delta: bool = True,
        max_bytes: int = 1 << 20,
        compression_types: Iterable[str] = CODEC_NAMES,
    ) -> None:
        """Ask all clients to push metrics (KIP-714). The cluster must be made with
        ``client_metrics=True``.

        Args:
            metrics: prefixes of the names of metrics; ``"*"`` for all. Empty for none.
            push_interval_ms: the time between two pushes of a client.
            delta: whether sums count since the last push, and not since the client's start.
            max_bytes: the largest push (broker setting telemetry.max.bytes).
            compression_types: the accepted codecs, the preferred one first.

        Raises:
            ConfigError: if the cluster has no receiver, or an argument is invalid.
        """
        self._portal.call(
            lambda: self._broker.subscribe_to_metrics(
                metrics,
                push_interval_ms=push_interval_ms,
                delta=delta,
                max_bytes=max_bytes,
                compression_types=compression_types,
            )
        )

    def on(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> ThreadedRule:
        """Apply actions to the next requests of an API:
        ``cluster.on(ApiKey.PRODUCE, drop_after(), nth=3)``.

        One request uses one rule. Rules of the same API are used in the order in which they were
        made.

        Args:
            api_key: the API, such as ``ApiKey.PRODUCE``.
            actions: what to do, such as ``fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)``.
            nth: the first request to act on, counted from now.
            times: the number of requests to act on; None for no limit.
            where: count only requests for which this returns true.
            node: count only requests to this node; None for any node.

        Raises:
            ConfigError: if an argument is invalid.
        """
        return ThreadedRule(
            self._portal.call(
                lambda: self._broker.on(
                    api_key, *actions, nth=nth, times=times, where=where, node=node
                )
            ),
            self._portal,
        )

    def on_every(
        self,
        api_key: int,
        *actions: Action,
        nth: int = 1,
        where: Callable[[Message], bool] | None = None,
        node: int | None = None,
    ) -> ThreadedRule:
        """Apply actions to every request of an API, or to every ``nth``, until the rule is
        canceled: ``cluster.on_every(ApiKey.FETCH, delay(0.1))``.

        The other arguments are those of :meth:`on`.

        Raises:
            ConfigError: if an argument is invalid.
        """
        return ThreadedRule(
            self._portal.call(
                lambda: self._broker.on_every(api_key, *actions, nth=nth, where=where, node=node)
            ),
            self._portal,
        )

    def clear_rules(self) -> None:
        """Remove all rules made by :meth:`on` and :meth:`on_every`."""
        self._portal.call(lambda: self._broker.clear_rules())

    def request_count(self, api_key: int, *, node: int | None = None) -> int:
        """Return the number of requests of an API that have arrived at a node, or at all nodes if
        ``node`` is None.
        """
        return self._portal.call(lambda: self._broker.request_count(api_key, node=node))

    def wait_for_request(
        self,
        api_key: int,
        count: int = 1,
        *,
        node: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Wait until ``count`` requests of an API have arrived since the cluster was created,
        whether or not they were applied.

        To wait for one more request:
        ``await cluster.wait_for_request(key, cluster.request_count(key) + 1)``.

        Raises:
            KafkaTimeoutError: if fewer requests have arrived after ``timeout_seconds``.
        """
        self._portal.call(
            lambda: self._broker.wait_for_request(
                api_key, count, node=node, timeout_seconds=timeout_seconds
            )
        )

    # End of the generated part.

"""The embedded broker as tests use it: :class:`EmbeddedCluster` on their event loop, and
:class:`ThreadedCluster` for code that blocks.

Both only forward their calls to ``controls/``, which has a class for each theme.
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

from aioprod.protocol.acls import AclBinding
from aioprod.public_module import Uncopyable, set_module
from aioprod.running_loop import running_loop
from aioprod.testing.broker.access.authorizer import Authorizer
from aioprod.testing.broker.broker_node import listeners
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.cluster_settings import (
    ClusterSettings,
    check_at_least_one,
    check_range,
)
from aioprod.testing.broker.controls.access import AccessControls
from aioprod.testing.broker.controls.configs import ConfigControls
from aioprod.testing.broker.controls.forwarding import blocking, blocking_rule, forward
from aioprod.testing.broker.controls.groups import GroupControls
from aioprod.testing.broker.controls.nodes import NodeControls
from aioprod.testing.broker.controls.replicas import ReplicaControls
from aioprod.testing.broker.controls.requests import RequestControls
from aioprod.testing.broker.controls.topics import TopicControls
from aioprod.testing.broker.dispatcher import Dispatcher
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.imitation import Imitation
from aioprod.testing.broker.quirks import find
from aioprod.testing.broker.request_log import SeenRequest
from aioprod.testing.broker.security import BrokerSecurity
from aioprod.testing.broker.store import Store, Topic
from aioprod.testing.broker.telemetry.receiver import MetricsPush, TelemetryReceiver
from aioprod.testing.broker.transactions.coordinator import TransactionCoordinator
from aioprod.testing.broker.transactions.transaction import Transaction

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

    # -- starting and stopping ---------------------------------------------------------------------

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

    stop = forward("_nodes", NodeControls.stop)
    stop_all = forward("_nodes", NodeControls.stop_all)
    stop_node = forward("_nodes", NodeControls.stop_node)
    kill_node = forward("_nodes", NodeControls.kill_node)
    start_node = forward("_nodes", NodeControls.start_node)
    freeze_node = forward("_nodes", NodeControls.freeze_node)
    unfreeze_node = forward("_nodes", NodeControls.unfreeze_node)

    # -- nodes and replicas ------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the running nodes, or of all nodes if none is running."""
        return self._nodes.bootstrap_servers

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return self._cluster.node_ids

    address = forward("_nodes", NodeControls.address)
    connection_count = forward("_nodes", NodeControls.connection_count)
    coordinator = forward("_nodes", NodeControls.coordinator)
    move_coordinator = forward("_nodes", NodeControls.move_coordinator)
    leader = forward("_replicas", ReplicaControls.leader)
    move_leader = forward("_replicas", ReplicaControls.move_leader)
    pause_replication = forward("_replicas", ReplicaControls.pause_replication)
    resume_replication = forward("_replicas", ReplicaControls.resume_replication)
    high_watermark = forward("_replicas", ReplicaControls.high_watermark)
    in_sync_replicas = forward("_replicas", ReplicaControls.in_sync_replicas)
    end_offsets = forward("_replicas", ReplicaControls.end_offsets)

    # -- topics and settings -----------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without Kafka's internal ones such as ``__consumer_offsets``."""
        return self._topics.topics

    create_topic = forward("_topics", TopicControls.create_topic)
    delete_topic = forward("_topics", TopicControls.delete_topic)
    add_partitions = forward("_topics", TopicControls.add_partitions)
    records = forward("_topics", TopicControls.records)
    wait_for_records = forward("_topics", TopicControls.wait_for_records)
    delete_records = forward("_topics", TopicControls.delete_records)
    apply_retention = forward("_topics", TopicControls.apply_retention)
    compact = forward("_topics", TopicControls.compact)
    topic_configs = forward("_configs", ConfigControls.topic_configs)
    alter_topic_configs = forward("_configs", ConfigControls.alter_topic_configs)
    broker_configs = forward("_configs", ConfigControls.broker_configs)
    alter_broker_configs = forward("_configs", ConfigControls.alter_broker_configs)
    set_quota = forward("_configs", ConfigControls.set_quota)

    # -- access rights -----------------------------------------------------------------------------

    allow = forward("_access", AccessControls.allow)
    deny = forward("_access", AccessControls.deny)

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return self._access.acls

    # -- groups and transactions -------------------------------------------------------------------

    @property
    def group_ids(self) -> list[str]:
        """The ids of all consumer groups, sorted; also of groups that only committed offsets."""
        return self._groups.group_ids

    group = forward("_groups", GroupControls.group)
    wait_for_group = forward("_groups", GroupControls.wait_for_group)
    committed_offsets = forward("_groups", GroupControls.committed_offsets)
    expire_member = forward("_groups", GroupControls.expire_member)
    rebalance_group = forward("_groups", GroupControls.rebalance_group)
    set_group_members = forward("_groups", GroupControls.set_group_members)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """The transactional ids, each with its producer id, epoch and latest transaction."""
        return self._transactions.transactions

    expire_transaction = forward("_transactions", TransactionCoordinator.expire_transaction)
    pause_markers = forward("_transactions", TransactionCoordinator.pause_markers)
    resume_markers = forward("_transactions", TransactionCoordinator.resume_markers)

    # -- metrics of clients ------------------------------------------------------------------------

    subscribe_to_metrics = forward("_telemetry", TelemetryReceiver.subscribe_to_metrics)

    @property
    def metrics_pushes(self) -> deque[MetricsPush]:
        """The last 1,000 pushes of metrics by clients, oldest first."""
        return self._telemetry.pushes

    # -- requests ----------------------------------------------------------------------------------

    @property
    def requests(self) -> deque[SeenRequest]:
        """The last 10,000 requests, oldest first."""
        return self._requests.requests

    on = forward("_requests", RequestControls.on)
    on_every = forward("_requests", RequestControls.on_every)
    clear_rules = forward("_requests", RequestControls.clear_rules)
    request_count = forward("_requests", RequestControls.request_count)
    wait_for_request = forward("_requests", RequestControls.wait_for_request)


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

    # -- starting and stopping ---------------------------------------------------------------------

    def start(self) -> None:
        """Start again after :meth:`stop` or :meth:`stop_all`, on the same ports."""
        self._portal.call(self._broker.start)

    stop = blocking(EmbeddedCluster.stop)
    stop_all = blocking(EmbeddedCluster.stop_all)
    stop_node = blocking(EmbeddedCluster.stop_node)
    kill_node = blocking(EmbeddedCluster.kill_node)
    start_node = blocking(EmbeddedCluster.start_node)
    freeze_node = blocking(EmbeddedCluster.freeze_node)
    unfreeze_node = blocking(EmbeddedCluster.unfreeze_node)

    # -- nodes and replicas ------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of the running nodes, or of all nodes if none is running."""
        return self._portal.call(lambda: self._broker.bootstrap_servers)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """The ids of all nodes, running or not."""
        return self._broker.node_ids

    address = blocking(EmbeddedCluster.address)
    connection_count = blocking(EmbeddedCluster.connection_count)
    coordinator = blocking(EmbeddedCluster.coordinator)
    move_coordinator = blocking(EmbeddedCluster.move_coordinator)
    leader = blocking(EmbeddedCluster.leader)
    move_leader = blocking(EmbeddedCluster.move_leader)
    pause_replication = blocking(EmbeddedCluster.pause_replication)
    resume_replication = blocking(EmbeddedCluster.resume_replication)
    high_watermark = blocking(EmbeddedCluster.high_watermark)
    in_sync_replicas = blocking(EmbeddedCluster.in_sync_replicas)
    end_offsets = blocking(EmbeddedCluster.end_offsets)

    # -- topics and settings -----------------------------------------------------------------------

    @property
    def topics(self) -> Mapping[str, Topic]:
        """A copy of the topics by name."""
        return self._portal.call(lambda: dict(self._broker.topics))

    create_topic = blocking(EmbeddedCluster.create_topic)
    delete_topic = blocking(EmbeddedCluster.delete_topic)
    add_partitions = blocking(EmbeddedCluster.add_partitions)
    records = blocking(EmbeddedCluster.records)
    wait_for_records = blocking(EmbeddedCluster.wait_for_records)
    delete_records = blocking(EmbeddedCluster.delete_records)
    apply_retention = blocking(EmbeddedCluster.apply_retention)
    compact = blocking(EmbeddedCluster.compact)
    topic_configs = blocking(EmbeddedCluster.topic_configs)
    alter_topic_configs = blocking(EmbeddedCluster.alter_topic_configs)
    broker_configs = blocking(EmbeddedCluster.broker_configs)
    alter_broker_configs = blocking(EmbeddedCluster.alter_broker_configs)
    set_quota = blocking(EmbeddedCluster.set_quota)

    # -- access rights -----------------------------------------------------------------------------

    allow = blocking(EmbeddedCluster.allow)
    deny = blocking(EmbeddedCluster.deny)

    @property
    def acls(self) -> list[AclBinding]:
        """The ACLs, oldest first."""
        return self._portal.call(lambda: self._broker.acls)

    # -- groups and transactions -------------------------------------------------------------------

    @property
    def group_ids(self) -> list[str]:
        """The ids of all consumer groups, sorted; also of groups that only committed offsets."""
        return self._portal.call(lambda: self._broker.group_ids)

    group = blocking(EmbeddedCluster.group)
    wait_for_group = blocking(EmbeddedCluster.wait_for_group)
    committed_offsets = blocking(EmbeddedCluster.committed_offsets)
    expire_member = blocking(EmbeddedCluster.expire_member)
    rebalance_group = blocking(EmbeddedCluster.rebalance_group)
    set_group_members = blocking(EmbeddedCluster.set_group_members)

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """A copy of :attr:`EmbeddedCluster.transactions`."""
        return self._portal.call(lambda: deepcopy(dict(self._broker.transactions)))

    expire_transaction = blocking(EmbeddedCluster.expire_transaction)
    pause_markers = blocking(EmbeddedCluster.pause_markers)
    resume_markers = blocking(EmbeddedCluster.resume_markers)

    # -- metrics of clients ------------------------------------------------------------------------

    subscribe_to_metrics = blocking(EmbeddedCluster.subscribe_to_metrics)

    @property
    def metrics_pushes(self) -> list[MetricsPush]:
        """A copy of the last 1,000 pushes of metrics by clients, oldest first."""
        return self._portal.call(lambda: list(self._broker.metrics_pushes))

    # -- requests ----------------------------------------------------------------------------------

    @property
    def requests(self) -> list[SeenRequest]:
        """A copy of the last 10,000 requests, oldest first."""
        return self._portal.call(lambda: list(self._broker.requests))

    on = blocking_rule(EmbeddedCluster.on)
    on_every = blocking_rule(EmbeddedCluster.on_every)
    clear_rules = blocking(EmbeddedCluster.clear_rules)
    request_count = blocking(EmbeddedCluster.request_count)
    wait_for_request = blocking(EmbeddedCluster.wait_for_request)

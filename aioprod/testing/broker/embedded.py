"""The embedded broker as tests use it: :class:`EmbeddedCluster` on their event loop, and
:class:`ThreadedCluster` for code that blocks.

The calls are implemented in ``controls/``, in a class for each subject. The methods that forward to
these classes are generated in ``calls/``.
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
from typing import Self, TypedDict, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from aioprod.errors import ConfigError
from aioprod.misuse import names_cures
from aioprod.protocol.acls import AclBinding
from aioprod.public_module import Uncopyable, set_module
from aioprod.running_loop import running_loop
from aioprod.testing.broker.access.authorizer import Authorizer
from aioprod.testing.broker.broker_node import listeners
from aioprod.testing.broker.calls import clients
from aioprod.testing.broker.cluster import Cluster
from aioprod.testing.broker.controls.access import AccessControls
from aioprod.testing.broker.controls.configs import ConfigControls
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
from aioprod.testing.broker.store import Store, StoreSettings, Topic
from aioprod.testing.broker.telemetry.receiver import MetricsPush
from aioprod.testing.broker.transactions.transaction import Transaction

T = TypeVar("T")
_MAX_NODES = 100
# Cluster ids are created without random numbers, because tests in virtual time draw a fixed
# sequence of those.


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
    authorizer: Authorizer | None
    client_metrics: bool
    imitate: str | Iterable[str]


@names_cures()
@set_module("aioprod.testing")
class EmbeddedCluster(clients.EmbeddedCluster, Uncopyable):
    """A Kafka cluster in this process and on this event loop, for tests, demos and experiments.

    It speaks Kafka's protocol with any client: metadata, produce (also idempotent), fetch, offsets,
    transactions, administration, consumer groups of both protocols, and share groups. Its
    ApiVersions response does not list unsupported APIs. It writes nothing to disk, and deletes and
    compacts only on demand, by :meth:`apply_retention` and :meth:`compact`.

    Each node has its own port, leads some partitions and coordinates some groups and transactional
    ids. Nodes can be stopped, started and frozen, and leaders can be moved. Followers replicate at
    once, unless their replication is paused.

    Args:
        nodes: the number of nodes, 1 to 100; their ids are 1, 2, ...
        host: the address to bind and to advertise.
        port: the port of the first node; the next node uses the next port. 0 for any free ports.
            A restarted node keeps its port.
        replication_factor: the default for new topics (broker setting default.replication.factor);
            None for 3, or for all nodes if there are fewer.
        num_partitions: the default for new topics (broker setting num.partitions).
        auto_create_topics: create a topic when a client asks for its metadata (broker setting
            auto.create.topics.enable).
        max_message_bytes: the largest record batch in bytes (broker setting message.max.bytes).
        max_memory_bytes: the maximum total size of record batches in bytes; further batches are
            refused with POLICY_VIOLATION.
        wall_clock: a function that returns seconds since 1970, for log append time; None for
            ``time.time``.
        random_source: the source of topic and member ids. If it is given, runs repeat exactly, and
            the cluster's id is always the same; otherwise each cluster has a different id.
        transaction_version: the feature transaction.version, 0 to 2. With 2, clients use the second
            transaction protocol (KIP-890).
        replica_lag_time_max_ms: the time in milliseconds after which a follower that lacks records
            is no longer in sync (broker setting replica.lag.time.max.ms).
        groups: limits of consumer groups; None for the defaults of
            :class:`aioprod.testing.GroupSettings`.
        security: TLS and SASL; None for neither.
        authorizer: ACLs by user; None if all clients may do everything.
        client_metrics: accept metrics from clients (KIP-714), as brokers with a ClientTelemetry
            plugin do; see :meth:`subscribe_to_metrics`.
        imitate: behave like a service such as ``"event-hubs"``, or with some of the quirks that
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
        _check_at_least_one(
            num_partitions=num_partitions,
            max_message_bytes=max_message_bytes,
            max_memory_bytes=max_memory_bytes,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
        )
        _check_range("nodes", nodes, 1, _MAX_NODES)
        _check_range("transaction_version", transaction_version, 0, 2)
        self._cluster = Cluster(nodes, replication_factor, Imitation(find(imitate)))
        self._needs_id = random_source is None
        settings = StoreSettings(
            num_partitions=num_partitions,
            auto_create_topics=auto_create_topics,
            max_message_bytes=max_message_bytes,
            max_memory_bytes=max_memory_bytes,
            transaction_version=transaction_version,
            replica_lag_time_max_ms=replica_lag_time_max_ms,
            client_metrics=client_metrics,
        )
        self._store = Store(
            settings,
            self._cluster,
            groups or GroupSettings(),
            wall_clock=wall_clock or time.time,
            random_source=random_source or random.Random(),
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
            WrongEventLoopError: if no asyncio event loop is running.
        """
        running_loop()
        await self._nodes.start()
        if self._needs_id:
            # The ids of clusters that run at the same time differ, and runs in virtual time repeat
            # exactly.
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
        """The ids of all consumer groups, sorted, including groups that only committed offsets."""
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


@set_module("aioprod.testing")
class ThreadedCluster(clients.ThreadedCluster, Uncopyable):
    """The methods of :class:`EmbeddedCluster`, for any thread other than that of its event loop.

    Each call runs on the cluster's event loop and blocks until it is done. Events for ``hold``
    belong to that loop: create and set them with :meth:`call`, as in
    ``broker.call(asyncio.Event)``.
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
        """The ids of all consumer groups, sorted, including groups that only committed offsets."""
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


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    """Raise ConfigError if an argument is out of range."""
    if not lowest <= value <= highest:
        raise ConfigError(f"{name}={value}: must be {lowest} to {highest}")


def _check_at_least_one(**values: int) -> None:
    """Raise ConfigError if an argument is below 1."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"{name}={value}: must be at least 1")

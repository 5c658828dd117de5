"""Brokers, the controller, and the log directories of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioprod.admin.answers import check, outcome
from aioprod.admin.attempts import Attempt
from aioprod.admin.driver import AdminDriver, gather_outcomes
from aioprod.admin.operations import operations
from aioprod.admin.results import Results
from aioprod.arguments import check_items
from aioprod.cluster.coordinators import CoordinatorType
from aioprod.config.checks import check_string
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.protocol.acls import AclOperation
from aioprod.protocol.messages.describe_cluster import DescribeClusterRequest
from aioprod.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from aioprod.protocol.messages.metadata import MetadataRequest
from aioprod.types import TopicPartition

_UNKNOWN_BYTES = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster.

    Attributes:
        cluster_id: the id of the cluster, if it has one.
        controller: the controller; with KRaft a broker that forwards requests to it. None if no
            controller is known.
        nodes: the running brokers, in the order of their ids.
        authorized_operations: the operations that this client may perform; None if not requested.
    """

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    authorized_operations: frozenset[AclOperation] | None = None


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica of a partition in a log directory.

    Attributes:
        size: bytes on disk.
        offset_lag: the number of offsets by which it lags.
        is_future: True while it is being moved to this directory from another one of the broker.
    """

    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory of a broker.

    Attributes:
        total_bytes, usable_bytes: size and free space of its volume; None for brokers before 3.3.
        replicas: the replicas in the directory.
        error: why it can't be used; None if it can.
        is_cordoned: True if no new partitions are placed there (KIP-1066); False for brokers before
            4.4.
    """

    path: str
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[TopicPartition, ReplicaLog]
    error: KafkaError | None = None
    is_cordoned: bool = False


class ClusterCalls:
    """Calls of :class:`aioprod.Admin`."""

    _driver: AdminDriver

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """Describe the cluster: its id, the running brokers, the controller.

        Args:
            include_authorized_operations: whether to include ``authorized_operations``.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as CLUSTER_AUTHORIZATION_FAILED.
        """

        async def ask(attempt: Attempt[str]) -> ClusterDescription:
            try:
                return await self._describe(include_authorized_operations)
            except UnsupportedVersionError:  # before 2.8
                if include_authorized_operations:
                    raise
            answer = await self._driver.from_any(
                MetadataRequest(topics=[], allow_auto_topic_creation=False)
            )
            return _cluster(
                answer.cluster_id,
                answer.controller_id,
                [Node(each.node_id, each.host, each.port, each.rack) for each in answer.brokers],
            )

        return await self._driver.once("describe_cluster", ask, timeout_ms)

    async def find_coordinator(
        self, key: str, *, transactional: bool = False, timeout_ms: float | None = None
    ) -> int:
        """Return the node id of the broker that coordinates a group. The group need not exist.

        Args:
            key: the group id; the ``transactional_id`` if ``transactional``.
            transactional: whether to look for the coordinator of transactions.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as GROUP_AUTHORIZATION_FAILED.
        """
        check_string("key", key)
        kind = CoordinatorType.TRANSACTION if transactional else CoordinatorType.GROUP

        async def ask(attempt: Attempt[str]) -> int:
            return await self._driver.coordinator_of(kind, key)

        return await self._driver.once("find_coordinator", ask, timeout_ms)

    async def _describe(self, with_operations: bool) -> ClusterDescription:
        answer = await self._driver.from_any(
            DescribeClusterRequest(include_cluster_authorized_operations=with_operations)
        )
        check(answer.error_code, "describe_cluster", answer.error_message)
        nodes = [Node(each.broker_id, each.host, each.port, each.rack) for each in answer.brokers]
        return _cluster(
            answer.cluster_id,
            answer.controller_id,
            nodes,
            operations(answer.cluster_authorized_operations),
        )

    async def describe_log_dirs(
        self, brokers: Iterable[int], *, timeout_ms: float | None = None
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Describe the log directories of brokers, by node id and path.

        Args:
            brokers: the node ids.
            timeout_ms: limit on the whole call.

        Raises:
            BrokerError: if the broker returns an error, such as CLUSTER_AUTHORIZATION_FAILED.
                Raised by ``results[node_id]`` or ``results.check()``.
        """

        async def ask(
            attempt: Attempt[int],
        ) -> Mapping[int, dict[str, LogDirDescription] | KafkaError]:
            async def at(node_id: int) -> dict[str, LogDirDescription]:
                connection = await self._driver.node(node_id)
                reply = await connection.request(DescribeLogDirsRequest(topics=None))
                check(reply.error_code, f"log directories of broker {node_id}")
                return {each.path: each for each in _log_dirs(reply)}

            return await gather_outcomes(attempt.items, at)

        node_ids = check_items("brokers", brokers, int, "node ids")
        return await self._driver.each("describe_log_dirs", node_ids, ask, timeout_ms)


def _cluster(
    cluster_id: str | None,
    controller_id: int,
    nodes: Iterable[Node],
    allowed: frozenset[AclOperation] | None = None,
) -> ClusterDescription:
    by_id = {node.node_id: node for node in sorted(nodes, key=lambda node: node.node_id)}
    return ClusterDescription(cluster_id, by_id.get(controller_id), tuple(by_id.values()), allowed)


def _log_dirs(reply: DescribeLogDirsResponse) -> list[LogDirDescription]:
    return [
        LogDirDescription(
            answer.log_dir,
            None if answer.total_bytes == _UNKNOWN_BYTES else answer.total_bytes,
            None if answer.usable_bytes == _UNKNOWN_BYTES else answer.usable_bytes,
            {
                TopicPartition(topic.name, each.partition_index): ReplicaLog(
                    each.partition_size, each.offset_lag, each.is_future_key
                )
                for topic in answer.topics
                for each in topic.partitions
            },
            error
            if isinstance(
                error := outcome(answer.error_code, answer.log_dir, None, None), KafkaError
            )
            else None,
            answer.is_cordoned,
        )
        for answer in reply.results
    ]

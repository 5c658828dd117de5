"""A real cluster of three nodes whose nodes, leaders and network scenarios control."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from aioprod import BrokerConnectionError, ErrorCode
from aioprod.cluster.client import ClusterClient
from aioprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from aioprod.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from aioprod.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from aioprod.testing.jars import KAFKA_VERSIONS
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from tests.testing.fault_proxy import FaultProxy, Plan

NODES = (1, 2, 3)
PARTITIONS = 6
#: The number of clients that have proxies of their own in the scenarios.
PROXIES = 3
SESSION_SECONDS = 3.0
#: The duration of a scenario; 15 is enough for a quick check.
SECONDS = float(os.environ.get("AIOPROD_FAULT_SECONDS", "60"))
_LIMIT_SECONDS = 60.0
_NO_ERROR_CODES = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass
class Fault:
    """A fault: what happened, when (monotonic clock), and the affected partitions; None for all.

    Attributes:
        of_groups: the affected partitions by name of a group, where they differ.
    """

    what: str
    at: float
    partitions: list[int] | None = None
    of_groups: dict[str, list[int]] = field(default_factory=dict)

    def affected(self, group: str, everything: Iterable[int]) -> list[int]:
        """Return the affected partitions of a group."""
        listed = self.of_groups.get(group, self.partitions)
        return list(everything if listed is None else listed)


class ClusterControl:
    """Faults of the cluster and its proxies, for one scenario at a time.

    Attributes:
        faults: the faults of the scenario so far.
        topics: the topics of the scenario.
        proxies: the proxies of all clients, by node.
    """

    def __init__(self, cluster: RealCluster, sockets: dict[tuple[int, int], socket.socket]) -> None:
        self.cluster = cluster
        self.faults: list[Fault] = []
        self.topics: list[str] = []
        self.proxies: dict[int, list[FaultProxy]] = {}
        self._sockets = sockets

    def fault(self, what: str, nodes: Iterable[int] | None = None) -> None:
        """Record a fault of these nodes, which affects the partitions that they prefer to lead;
        None means all nodes.
        """
        affected = (
            None
            if nodes is None
            else [partition for node in nodes for partition in partitions_of(node)]
        )
        self.faults.append(Fault(what, time.monotonic(), affected))

    def not_controller(self, turn: int) -> int:
        """Return a node that is not the active controller, whose failure takes longer, as a new
        controller is elected first.
        """
        others = [node for node in NODES if node != self.cluster.active_controller()]
        return others[turn % len(others)]

    async def elect_preferred_leaders(self) -> None:
        """Elect the preferred leader of each partition and wait until it leads."""
        async with (
            asyncio.timeout(_LIMIT_SECONDS),
            ClusterClient(self.cluster.bootstrap_servers) as client,
        ):
            # All topics in one request, as each election pauses the followers.
            request = ElectLeadersRequest(
                0, [TopicPartitions(topic, list(range(PARTITIONS))) for topic in self.topics], 5_000
            )
            while True:
                with suppress(BrokerConnectionError):  # a node that was cut off comes back
                    reply = await client.request(request)
                    codes = {
                        result.error_code
                        for each in reply.replica_election_results
                        for result in each.partition_result
                    }
                    if reply.error_code == 0 and codes <= set(_NO_ERROR_CODES):
                        return
                await asyncio.sleep(0.1)  # the node is not in sync yet

    async def reassign(self, shift: int) -> None:
        """Reorder the replicas of all partitions and elect the new preferred leaders."""
        topics = [
            ReassignableTopic(
                topic,
                [
                    ReassignablePartition(partition, replicas_of(partition + shift))
                    for partition in range(PARTITIONS)
                ],
            )
            for topic in self.topics
        ]
        async with (
            asyncio.timeout(_LIMIT_SECONDS),
            ClusterClient(self.cluster.bootstrap_servers) as client,
        ):
            reply = await client.request(AlterPartitionReassignmentsRequest(topics=topics))
            assert reply.error_code == 0, ErrorCode.of(reply.error_code)
        await self.elect_preferred_leaders()

    async def restore(self) -> None:
        """Start all nodes and wait until they are in sync, so that scenarios do not affect each
        other.
        """
        for node in NODES:
            if self.cluster.runs(node):
                self.cluster.resume(node)
        if dead := [node for node in NODES if not self.cluster.runs(node)]:
            await asyncio.to_thread(self.cluster.restart, *dead)
        await self.elect_preferred_leaders()

    @asynccontextmanager
    async def proxied(self, number: int, plan: Plan) -> AsyncIterator[str]:
        """Run a proxy in front of each node, for one client; yields the bootstrap servers."""
        async with AsyncExitStack() as stack:
            for node in NODES:
                target = self.cluster.address(node, f"PROXY{number}")
                proxy = FaultProxy(self._sockets[node, number], target, plan)
                await stack.enter_async_context(proxy)
                of_node = self.proxies.setdefault(node, [])
                of_node.append(proxy)
                stack.callback(of_node.remove, proxy)
            yield ",".join(
                f"127.0.0.1:{self._sockets[node, number].getsockname()[1]}" for node in NODES
            )

    async def create_topic(self, topic: str, replication_factor: int) -> None:
        assignments = [
            CreatableReplicaAssignment(partition, replicas_of(partition)[:replication_factor])
            for partition in range(PARTITIONS)
        ]
        async with (
            asyncio.timeout(_LIMIT_SECONDS),
            ClusterClient(self.cluster.bootstrap_servers) as client,
        ):
            reply = await client.request(
                CreateTopicsRequest([CreatableTopic(topic, -1, -1, assignments)])
            )
            assert reply.topics[0].error_code == 0, reply.topics[0].error_message
            first = [replicas_of(partition)[0] for partition in range(PARTITIONS)]
            while True:
                info = (await client.refresh_topics([topic])).topics[topic]
                if [partition.leader for partition in info.partitions] == first:
                    return
                await asyncio.sleep(0.05)


def replicas_of(partition: int) -> list[int]:
    """Return all nodes, beginning with the preferred leader of the partition."""
    first = partition % len(NODES)
    return [*NODES[first:], *NODES[:first]]


def partitions_of(node: int) -> list[int]:
    """Return the partitions whose preferred leader is this node."""
    return [partition for partition in range(PARTITIONS) if replicas_of(partition)[0] == node]


@contextmanager
def controlled_cluster(
    settings: Mapping[str, str], proxies: int = PROXIES, version: str = KAFKA_VERSIONS[0]
) -> Iterator[tuple[RealCluster, dict[tuple[int, int], socket.socket]]]:
    """Start the cluster; yields it with the sockets of ``proxies`` proxies before each node."""
    sockets = {(node, number): socket.socket() for node in NODES for number in range(proxies)}
    try:
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))

        def listeners(node: int) -> list[Listener]:
            return [
                Listener(
                    name=f"PROXY{number}", advertised_port=sockets[node, number].getsockname()[1]
                )
                for number in range(proxies)
            ]

        with RealCluster(
            version=version,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            listeners=listeners,
            settings={
                "auto.create.topics.enable": "false",
                "auto.leader.rebalance.enable": "false",
                **settings,
            },
        ) as cluster:
            yield cluster, sockets
    finally:
        for each in sockets.values():
            each.close()

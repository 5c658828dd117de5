"""Run fault scenarios: a real cluster of three nodes, three clients that send to it, and proxies
between them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from aioprod import ErrorCode, TopicPartition
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
from aioprod.testing.kafka_listener import Listener
from aioprod.testing.real_cluster import RealCluster
from tests.faults.harness.loads import (
    PARTITIONS,
    AiokafkaLoad,
    AioprodLoad,
    ConfluentLoad,
    Load,
)
from tests.faults.harness.timeline import Timeline, median_gap
from tests.interop.programs.reading import read_all
from tests.simulation.checkers import check
from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Content, Finding, Reading
from tests.testing.fault_proxy import FaultProxy, Plan

NODES = (1, 2, 3)
CLIENTS: tuple[type[AioprodLoad | AiokafkaLoad | ConfluentLoad], ...] = (
    AioprodLoad,
    AiokafkaLoad,
    ConfluentLoad,
)
SESSION_SECONDS = 3.0
#: The duration of a scenario; 15 is enough for a quick check.
SECONDS = float(os.environ.get("AIOPROD_FAULT_SECONDS", "60"))
_LIMIT_SECONDS = 60.0
_NO_ERROR_CODES = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass
class Fault:
    """A fault: what happened, when (monotonic clock), and the affected partitions; None for all."""

    what: str
    at: float
    partitions: list[int] | None = None


@dataclass
class Outcome:
    """The outcome of a scenario.

    Attributes:
        timelines: the timelines, by client.
        faults: the faults of the cluster.
        proxy_faults: the times of the faults of the proxies, by client.
        findings: the findings in aioprod's history.
        anomalies: the names of the findings, and "failure" if any record failed.
    """

    scenario: str
    began: float
    ended: float
    timelines: dict[str, Timeline]
    faults: list[Fault]
    proxy_faults: dict[str, list[float]]
    findings: list[Finding]
    anomalies: set[str]

    def gaps(self, client: str) -> list[float]:
        """Return the gap after each fault."""
        timeline = self.timelines[client]
        if client in self.proxy_faults:
            return timeline.gaps(self.proxy_faults[client], self.ended)
        moments = [fault.at for fault in self.faults]
        return [
            timeline.gap(fault.at, until, fault.partitions)
            for fault, until in zip(self.faults, [*moments[1:], self.ended], strict=True)
        ]

    def median_gap(self, client: str) -> float:
        """Return the median gap."""
        return median_gap(self.gaps(client))

    def best_other_median(self) -> float:
        """Return the shortest median gap of the other clients."""
        return min(
            self.median_gap(client) for client in self.timelines if client != AioprodLoad.name
        )


class ScenarioRunner:
    """Runs scenarios, one at a time, on a cluster behind proxies."""

    def __init__(self, cluster: RealCluster, sockets: dict[tuple[int, int], socket.socket]) -> None:
        self.cluster = cluster
        self.faults: list[Fault] = []
        self.topics: list[str] = []
        self._sockets = sockets
        self._proxy_faults: dict[str, list[float]] = {}

    # -- for scenarios -----------------------------------------------------------------------------

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

    # -- a scenario --------------------------------------------------------------------------------

    async def run(
        self,
        name: str,
        scenario: Callable[[ScenarioRunner], Awaitable[None]],
        *,
        replication_factor: int = 3,
        plan: Callable[[list[float]], Plan] | None = None,
        settings: dict[str, dict[str, Any]] | None = None,
        clients: Iterable[type[AioprodLoad | AiokafkaLoad | ConfluentLoad]] = CLIENTS,
        stop_load: asyncio.Event | None = None,
    ) -> Outcome:
        """Run a scenario under load, read all records back and check the history.

        Args:
            name: the name of the scenario, for its topics and the report.
            plan: returns the plan of a client's proxies; its argument is a list to which the times
                of faults are added. None for no proxies.
            settings: the settings of each client, by name.
            stop_load: an event that the scenario sets to stop the load before it ends.
        """
        self.faults, self._proxy_faults, self.topics = [], {}, []
        stop = stop_load or asyncio.Event()
        loads: list[Load] = []
        async with AsyncExitStack() as stack:
            for number, kind in enumerate(clients):
                topic = f"{name}-{kind.name}-{time.time_ns()}"
                self.topics.append(topic)
                servers = self.cluster.bootstrap_servers
                await self._create_topic(topic, replication_factor)
                if plan is not None:
                    moments = self._proxy_faults[kind.name] = []
                    servers = await stack.enter_async_context(self._proxied(number, plan(moments)))
                loads.append(kind(servers, topic, **(settings or {}).get(kind.name, {})))
            began = time.monotonic()
            running = [asyncio.ensure_future(load.run(stop)) for load in loads]
            try:
                await asyncio.sleep(2)
                await scenario(self)
                await asyncio.sleep(2)
            finally:
                ended = time.monotonic()
                stop.set()
                await asyncio.gather(*running)
        await self.restore()
        findings: list[Finding] = []
        anomalies: set[str] = set()
        for load in loads:
            if isinstance(load, AioprodLoad):
                await self.read_back(load)
                findings += check(load.history)
                anomalies |= load.anomalies(findings)
        return Outcome(
            name,
            began,
            ended,
            {load.name: load.timeline for load in loads},
            list(self.faults),
            self._proxy_faults,
            findings,
            anomalies,
        )

    async def read_back(self, load: AioprodLoad) -> None:
        """Add to the history what confluent-kafka reads at the end."""
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
            readings = [
                Reading(
                    "confluent-kafka", TopicPartition(load.topic, number), isolation, final=True
                )
                for number in range(PARTITIONS)
            ]
            load.history.readings += readings
            records = await read_all(
                self.cluster.bootstrap_servers,
                load.topic,
                PARTITIONS,
                committed_only=isolation == READ_COMMITTED,
            )
            for record in records:
                load.history.read(
                    readings[record.partition],
                    record.offset,
                    Content.of(record.key, record.value, ()),
                )

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
    async def _proxied(self, number: int, plan: Plan) -> AsyncIterator[str]:
        """Run a proxy in front of each node, for one client; yields the bootstrap servers."""
        async with AsyncExitStack() as stack:
            for node in NODES:
                target = self.cluster.address(node, f"PROXY{number}")
                await stack.enter_async_context(
                    FaultProxy(self._sockets[node, number], target, plan)
                )
            yield ",".join(
                f"127.0.0.1:{self._sockets[node, number].getsockname()[1]}" for node in NODES
            )

    async def _create_topic(self, topic: str, replication_factor: int) -> None:
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
def scenario_runner() -> Iterator[ScenarioRunner]:
    """Start the cluster, with a socket for each client's proxy in front of each node."""
    sockets = {(node, number): socket.socket() for node in NODES for number in range(len(CLIENTS))}
    try:
        for each in sockets.values():
            each.bind(("127.0.0.1", 0))

        def listeners(node: int) -> list[Listener]:
            return [
                Listener(
                    name=f"PROXY{number}", advertised_port=sockets[node, number].getsockname()[1]
                )
                for number in range(len(CLIENTS))
            ]

        settings = {"auto.create.topics.enable": "false", "auto.leader.rebalance.enable": "false"}
        with RealCluster(
            session_timeout_ms=int(SESSION_SECONDS * 1000), listeners=listeners, settings=settings
        ) as cluster:
            yield ScenarioRunner(cluster, sockets)
    finally:
        for each in sockets.values():
            each.close()

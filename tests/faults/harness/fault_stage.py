"""A real cluster of three nodes, three clients that send to it, and what a scenario does to
both.
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
from tests.faults.harness.fault_load import (
    PARTITIONS,
    AiokafkaLoad,
    AioprodLoad,
    ConfluentLoad,
    Load,
)
from tests.faults.harness.fault_timeline import Timeline, middle
from tests.judges.programs.reading import read_all
from tests.simulation.checkers import Finding, check
from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Content, Reading
from tests.testing.fault_proxy import FaultProxy, Plan

NODES = (1, 2, 3)
CLIENTS: tuple[type[AioprodLoad | AiokafkaLoad | ConfluentLoad], ...] = (
    AioprodLoad,
    AiokafkaLoad,
    ConfluentLoad,
)
SESSION_SECONDS = 3.0
#: How long a scenario takes; for a quick look set it to 15.
SECONDS = float(os.environ.get("AIOPROD_FAULT_SECONDS", "60"))
_LIMIT_SECONDS = 60.0
_NO_ERROR_CODES = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


@dataclass
class Fault:
    """Something that was done: what, when (monotonic clock), and the partitions that it hit (None:
    all).
    """

    what: str
    at: float
    partitions: list[int] | None = None


@dataclass
class Outcome:
    """What came of a scenario.

    Attributes:
        timelines: by client.
        faults: what was done to all; faults of the proxies are in ``own_faults``, by client.
        findings: what the checkers found in aioprod's history.
        anomalies: the same by name, with "failure" where any record was given up.
    """

    scenario: str
    began: float
    ended: float
    timelines: dict[str, Timeline]
    faults: list[Fault]
    own_faults: dict[str, list[float]]
    findings: list[Finding]
    anomalies: set[str]

    def gaps(self, client: str) -> list[float]:
        """The gap behind each fault."""
        timeline = self.timelines[client]
        if client in self.own_faults:
            return timeline.gaps(self.own_faults[client], self.ended)
        moments = [fault.at for fault in self.faults]
        return [
            timeline.gap(fault.at, until, fault.partitions)
            for fault, until in zip(self.faults, [*moments[1:], self.ended], strict=True)
        ]

    def median_gap(self, client: str) -> float:
        """The median of them."""
        return middle(self.gaps(client))

    def best_anchor(self) -> float:
        """The shortest median of the other clients."""
        return min(
            self.median_gap(client) for client in self.timelines if client != AioprodLoad.name
        )


class Stage:
    """The cluster with proxies before it; one scenario at a time."""

    def __init__(self, cluster: RealCluster, sockets: dict[tuple[int, int], socket.socket]) -> None:
        self.cluster = cluster
        self.faults: list[Fault] = []
        self.topics: list[str] = []
        self._sockets = sockets
        self._own_faults: dict[str, list[float]] = {}

    # -- what scenarios do -------------------------------------------------------------------------

    def fault(self, what: str, nodes: Iterable[int] | None = None) -> None:
        """Note that something is done now to these nodes, and so to the partitions that they lead
        at first; None: to all.
        """
        hit = None if nodes is None else [partition for node in nodes for partition in led_by(node)]
        self.faults.append(Fault(what, time.monotonic(), hit))

    def not_controlling(self, turn: int) -> int:
        """A node that does not lead the controllers: the loss of that one takes longer, as the
        others elect another first.
        """
        others = [node for node in NODES if node != self.cluster.active_controller()]
        return others[turn % len(others)]

    async def elect_first_replicas(self) -> None:
        """Give each node back what it leads at first; waits until it does."""
        async with (
            asyncio.timeout(_LIMIT_SECONDS),
            ClusterClient(self.cluster.bootstrap_servers) as client,
        ):
            # All topics in one request: an election has followers pause, also those of partitions
            # that were elected before.
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
        """Have other replicas lead all partitions: the same replicas, each in the place of another,
        and an election.
        """
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
        await self.elect_first_replicas()

    # -- a scenario --------------------------------------------------------------------------------

    async def play(
        self,
        scenario: str,
        course: Callable[[Stage], Awaitable[None]],
        *,
        replication_factor: int = 3,
        plan: Callable[[list[float]], Plan] | None = None,
        settings: dict[str, dict[str, Any]] | None = None,
        clients: Iterable[type[AioprodLoad | AiokafkaLoad | ConfluentLoad]] = CLIENTS,
        stop_in: asyncio.Event | None = None,
    ) -> Outcome:
        """Put the cluster under load, let the course happen to it, stop, read back and judge.

        Args:
            plan: makes the plan of a client's proxies from a list that gets the moments of their
                faults; None: no proxies.
            settings: of the clients, by name.
            stop_in: set by the course to stop the load while it goes on.
        """
        self.faults, self._own_faults, self.topics = [], {}, []
        stop = stop_in or asyncio.Event()
        loads: list[Load] = []
        async with AsyncExitStack() as stack:
            for number, kind in enumerate(clients):
                topic = f"{scenario}-{kind.name}-{time.time_ns()}"
                self.topics.append(topic)
                servers = self.cluster.bootstrap_servers
                await self._create_topic(topic, replication_factor)
                if plan is not None:
                    moments = self._own_faults[kind.name] = []
                    servers = await stack.enter_async_context(self._proxied(number, plan(moments)))
                loads.append(kind(servers, topic, **(settings or {}).get(kind.name, {})))
            began = time.monotonic()
            running = [asyncio.ensure_future(load.run(stop)) for load in loads]
            try:
                await asyncio.sleep(2)
                await course(self)
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
                await self.judge(load)
                findings += check(load.history)
                anomalies |= load.anomalies(findings)
        return Outcome(
            scenario,
            began,
            ended,
            {load.name: load.timeline for load in loads},
            list(self.faults),
            self._own_faults,
            findings,
            anomalies,
        )

    async def judge(self, load: AioprodLoad) -> None:
        """Add to the history what a foreign client reads when all is over."""
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
        """Have all nodes run, and wait until they are in sync, so that nothing of one scenario
        reaches the next.
        """
        for node in NODES:
            if self.cluster.runs(node):
                self.cluster.resume(node)
        if dead := [node for node in NODES if not self.cluster.runs(node)]:
            await asyncio.to_thread(self.cluster.restart, *dead)
        await self.elect_first_replicas()

    @asynccontextmanager
    async def _proxied(self, number: int, plan: Plan) -> AsyncIterator[str]:
        """A proxy before each node, for one client; gives the bootstrap servers."""
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
    """All nodes, those first that lead the partition at first."""
    first = partition % len(NODES)
    return [*NODES[first:], *NODES[:first]]


def led_by(node: int) -> list[int]:
    """The partitions that a node leads at first."""
    return [partition for partition in range(PARTITIONS) if replicas_of(partition)[0] == node]


@contextmanager
def running_stage() -> Iterator[Stage]:
    """The cluster, and a socket for each client's proxy before each node."""
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
            yield Stage(cluster, sockets)
    finally:
        for each in sockets.values():
            each.close()

"""Run fault scenarios: a real cluster of three nodes, three clients that send to it, and proxies
between them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from aioprod import TopicPartition
from aioprod.testing.real_cluster import RealCluster
from tests.faults.harness.cluster_control import PARTITIONS, ClusterControl, Fault
from tests.faults.harness.loads import AiokafkaLoad, AioprodLoad, ConfluentLoad, Load
from tests.faults.harness.timeline import Timeline, median_gap
from tests.interop.programs.reading import read_all
from tests.simulation.checkers import check
from tests.simulation.history import READ_COMMITTED, READ_UNCOMMITTED, Content, Finding, Reading
from tests.testing.fault_proxy import Plan

CLIENTS: tuple[type[AioprodLoad | AiokafkaLoad | ConfluentLoad], ...] = (
    AioprodLoad,
    AiokafkaLoad,
    ConfluentLoad,
)


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


class ScenarioRunner(ClusterControl):
    """Runs scenarios, one at a time, on a cluster behind proxies."""

    def __init__(self, cluster: RealCluster, sockets: dict[tuple[int, int], socket.socket]) -> None:
        super().__init__(cluster, sockets)
        self._proxy_faults: dict[str, list[float]] = {}

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
                await self.create_topic(topic, replication_factor)
                if plan is not None:
                    moments = self._proxy_faults[kind.name] = []
                    servers = await stack.enter_async_context(self.proxied(number, plan(moments)))
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

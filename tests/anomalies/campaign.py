"""Run all clients side by side under the same faults on one cluster, each in its own process."""

from __future__ import annotations

import asyncio
import functools
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aioprod.testing.real_cluster import RealCluster
from benchmarks.delay_proxy import CHUNK_BYTES, pass_on
from tests.anomalies.client_process import ClientProcess, Task
from tests.anomalies.clients import CLIENTS
from tests.anomalies.control import REPLICAS, CampaignControl, coordinated
from tests.anomalies.faults import FAULTS
from tests.anomalies.history import Outcome
from tests.anomalies.injection import inject, restore
from tests.anomalies.node_network import NodeNetwork
from tests.anomalies.row import Row
from tests.anomalies.schedule import Schedule, ScheduledRequests
from tests.anomalies.workload import CALLERS
from tests.faults.harness.cluster_control import NODES, PARTITIONS

_LEAST_OPERATIONS = 100
_QUIET_S = 1.0
"""Seconds for which all clients work before the fault."""


class Campaign(CampaignControl):
    """Runs faults, one at a time, against clients that have a topic and proxies each."""

    def __init__(
        self,
        cluster: RealCluster,
        sockets: dict[tuple[int, int], socket.socket],
        kafka: str,
        callers: int = CALLERS,
    ) -> None:
        super().__init__(cluster, sockets)
        self._kafka = kafka
        self._callers = callers

    async def run(
        self, fault_name: str, clients: Sequence[str], seed: int, seconds: float
    ) -> list[Row]:
        """Run a fault with all clients at once, and return a row for each of them."""
        schedule = FAULTS[fault_name].schedule(seed, seconds)
        self.faults, self.topics, self.recreated = [], [], []
        processes: dict[str, ClientProcess] = {}
        plans: dict[str, ScheduledRequests] = {}
        async with AsyncExitStack() as stack:
            if schedule.between_nodes:
                between = NodeNetwork.between(self.cluster)
                self.between_nodes = await stack.enter_async_context(between)
            for number, client in enumerate(clients):
                topic = coordinated(f"{fault_name}-{client}-{time.time_ns()}")
                self.topics.append(topic)
                await self.create_topic(topic, REPLICAS)
                plans[client] = ScheduledRequests(schedule.network)
                servers = await stack.enter_async_context(
                    self._network(number, schedule, plans[client])
                )
                task = Task(
                    client,
                    servers,
                    topic,
                    _LEAST_OPERATIONS,
                    seed,
                    PARTITIONS,
                    self.cluster.bootstrap_servers,
                    schedule.visits,
                    schedule.kills,
                    schedule.overdue,
                    self._callers,
                )
                processes[client] = await stack.enter_async_context(ClientProcess.running(task))
            steps = await self._disturb(schedule, [*processes.values()], [*plans.values()])
            found = await asyncio.gather(*(each.result() for each in processes.values()))
        return [
            Row(
                client,
                CLIENTS[client].version,
                self._kafka,
                fault_name,
                seed,
                seconds,
                steps=steps,
                requests=plans[client].done,
                callers=self._callers,
                **attributes,
            )
            for client, attributes in zip(processes, found, strict=True)
        ]

    async def _disturb(
        self,
        schedule: Schedule,
        processes: Sequence[ClientProcess],
        plans: Sequence[ScheduledRequests],
    ) -> list[str]:
        """Carry out the schedule, and return the steps that were carried out."""
        await asyncio.gather(*(each.until_working() for each in processes))
        await asyncio.sleep(_QUIET_S)
        for process, plan in zip(processes, plans, strict=True):
            process.begin()
            plan.begin()
        done = []
        for step in schedule.steps:
            await inject(step, self, processes)
            done.append(str(step))
        await restore(self)
        for process, plan in zip(processes, plans, strict=True):
            plan.end()
            process.end(self.recreated)
        return done

    @asynccontextmanager
    async def _network(
        self, number: int, schedule: Schedule, plan: ScheduledRequests
    ) -> AsyncIterator[str]:
        """Run proxies for a client if the schedule needs them; yields the bootstrap servers."""
        if schedule.network or schedule.proxied:
            async with self.proxied(number, plan) as servers:
                yield servers
        elif schedule.round_trip_ms:
            async with self._distant(number, schedule.round_trip_ms / 2000) as servers:
                yield servers
        else:
            yield self.cluster.bootstrap_servers

    @asynccontextmanager
    async def _distant(self, number: int, delay_s: float) -> AsyncIterator[str]:
        async with AsyncExitStack() as stack:
            for node in NODES:
                target = self.cluster.address(node, f"PROXY{number}")
                server = await asyncio.start_server(
                    functools.partial(pass_on, target, delay_s),
                    sock=self._sockets[node, number].dup(),
                    limit=CHUNK_BYTES,
                )
                stack.callback(server.close)
            yield ",".join(
                f"127.0.0.1:{self._sockets[node, number].getsockname()[1]}" for node in NODES
            )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = [
        "| fault | client | operations | aborted | unknown | longest gap, s | anomalies |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        anomalies = ", ".join(f"{kind}: {count}" for kind, count in each.anomalies.items())
        lines.append(
            f"| {FAULTS[each.fault].what} | {each.client} | {each.operations} | "
            f"{each.outcomes.get(Outcome.FAILED, 0)} | {each.outcomes.get(Outcome.UNKNOWN, 0)} | "
            f"{each.longest_gap_s:g} | "
            f"{anomalies or 'none'} |"
        )
    return "\n".join(lines)

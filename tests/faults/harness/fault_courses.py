"""What happens to the cluster in each scenario, over `SECONDS` in all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aioprod.protocol.api_keys import ApiKey
from tests.faults.harness.fault_stage import NODES, SECONDS, SESSION_SECONDS, Stage
from tests.testing.fault_proxy import CutAnswer, CutRequest, Fault, Plan, SingleBytes, Stall

#: A freeze that a cluster does not sit out.
FREEZE_SECONDS = 12.0
_ROUND_SECONDS = 22.0
_ROUNDS = max(1, round(SECONDS / _ROUND_SECONDS))


async def quiet(stage: Stage) -> None:
    """Nothing: how long gaps are on this machine by themselves."""
    stage.fault("nothing")
    await asyncio.sleep(SECONDS / 3)


async def kill(stage: Stage) -> None:
    """kill -9 of a leader; it comes back after a while, and leads again."""
    for number in range(_ROUNDS):
        node = stage.not_controlling(number)
        stage.fault(f"kill -9 of node {node}", [node])
        await asyncio.to_thread(stage.cluster.kill, node)
        await asyncio.sleep(SESSION_SECONDS + 5)
        await asyncio.to_thread(stage.cluster.restart, node)
        await stage.elect_first_replicas()
        await asyncio.sleep(2)


async def kill_controller(stage: Stage) -> None:
    """kill -9 of the node that leads the controllers, too: first they elect another, then the
    session begins anew.
    """
    for _ in range(_ROUNDS):
        node = stage.cluster.active_controller()
        stage.fault(f"kill -9 of node {node}, the active controller", [node])
        await asyncio.to_thread(stage.cluster.kill, node)
        await asyncio.sleep(SESSION_SECONDS + 8)
        await asyncio.to_thread(stage.cluster.restart, node)
        await stage.elect_first_replicas()
        await asyncio.sleep(2)


async def freeze(stage: Stage) -> None:
    """SIGSTOP of a leader, for longer than its session, and resume."""
    for number in range(_ROUNDS):
        node = stage.not_controlling(number)
        stage.fault(f"SIGSTOP of node {node} for {FREEZE_SECONDS:g} s", [node])
        stage.cluster.pause(node)
        await asyncio.sleep(FREEZE_SECONDS)
        stage.cluster.resume(node)
        await stage.elect_first_replicas()
        await asyncio.sleep(2)


async def nap(stage: Stage) -> None:
    """SIGSTOP of a leader for less than its session."""
    for number in range(max(1, int(SECONDS / 5))):
        node = NODES[number % len(NODES)]
        stage.fault(f"SIGSTOP of node {node} for 1.5 s", [node])
        stage.cluster.pause(node)
        await asyncio.sleep(1.5)
        stage.cluster.resume(node)
        await asyncio.sleep(3.5)


async def roll(stage: Stage) -> None:
    """Each node is shut down in order and started again, one after another."""
    for node in NODES[: max(1, round(SECONDS / 20))]:
        stage.fault(f"shutdown of node {node}", [node])
        await asyncio.to_thread(stage.cluster.terminate, node)
        await asyncio.to_thread(stage.cluster.restart, node)
        await stage.elect_first_replicas()
        await asyncio.sleep(2)


async def move(stage: Stage) -> None:
    """Another replica leads each partition, again and again."""
    until = time.monotonic() + SECONDS
    shift = 0
    while time.monotonic() < until:
        shift += 1
        stage.fault("all leaders move")
        await stage.reassign(shift)
        await asyncio.sleep(3)
    await stage.reassign(0)


async def outage(stage: Stage) -> None:
    """kill -9 of all nodes; they come back."""
    for _ in range(_ROUNDS):
        stage.fault("kill -9 of all nodes")
        await asyncio.to_thread(stage.cluster.kill, *NODES)
        await asyncio.sleep(6)
        await asyncio.to_thread(stage.cluster.restart, *NODES)
        await stage.elect_first_replicas()
        await asyncio.sleep(4)


async def hole(stage: Stage) -> None:
    """A node with the only replica of two partitions is gone for longer than deliveries are waited
    for.
    """
    node = stage.not_controlling(0)
    stage.fault(f"kill -9 of node {node}, the only replica of its partitions", [node])
    await asyncio.to_thread(stage.cluster.kill, node)
    await asyncio.sleep(max(16.0, SECONDS / 2))
    await asyncio.to_thread(stage.cluster.restart, node)
    await asyncio.sleep(6)


def dark(stop: asyncio.Event) -> Callable[[Stage], Awaitable[None]]:
    """All nodes are frozen and stay so; clients are closed in the middle of that."""

    async def course(stage: Stage) -> None:
        await asyncio.sleep(3)
        stage.fault("SIGSTOP of all nodes")
        stage.cluster.pause(*NODES)
        await asyncio.sleep(max(13.0, SECONDS / 3))
        stop.set()

    return course


class EverySoOften:
    """A proxy's plan: harm to one Produce request each so many seconds, by turns; ``moments`` gets
    when.
    """

    def __init__(self, moments: list[float], seconds: float, *faults: Fault) -> None:
        self._moments = moments
        self._seconds = seconds
        self._faults = faults
        self._next = time.monotonic() + seconds

    def __call__(self, api_key: int, size: int) -> Fault | None:
        now = time.monotonic()
        if api_key != ApiKey.PRODUCE or now < self._next:
            return None
        self._next = now + self._seconds
        self._moments.append(now)
        return self._faults[len(self._moments) % len(self._faults)]


def cuts(moments: list[float]) -> Plan:
    """The connection is cut in the middle of a request."""
    return EverySoOften(
        moments, 1.5, CutRequest(40), CutRequest(5, reset=True), CutRequest(90), CutRequest(0)
    )


def lost_acknowledgements(moments: list[float]) -> Plan:
    """The broker has stored it, and its answer does not arrive, or not whole."""
    return EverySoOften(moments, 1.5, CutAnswer(0), CutAnswer(4, reset=True), CutAnswer(20))


def stalls(moments: list[float]) -> Plan:
    """A request arrives late, and all behind it."""
    return EverySoOften(moments, 4.0, Stall(2.0), Stall(0.5))


def single_bytes(moments: list[float]) -> Plan:
    """Requests and answers come byte by byte."""
    return EverySoOften(moments, 2.0, SingleBytes())


async def wait(_: Stage) -> None:
    """Proxies do the harm."""
    await asyncio.sleep(SECONDS)


def frequently_all(moments: list[float]) -> Plan:
    """Much harm in a short time, so that whatever can go wrong does."""
    return EverySoOften(
        moments,
        0.15,
        CutAnswer(0),
        Stall(0.3),
        CutRequest(40),
        CutAnswer(4, reset=True),
        CutRequest(5),
    )


async def briefly(_: Stage) -> None:
    """Proxies do the harm, for a few seconds."""
    await asyncio.sleep(8)

"""The scenarios: faults of the cluster or of proxies, for about `SECONDS` each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aioprod.protocol.api_keys import ApiKey
from tests.faults.harness.runner import NODES, SECONDS, SESSION_SECONDS, ScenarioRunner
from tests.testing.fault_proxy import CutAnswer, CutRequest, Fault, Plan, SingleBytes, Stall

#: Longer than the session timeout of a broker.
FREEZE_SECONDS = 12.0
_ROUND_SECONDS = 22.0
_ROUNDS = max(1, round(SECONDS / _ROUND_SECONDS))


async def quiet(runner: ScenarioRunner) -> None:
    """No fault: measures the gaps of this machine."""
    runner.fault("none")
    await asyncio.sleep(SECONDS / 3)


async def kill(runner: ScenarioRunner) -> None:
    """kill -9 of a leader; it is restarted later and leads again."""
    for number in range(_ROUNDS):
        node = runner.not_controller(number)
        runner.fault(f"kill -9 of node {node}", [node])
        await asyncio.to_thread(runner.cluster.kill, node)
        await asyncio.sleep(SESSION_SECONDS + 5)
        await asyncio.to_thread(runner.cluster.restart, node)
        await runner.elect_preferred_leaders()
        await asyncio.sleep(2)


async def kill_controller(runner: ScenarioRunner) -> None:
    """kill -9 of the active controller: a new controller is elected first, and then waits for the
    session timeout.
    """
    for _ in range(_ROUNDS):
        node = runner.cluster.active_controller()
        runner.fault(f"kill -9 of node {node}, the active controller", [node])
        await asyncio.to_thread(runner.cluster.kill, node)
        await asyncio.sleep(SESSION_SECONDS + 8)
        await asyncio.to_thread(runner.cluster.restart, node)
        await runner.elect_preferred_leaders()
        await asyncio.sleep(2)


async def freeze(runner: ScenarioRunner) -> None:
    """SIGSTOP of a leader for longer than its session timeout."""
    for number in range(_ROUNDS):
        node = runner.not_controller(number)
        runner.fault(f"SIGSTOP of node {node} for {FREEZE_SECONDS:g} s", [node])
        runner.cluster.pause(node)
        await asyncio.sleep(FREEZE_SECONDS)
        runner.cluster.resume(node)
        await runner.elect_preferred_leaders()
        await asyncio.sleep(2)


async def nap(runner: ScenarioRunner) -> None:
    """SIGSTOP of a leader for less than its session timeout."""
    for number in range(max(1, int(SECONDS / 5))):
        node = NODES[number % len(NODES)]
        runner.fault(f"SIGSTOP of node {node} for 1.5 s", [node])
        runner.cluster.pause(node)
        await asyncio.sleep(1.5)
        runner.cluster.resume(node)
        await asyncio.sleep(3.5)


async def roll(runner: ScenarioRunner) -> None:
    """Rolling restart: each node is shut down gracefully and restarted."""
    for node in NODES[: max(1, round(SECONDS / 20))]:
        runner.fault(f"shutdown of node {node}", [node])
        await asyncio.to_thread(runner.cluster.terminate, node)
        await asyncio.to_thread(runner.cluster.restart, node)
        await runner.elect_preferred_leaders()
        await asyncio.sleep(2)


async def move(runner: ScenarioRunner) -> None:
    """All leaders move, repeatedly."""
    until = time.monotonic() + SECONDS
    shift = 0
    while time.monotonic() < until:
        shift += 1
        runner.fault("all leaders move")
        await runner.reassign(shift)
        await asyncio.sleep(3)
    await runner.reassign(0)


async def outage(runner: ScenarioRunner) -> None:
    """kill -9 of all nodes, which are restarted later."""
    for _ in range(_ROUNDS):
        runner.fault("kill -9 of all nodes")
        await asyncio.to_thread(runner.cluster.kill, *NODES)
        await asyncio.sleep(6)
        await asyncio.to_thread(runner.cluster.restart, *NODES)
        await runner.elect_preferred_leaders()
        await asyncio.sleep(4)


async def hole(runner: ScenarioRunner) -> None:
    """The only replica of two partitions is down for longer than the delivery timeout."""
    node = runner.not_controller(0)
    runner.fault(f"kill -9 of node {node}, the only replica of its partitions", [node])
    await asyncio.to_thread(runner.cluster.kill, node)
    await asyncio.sleep(max(16.0, SECONDS / 2))
    await asyncio.to_thread(runner.cluster.restart, node)
    await asyncio.sleep(6)


def dark(stop: asyncio.Event) -> Callable[[ScenarioRunner], Awaitable[None]]:
    """All nodes are frozen; clients are closed meanwhile."""

    async def scenario(runner: ScenarioRunner) -> None:
        await asyncio.sleep(3)
        runner.fault("SIGSTOP of all nodes")
        runner.cluster.pause(*NODES)
        await asyncio.sleep(max(13.0, SECONDS / 3))
        stop.set()

    return scenario


class PeriodicFaults:
    """A plan of proxies: every ``seconds`` one Produce request gets the next fault. The times are
    added to ``moments``.
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
    """Connections are cut in the middle of a request."""
    return PeriodicFaults(
        moments, 1.5, CutRequest(40), CutRequest(5, reset=True), CutRequest(90), CutRequest(0)
    )


def lost_acknowledgements(moments: list[float]) -> Plan:
    """The broker stores the records, but its response does not arrive completely."""
    return PeriodicFaults(moments, 1.5, CutAnswer(0), CutAnswer(4, reset=True), CutAnswer(20))


def stalls(moments: list[float]) -> Plan:
    """A request, and all behind it, arrive late."""
    return PeriodicFaults(moments, 4.0, Stall(2.0), Stall(0.5))


def single_bytes(moments: list[float]) -> Plan:
    """Requests and responses arrive byte by byte."""
    return PeriodicFaults(moments, 2.0, SingleBytes())


async def wait(_: ScenarioRunner) -> None:
    """Wait while proxies inject faults."""
    await asyncio.sleep(SECONDS)


def frequent_faults(moments: list[float]) -> Plan:
    """Many different faults in a short time."""
    return PeriodicFaults(
        moments,
        0.15,
        CutAnswer(0),
        Stall(0.3),
        CutRequest(40),
        CutAnswer(4, reset=True),
        CutRequest(5),
    )


async def briefly(_: ScenarioRunner) -> None:
    """Wait a few seconds while proxies inject faults."""
    await asyncio.sleep(8)

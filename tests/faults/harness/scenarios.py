"""The scenarios: faults of the cluster or of proxies, for about `SECONDS` each."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence

from aioprod.protocol.api_keys import ApiKey
from tests.faults.harness.cluster_control import (
    NODES,
    SECONDS,
    SESSION_SECONDS,
    ClusterControl,
)
from tests.testing.fault_proxy import CutAnswer, CutRequest, Fault, Plan, SingleBytes, Stall

#: Longer than the session timeout of a broker.
FREEZE_SECONDS = 12.0
_ROUND_SECONDS = 22.0
ROUNDS = max(1, round(SECONDS / _ROUND_SECONDS))


async def quiet(control: ClusterControl) -> None:
    """No fault: measures the gaps of this machine."""
    control.fault("none")
    await asyncio.sleep(SECONDS / 3)


async def kill(control: ClusterControl) -> None:
    """kill -9 of a leader; it is restarted later and leads again."""
    for number in range(ROUNDS):
        await kill_node(control, control.not_controller(number))


async def kill_controller(control: ClusterControl) -> None:
    """kill -9 of the active controller: a new controller is elected first, and then waits for the
    session timeout.
    """
    for _ in range(ROUNDS):
        node = control.cluster.active_controller()
        await kill_node(control, node, ", the active controller", SESSION_SECONDS + 8)


async def kill_node(
    control: ClusterControl, node: int, role: str = "", seconds: float = SESSION_SECONDS + 5
) -> None:
    """kill -9 of a node, which is restarted after ``seconds`` and leads again."""
    control.fault(f"kill -9 of node {node}{role}", [node])
    await asyncio.to_thread(control.cluster.kill, node)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(control.cluster.restart, node)
    await control.elect_preferred_leaders()
    await asyncio.sleep(2)


async def freeze(control: ClusterControl) -> None:
    """SIGSTOP of a leader for longer than its session timeout."""
    for number in range(ROUNDS):
        await freeze_node(control, control.not_controller(number))


async def freeze_node(control: ClusterControl, node: int, role: str = "") -> None:
    """SIGSTOP of a node for longer than its session timeout."""
    control.fault(f"SIGSTOP of node {node}{role} for {FREEZE_SECONDS:g} s", [node])
    control.cluster.pause(node)
    await asyncio.sleep(FREEZE_SECONDS)
    control.cluster.resume(node)
    await control.elect_preferred_leaders()
    await asyncio.sleep(2)


async def nap(control: ClusterControl) -> None:
    """SIGSTOP of a leader for less than its session timeout."""
    for number in range(max(1, int(SECONDS / 5))):
        node = NODES[number % len(NODES)]
        control.fault(f"SIGSTOP of node {node} for 1.5 s", [node])
        control.cluster.pause(node)
        await asyncio.sleep(1.5)
        control.cluster.resume(node)
        await asyncio.sleep(3.5)


async def roll(control: ClusterControl) -> None:
    """Rolling restart: each node is shut down gracefully and restarted."""
    for node in NODES[: max(1, round(SECONDS / 20))]:
        control.fault(f"shutdown of node {node}", [node])
        await asyncio.to_thread(control.cluster.terminate, node)
        await asyncio.to_thread(control.cluster.restart, node)
        await control.elect_preferred_leaders()
        await asyncio.sleep(2)


async def move(control: ClusterControl) -> None:
    """All leaders move, repeatedly."""
    until = time.monotonic() + SECONDS
    shift = 0
    while time.monotonic() < until:
        shift += 1
        control.fault("all leaders move")
        await control.reassign(shift)
        await asyncio.sleep(3)
    await control.reassign(0)


async def outage(control: ClusterControl) -> None:
    """kill -9 of all nodes, which are restarted later."""
    for _ in range(ROUNDS):
        control.fault("kill -9 of all nodes")
        await asyncio.to_thread(control.cluster.kill, *NODES)
        await asyncio.sleep(6)
        await asyncio.to_thread(control.cluster.restart, *NODES)
        await control.elect_preferred_leaders()
        await asyncio.sleep(4)


async def hole(control: ClusterControl) -> None:
    """The only replica of two partitions is down for longer than the delivery timeout."""
    node = control.not_controller(0)
    control.fault(f"kill -9 of node {node}, the only replica of its partitions", [node])
    await asyncio.to_thread(control.cluster.kill, node)
    await asyncio.sleep(max(16.0, SECONDS / 2))
    await asyncio.to_thread(control.cluster.restart, node)
    await asyncio.sleep(6)


def dark(stop: asyncio.Event) -> Callable[[ClusterControl], Awaitable[None]]:
    """All nodes are frozen; clients are closed meanwhile."""

    async def scenario(control: ClusterControl) -> None:
        await asyncio.sleep(3)
        control.fault("SIGSTOP of all nodes")
        control.cluster.pause(*NODES)
        await asyncio.sleep(max(13.0, SECONDS / 3))
        stop.set()

    return scenario


class PeriodicFaults:
    """A plan of proxies: every ``seconds`` one request of an API gets the next fault. The times are
    added to ``moments``.

    Args:
        apis: the APIs; the time of each is counted for itself.
    """

    def __init__(
        self,
        moments: list[float],
        seconds: float,
        *faults: Fault,
        apis: Sequence[int] = (ApiKey.PRODUCE,),
    ) -> None:
        self._moments = moments
        self._seconds = seconds
        self._faults = faults
        began = time.monotonic()
        # One after the other, so that faults of different APIs do not coincide.
        self._next = {
            api: began + seconds * (number + 1) / len(apis) for number, api in enumerate(apis)
        }

    def __call__(self, api_key: int, size: int) -> Fault | None:
        now = time.monotonic()
        if now < self._next.get(api_key, math.inf):
            return None
        self._next[api_key] = now + self._seconds
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
    """A request, and all requests after it, arrive late."""
    return PeriodicFaults(moments, 4.0, Stall(2.0), Stall(0.5))


def single_bytes(moments: list[float]) -> Plan:
    """Requests and responses arrive byte by byte."""
    return PeriodicFaults(moments, 2.0, SingleBytes())


async def wait(_: ClusterControl) -> None:
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


async def briefly(_: ClusterControl) -> None:
    """Wait a few seconds while proxies inject faults."""
    await asyncio.sleep(8)

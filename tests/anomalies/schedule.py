"""The schedule of a fault, as a function of a seed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import NamedTuple

from tests.testing.fault_proxy import Fault as NetworkFault


class Action(StrEnum):
    """A fault of nodes or clients."""

    NONE = "nothing happens"
    KILL = "kill -9"
    STOP = "shutdown"
    FREEZE = "SIGSTOP"
    SKEW = "restart with a skewed clock"
    KILL_COORDINATOR = "kill -9 of the coordinator"
    FREEZE_COORDINATOR = "SIGSTOP of the coordinator"
    SHRINK = "SIGSTOP, while all replicas have to be in sync"
    FILL_DISK = "files can't grow"
    MOVE = "all leaders move"
    RECREATE = "topics deleted and created again"
    CUT_OFF = "cut off from clients"
    ISOLATE = "cut off from the other nodes"
    DELAY_REQUESTS = "requests delayed"
    DELAY_ANSWERS = "responses delayed"
    FREEZE_CLIENTS = "SIGSTOP of all clients"


class Step(NamedTuple):
    """A fault of nodes, or of all clients.

    Attributes:
        nodes: the affected nodes; empty means the active controller of that moment.
        seconds: the time for which they stay down or frozen.
        pause: the seconds from the recovery to the next step.
        amount: the skew of the clock in seconds, the number of nodes by which leaders move, or the
            coordinator: 0 for that of groups, 1 for that of transactions.
    """

    action: Action
    nodes: tuple[int, ...] = ()
    seconds: float = 0.0
    pause: float = 0.0
    amount: int = 0

    def __str__(self) -> str:
        amount = f" by {self.amount}" if self.amount else ""
        nodes = f" of {', '.join(map(str, self.nodes))}" if self.nodes else ""
        return f"{self.action}{nodes}{amount} for {self.seconds:.3f} s, pause {self.pause:.3f} s"


class Visit(NamedTuple):
    """A member of the group that joins, and leaves or is killed.

    Attributes:
        at: the seconds from the begin of the fault until it joins.
        seconds: the time for which it stays.
    """

    at: float
    seconds: float


class Disturbed(NamedTuple):
    """A request that gets a fault: the first one at or after ``at``."""

    at: float
    fault: NetworkFault


@dataclass(frozen=True)
class Schedule:
    """Everything that happens in a run of a fault.

    Attributes:
        steps: the faults of nodes and clients, one after the other.
        network: the faults of requests by API key, for each client.
        visits: the members that join and leave, for each client.
        kills: the members that join, and are killed some seconds after their first record.
        round_trip_ms: the distance of the brokers.
        proxied: whether the steps need proxies between clients and nodes.
        between_nodes: whether the steps need proxies between the nodes.
        overdue: the moments after which the next transaction of each client stays open for longer
            than its producer's ``transaction.timeout.ms``.
    """

    steps: Sequence[Step]
    network: Mapping[int, Sequence[Disturbed]] = field(default_factory=dict)
    visits: Sequence[Visit] = ()
    kills: Sequence[Visit] = ()
    round_trip_ms: float = 0.0
    proxied: bool = False
    between_nodes: bool = False
    overdue: Sequence[float] = ()


def steps(random: Random, seconds: float, next_step: Callable[[Random, int], Step]) -> list[Step]:
    """Return at least one step, and as many as begin within ``seconds``. The second argument of
    ``next_step`` is the number of the step.
    """
    found: list[Step] = []
    at = 0.0
    while at < seconds:
        step = next_step(random, len(found))
        found.append(step)
        at += step.seconds + step.pause
    return found


def visits(random: Random, seconds: float, between: float) -> list[Visit]:
    """Return the visits of a storm: one begins every ``between`` seconds on average."""
    found = []
    at = random.uniform(0, between)
    while at < seconds:
        found.append(Visit(at, random.uniform(0.1, 4 * between)))
        at += random.uniform(0.2 * between, 1.8 * between)
    return found


def moments(random: Random, seconds: float, between: float) -> list[float]:
    """Return moments, one every ``between`` seconds on average."""
    found = []
    at = random.uniform(0, between)
    while at < seconds:
        found.append(at)
        at += random.uniform(0.5 * between, 1.5 * between)
    return found


def requests(
    seed: str, seconds: float, between: float, apis: Sequence[int], faults: Sequence[NetworkFault]
) -> dict[int, list[Disturbed]]:
    """Return the faults of requests: one every ``between`` seconds on average for each API."""
    found: dict[int, list[Disturbed]] = {}
    for api in apis:
        random = Random(f"{seed}/{int(api)}")
        of_api: list[Disturbed] = []
        at = random.uniform(0, between)
        while at < seconds:
            of_api.append(Disturbed(at, random.choice(faults)))
            at += random.uniform(0.5 * between, 1.5 * between)
        found[int(api)] = of_api
    return found


class ScheduledRequests:
    """A plan of a client's proxies, which gives requests the scheduled faults. It does nothing
    before ``begin`` and after ``end``.

    Attributes:
        done: the number of faults.
    """

    def __init__(
        self,
        network: Mapping[int, Sequence[Disturbed]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.done = 0
        self._clock = clock
        self._next = {api: list(reversed(faults)) for api, faults in network.items()}
        self._began = math.inf

    def begin(self) -> None:
        """The time of the schedule begins now."""
        self._began = self._clock()

    def end(self) -> None:
        """Let all requests pass from now on."""
        self._next = {}

    def __call__(self, api_key: int, size: int) -> NetworkFault | None:
        waiting = self._next.get(api_key)
        if not waiting or self._clock() - self._began < waiting[-1].at:
            return None
        self.done += 1
        return waiting.pop().fault

"""The faults of a campaign. Each one's schedule is a function of a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from aioprod.protocol.api_keys import ApiKey
from tests.anomalies.schedule import (
    Action,
    Disturbed,
    Schedule,
    Step,
    Visit,
    moments,
    requests,
    steps,
    visits,
)
from tests.faults.harness.cluster_control import NODES
from tests.testing.fault_proxy import CutAnswer, CutRequest, SingleBytes, Stall
from tests.testing.fault_proxy import Fault as NetworkFault

_GROUP_APIS = (
    ApiKey.FETCH,
    ApiKey.HEARTBEAT,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
)
_TRANSACTION_APIS = (
    ApiKey.PRODUCE,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.END_TXN,
)
_SKEWS_S = (-300, -45, 45, 300)

_NextStep = Callable[[Random, int], Step]
_Network = Callable[[str, float], Mapping[int, Sequence[Disturbed]]]
_Visits = Callable[[Random, float], Sequence[Visit]]
_Moments = Callable[[Random, float], Sequence[float]]


@dataclass(frozen=True)
class Fault:
    """A kind of fault, which happens repeatedly.

    Attributes:
        next_step: makes a step from a source of random numbers and the number of the step; None
            if nothing happens to nodes and clients.
        network: makes the faults of requests, from a seed and the length in seconds.
        visits: makes the visits of members.
        kills: makes the visits of members that are killed.
        round_trip_ms: the distance of the brokers.
        proxied: whether its steps need proxies between clients and nodes.
        between_nodes: whether its steps need proxies between the nodes.
        overdue: makes the moments of transactions that stay open for too long.
    """

    what: str
    next_step: _NextStep | None = None
    network: _Network = lambda seed, seconds: {}
    visits: _Visits = lambda random, seconds: ()
    kills: _Visits = lambda random, seconds: ()
    round_trip_ms: float = 0.0
    proxied: bool = False
    between_nodes: bool = False
    overdue: _Moments = lambda random, seconds: ()

    def schedule(self, seed: int, seconds: float) -> Schedule:
        """Return the schedule of about this time."""
        return Schedule(
            [Step(Action.NONE, pause=seconds)]
            if self.next_step is None
            else steps(Random(f"{seed}/steps"), seconds, self.next_step),
            self.network(str(seed), seconds),
            self.visits(Random(f"{seed}/visits"), seconds),
            self.kills(Random(f"{seed}/kills"), seconds),
            self.round_trip_ms,
            self.proxied,
            self.between_nodes,
            self.overdue(Random(f"{seed}/overdue"), seconds),
        )


def _node(random: Random) -> tuple[int, ...]:
    return (random.choice(NODES),)


def _in_turn(number: int) -> tuple[int, ...]:
    return (NODES[number % len(NODES)],)


def _kill(random: Random, number: int) -> Step:
    return Step(Action.KILL, _node(random), random.uniform(4, 9), random.uniform(1, 4))


def _kill_controller(random: Random, number: int) -> Step:
    return Step(Action.KILL, (), random.uniform(8, 12), random.uniform(1, 4))


def _freeze(random: Random, number: int) -> Step:
    return Step(Action.FREEZE, _node(random), random.uniform(8, 14), random.uniform(1, 4))


def _nap(random: Random, number: int) -> Step:
    return Step(Action.FREEZE, _node(random), random.uniform(0.5, 2), random.uniform(1, 4))


def _roll(random: Random, number: int) -> Step:
    return Step(Action.STOP, _in_turn(number), random.uniform(0, 2), random.uniform(1, 4))


def _kill_coordinator(random: Random, number: int) -> Step:
    return _of_coordinator(Action.KILL_COORDINATOR, random.uniform(4, 9), random)


def _freeze_coordinator(random: Random, number: int) -> Step:
    return _of_coordinator(Action.FREEZE_COORDINATOR, random.uniform(8, 14), random)


def _of_coordinator(action: Action, seconds: float, random: Random) -> Step:
    pause, coordinator = random.uniform(1, 4), random.randrange(2)
    return Step(action, (), seconds, pause, coordinator)


def _shrink(random: Random, number: int) -> Step:
    return Step(Action.SHRINK, _node(random), random.uniform(6, 12), random.uniform(2, 5))


def _fill_disk(random: Random, number: int) -> Step:
    return Step(Action.FILL_DISK, _node(random), random.uniform(4, 9), random.uniform(1, 4))


def _recreate(random: Random, number: int) -> Step:
    return Step(Action.RECREATE, (), random.uniform(0.2, 2), random.uniform(6, 12))


def _cut_off(random: Random, number: int) -> Step:
    return Step(Action.CUT_OFF, _node(random), random.uniform(2, 14), random.uniform(1, 4))


def _one_way(random: Random, number: int) -> Step:
    action = random.choice([Action.DELAY_REQUESTS, Action.DELAY_ANSWERS])
    return Step(action, _node(random), random.uniform(2, 14), random.uniform(1, 4))


def _isolate(random: Random, number: int) -> Step:
    return Step(Action.ISOLATE, _node(random), random.uniform(6, 12), random.uniform(2, 5))


def _outage(random: Random, number: int) -> Step:
    return Step(Action.KILL, NODES, random.uniform(4, 8), random.uniform(2, 6))


def _skew(random: Random, number: int) -> Step:
    return Step(
        Action.SKEW,
        _in_turn(number),
        random.uniform(4, 8),
        random.uniform(1, 3),
        random.choice(_SKEWS_S),
    )


def _move(random: Random, number: int) -> Step:
    return Step(Action.MOVE, NODES, 0, random.uniform(1, 4), amount=number + 1)


def _freeze_clients(random: Random, number: int) -> Step:
    return Step(Action.FREEZE_CLIENTS, (), random.uniform(2, 12), random.uniform(3, 6))


def _cuts(seed: str, seconds: float) -> Mapping[int, Sequence[Disturbed]]:
    cuts = [CutRequest(0), CutRequest(5, reset=True), CutRequest(40), CutRequest(90)]
    return requests(seed, seconds, 1.5, [ApiKey.PRODUCE], cuts)


def _lost_answers(seed: str, seconds: float) -> Mapping[int, Sequence[Disturbed]]:
    faults = [CutAnswer(0), CutAnswer(4, reset=True), CutAnswer(20)]
    return requests(seed, seconds, 2.0, _TRANSACTION_APIS, faults)


def _late_requests(seed: str, seconds: float) -> Mapping[int, Sequence[Disturbed]]:
    faults: list[NetworkFault] = [Stall(1.5), Stall(0.3), CutRequest(20), SingleBytes()]
    return requests(seed, seconds, 2.5, _TRANSACTION_APIS, faults)


def _late_ends(seed: str, seconds: float) -> Mapping[int, Sequence[Disturbed]]:
    return requests(seed, seconds, 14.0, [ApiKey.END_TXN], [Stall(11.0), Stall(12.0), Stall(13.0)])


def _group_requests(seed: str, seconds: float) -> Mapping[int, Sequence[Disturbed]]:
    faults: list[NetworkFault] = [
        CutAnswer(0),
        Stall(1.0),
        CutRequest(12),
        CutAnswer(6, reset=True),
    ]
    return requests(seed, seconds, 3.0, _GROUP_APIS, faults)


def _storm(random: Random, seconds: float) -> Sequence[Visit]:
    return visits(random, seconds, 1.0)


def _kill_members(random: Random, seconds: float) -> Sequence[Visit]:
    return [Visit(at, random.uniform(0, 6)) for at in moments(random, seconds, 10.0)]


def _overdue(random: Random, seconds: float) -> Sequence[float]:
    return moments(random, seconds, 10.0)


SKEWED = "clock-skew"
"""The fault that needs libfaketime."""
FAULTS: dict[str, Fault] = {
    "none": Fault("no fault"),
    "kill": Fault("kill -9 of a node", _kill),
    "kill-controller": Fault("kill -9 of the active controller", _kill_controller),
    "kill-coordinator": Fault("kill -9 of a coordinator", _kill_coordinator),
    "freeze": Fault("SIGSTOP of a node for longer than its session", _freeze),
    "freeze-coordinator": Fault(
        "SIGSTOP of a coordinator for longer than its session", _freeze_coordinator
    ),
    "nap": Fault("SIGSTOP of a node for 0.5 to 2 s", _nap),
    "roll": Fault("rolling restart", _roll),
    "move": Fault("all leaders move", _move),
    "shrink": Fault("SIGSTOP of a node, `min.insync.replicas=3`", _shrink),
    "full-disk": Fault("files of a node can't grow, as on a full disk", _fill_disk),
    "recreate": Fault("topic deleted and created again", _recreate),
    "outage": Fault("kill -9 of all nodes", _outage),
    SKEWED: Fault("clocks of nodes wrong by 45 or 300 s", _skew),
    "cut-off": Fault("a node cut off from clients", _cut_off, proxied=True),
    "one-way": Fault("a node cut off in one direction", _one_way, proxied=True),
    "isolate": Fault("a node cut off from the other nodes", _isolate, between_nodes=True),
    "cuts": Fault("connections cut within a Produce request", network=_cuts),
    "lost-answers": Fault("responses to producers lost", network=_lost_answers),
    "late-requests": Fault("requests of producers late or cut", network=_late_requests),
    "late-ends": Fault("EndTxn delivered after its timeout", network=_late_ends),
    "overdue": Fault("transactions past their timeout", overdue=_overdue),
    "group-requests": Fault("requests of members late, responses lost", network=_group_requests),
    "storm": Fault("members join and leave", visits=_storm),
    "kill-members": Fault("kill -9 of members", kills=_kill_members),
    "freeze-clients": Fault("SIGSTOP of the clients for 2 to 12 s", _freeze_clients),
    "far-25": Fault("brokers 25 ms away", round_trip_ms=25),
    "far-250": Fault("brokers 250 ms away", round_trip_ms=250),
    "mixed": Fault(
        "rolling restart, lost responses, members join and leave", _roll, _lost_answers, _storm
    ),
}

"""The schedule of a fault is a function of its seed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod.protocol.api_keys import ApiKey
from tests.anomalies.faults import FAULTS
from tests.anomalies.injection import inject
from tests.anomalies.schedule import Action, Disturbed, ScheduledRequests, Step
from tests.testing.fault_proxy import CutRequest, Stall

SECONDS = 60.0
RANDOM = [name for name, fault in FAULTS.items() if name != "none" and not fault.round_trip_ms]


@pytest.mark.parametrize("name", FAULTS)
def test_two_runs_of_a_seed_have_the_same_schedule(name: str) -> None:
    assert FAULTS[name].schedule(7, SECONDS) == FAULTS[name].schedule(7, SECONDS)


@pytest.mark.parametrize("name", RANDOM)
def test_other_seeds_have_other_schedules(name: str) -> None:
    schedules = [FAULTS[name].schedule(seed, SECONDS) for seed in range(4)]
    assert all(each != schedules[0] for each in schedules[1:])


@pytest.mark.parametrize("name", FAULTS)
def test_a_schedule_takes_about_its_time(name: str) -> None:
    for seed in range(20):
        schedule = FAULTS[name].schedule(seed, SECONDS)
        longest = max(each.seconds + each.pause for each in schedule.steps)
        assert (
            SECONDS
            <= sum(each.seconds + each.pause for each in schedule.steps)
            < (SECONDS + longest + 1)
        )
        moments = [each.at for of_api in schedule.network.values() for each in of_api]
        moments += [each.at for each in (*schedule.visits, *schedule.kills)] + [*schedule.overdue]
        assert all(0 <= each < SECONDS for each in moments)
        if FAULTS[name].round_trip_ms == 0 and name != "none":
            happenings = [each for each in schedule.steps if each.action is not Action.NONE]
            assert len(happenings) + len(moments) >= 3


def test_requests_get_their_faults_in_turn_and_only_between_begin_and_end() -> None:
    now = 0.0
    late, cut = Stall(1.0), CutRequest(5)
    produce = [Disturbed(1.0, late), Disturbed(2.0, cut), Disturbed(9.0, cut)]
    plan = ScheduledRequests({ApiKey.PRODUCE: produce}, lambda: now)
    now = 100.0
    assert plan(ApiKey.PRODUCE, 50) is None
    plan.begin()
    assert plan(ApiKey.PRODUCE, 50) is None
    now = 103.0
    assert plan(ApiKey.FETCH, 50) is None
    assert [plan(ApiKey.PRODUCE, 50) for _ in range(3)] == [late, cut, None]
    assert plan.done == 2
    plan.end()
    now = 200.0
    assert plan(ApiKey.PRODUCE, 50) is None


class Nodes:
    """Stands for a cluster, and notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.cluster = self

    def active_controller(self) -> int:
        return 3

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.done.append((name, *arguments))

    async def leader(self, topic: str) -> int:
        return {"__consumer_offsets": 1, "__transaction_state": 2}[topic]

    async def set_least_in_sync(self, replicas: int) -> None:
        self.done.append(("least in sync", replicas))

    async def recreate(self, seconds: float) -> None:
        self.done.append(("recreate", seconds))

    async def elect_preferred_leaders(self) -> None:
        self.done.append(("elect_preferred_leaders",))

    async def reassign(self, shift: int) -> None:
        self.done.append(("reassign", shift))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(Action.NONE), []),
        (Step(Action.KILL, (2,)), ["kill 2", "restart 2", "elect_preferred_leaders"]),
        (Step(Action.KILL), ["kill 3", "restart 3", "elect_preferred_leaders"]),
        (Step(Action.KILL, (1, 2)), ["kill 1 2", "restart 1 2", "elect_preferred_leaders"]),
        (Step(Action.STOP, (1,)), ["terminate 1", "restart 1", "elect_preferred_leaders"]),
        (Step(Action.FREEZE, (1,)), ["pause 1", "resume 1", "elect_preferred_leaders"]),
        (Step(Action.MOVE, (1, 2, 3), amount=2), ["reassign 2"]),
        (Step(Action.FREEZE_CLIENTS), ["freeze", "thaw"]),
        (
            Step(Action.KILL_COORDINATOR, amount=0),
            ["kill 1", "restart 1", "elect_preferred_leaders"],
        ),
        (
            Step(Action.FREEZE_COORDINATOR, amount=1),
            ["pause 2", "resume 2", "elect_preferred_leaders"],
        ),
        (
            Step(Action.SHRINK, (3,)),
            [
                *("least in sync 3", "pause 3", "resume 3"),
                *("elect_preferred_leaders", "least in sync 2"),
            ],
        ),
        (
            Step(Action.FILL_DISK, (2,)),
            ["limit_files 2", "restart 2", "elect_preferred_leaders"],
        ),
        (Step(Action.RECREATE, seconds=1.5), ["recreate 1.5"]),
        (Step(Action.CUT_OFF, (1,)), ["delay 1 True True", "pass_all"]),
        (Step(Action.DELAY_REQUESTS, (1,)), ["delay 1 True False", "pass_all"]),
        (Step(Action.ISOLATE, (3,)), ["isolate 3", "join", "elect_preferred_leaders"]),
        (Step(Action.DELAY_ANSWERS, (1,)), ["delay 1 False True", "pass_all"]),
    ],
    ids=str,
)
def test_a_step_is_carried_out(step: Step, expected: list[str]) -> None:
    nodes = Nodes()
    asyncio.run(inject(step, nodes, [nodes]))  # type: ignore[arg-type, list-item]
    assert [" ".join(map(str, each)) for each in nodes.done] == expected

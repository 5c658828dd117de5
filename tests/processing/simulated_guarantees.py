"""The guarantees of processors, each judged for the group of a seed: positions without holes, the
order of keys, and how often a record is handled.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from aioprod.testing.simulation import SimulatedLoop, SimulationError
from tests.processing import oracle
from tests.processing.simulated_members import (
    CLASSIC,
    CONSUMER,
    OUTPUT,
    PARTITIONS,
    Run,
    running,
)


def outputs(run: Run) -> list[bytes]:
    records = run.cluster.records(OUTPUT, committed_only=True)
    return [record.value or b"" for record in records]


async def at_least_once(seed: int, protocol: str) -> list[str]:
    async with running(seed, "at_least_once", protocol) as run:
        found = run.history.findings
        found += oracle.disordered_keys(run.history.calls)
        found += oracle.skipped_keys(run.history.calls, run.keys)
        found += oracle.overlaps_in_a_member(run.history.calls)
        places = {(p, offset) for p, offsets in run.starts.items() for offset in offsets}
        found += [f"{place} is lost" for place in places - run.history.done]
        dead = {run.cluster_value(place) for place in run.dead_letters()}
        found += [
            f"{value!r} has no output" for value in set(run.values) - set(outputs(run)) - dead
        ]
    return found


async def at_most_once(seed: int, protocol: str) -> list[str]:
    async with running(seed, "at_most_once", protocol) as run:
        found = run.history.findings
        found += oracle.handled_more_than_once(run.history.calls)
    return found


async def exactly_once(seed: int, protocol: str) -> list[str]:
    async with running(seed, "exactly_once", protocol) as run:
        found = run.history.findings
        found += oracle.disordered_keys(run.history.calls)
        dead = [run.cluster_value(place) for place in run.dead_letters()]
        found += oracle.outputs_not_exactly_once(run.values, [*outputs(run), *dead])
        found += oracle.overlaps_in_a_member(run.history.calls)
        for partition in range(PARTITIONS):
            stored = run.cluster.records(OUTPUT, partition, committed_only=True)
            numbers = [(r.key or b"", int((r.value or b"").rpartition(b":")[2])) for r in stored]
            found += oracle.disordered_outputs(numbers)
    return found


Guarantee = Callable[[int, str], Coroutine[Any, Any, list[str]]]
GUARANTEES: tuple[Guarantee, ...] = (at_least_once, at_most_once, exactly_once)


def judge(
    guarantee: Guarantee, seed: int, protocol: str = CLASSIC, *, hostile: bool | None = None
) -> list[str]:
    """Run a seed, and return what is wrong.

    Args:
        hostile: run ready tasks in random order (default: each third seed).

    Raises:
        TimeoutError: if the processors do not come to an end.
        SimulationError: if the run can't continue.
    """
    hostile = seed % 3 == 2 if hostile is None else hostile
    loop = SimulatedLoop(seed, hostile=hostile, time_limit_seconds=3_000)
    return loop.run(guarantee(seed, protocol))


def findings(
    guarantee: Guarantee, seed: int, protocol: str = CLASSIC, *, hostile: bool | None = None
) -> list[str]:
    """Run a seed, and return what is wrong, or that it does not come to its end."""
    try:
        return judge(guarantee, seed, protocol, hostile=hostile)
    except (TimeoutError, AssertionError, SimulationError) as error:
        return [f"the run does not come to its end: {error!r}"]


def drawn(seed: int) -> tuple[Guarantee, str]:
    """Return the guarantee and the protocol that a seed chooses."""
    random = Random(f"{seed}/processors")
    return random.choice(GUARANTEES), random.choice((CLASSIC, CONSUMER))

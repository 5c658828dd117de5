"""Carries out the steps of a schedule on a real cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.anomalies.client_process import ClientProcess
from tests.anomalies.control import COORDINATORS, CampaignControl
from tests.anomalies.schedule import Action, Step
from tests.faults.harness.cluster_control import NODES

_LEAST_IN_SYNC = 2
_FAKETIME = "*/faketime/libfaketimeMT.so.1"


class SkewUnavailableError(Exception):
    """libfaketime is not installed."""


def faketime_library() -> Path | None:
    """Return the library that skews clocks, from the distribution's package ``faketime``."""
    return next(iter(sorted(Path("/usr/lib").glob(_FAKETIME))), None)


async def inject(step: Step, control: CampaignControl, clients: Sequence[ClientProcess]) -> None:
    """Carry out a step, and wait until the cluster has recovered."""
    nodes = await _nodes(step, control)
    match step.action:
        case Action.KILL | Action.KILL_COORDINATOR:
            await asyncio.to_thread(control.cluster.kill, *nodes)
            await _restart_later(control, nodes, step.seconds)
        case Action.STOP:
            await asyncio.gather(
                *(asyncio.to_thread(control.cluster.terminate, node) for node in nodes)
            )
            await _restart_later(control, nodes, step.seconds)
        case Action.FREEZE | Action.FREEZE_COORDINATOR:
            await _freeze(control, nodes, step.seconds)
        case Action.SHRINK:
            await control.set_least_in_sync(len(NODES))
            await _freeze(control, nodes, step.seconds)
            await control.set_least_in_sync(_LEAST_IN_SYNC)
        case Action.FILL_DISK:
            control.limit_files(*nodes)
            await _restart_later(control, nodes, step.seconds)
        case Action.SKEW:
            await asyncio.to_thread(_restart_skewed, control, nodes, step.amount)
            await control.elect_preferred_leaders()
            await _restart_later(control, nodes, step.seconds)
        case Action.MOVE:
            await control.reassign(step.amount)
        case Action.RECREATE:
            await control.recreate(step.seconds)
        case Action.CUT_OFF | Action.DELAY_REQUESTS | Action.DELAY_ANSWERS:
            for node in nodes:
                requests = step.action is not Action.DELAY_ANSWERS
                control.delay(node, requests, step.action is not Action.DELAY_REQUESTS)
            await asyncio.sleep(step.seconds)
            control.pass_all()
        case Action.ISOLATE:
            control.isolate(*nodes)
            await asyncio.sleep(step.seconds)
            control.join()
            await control.elect_preferred_leaders()
        case Action.FREEZE_CLIENTS:
            for each in clients:
                each.freeze()
            await asyncio.sleep(step.seconds)
            for each in clients:
                each.thaw()
    await asyncio.sleep(step.pause)


async def _nodes(step: Step, control: CampaignControl) -> tuple[int, ...]:
    if step.action in (Action.KILL_COORDINATOR, Action.FREEZE_COORDINATOR):
        return (await control.leader(COORDINATORS[step.amount]),)
    return step.nodes or (control.cluster.active_controller() or NODES[0],)


async def _freeze(control: CampaignControl, nodes: Sequence[int], seconds: float) -> None:
    control.cluster.pause(*nodes)
    await asyncio.sleep(seconds)
    control.cluster.resume(*nodes)
    await control.elect_preferred_leaders()


async def restore(control: CampaignControl) -> None:
    """Start all nodes, and let the preferred ones lead, as before the faults."""
    await control.restore()
    await control.reassign(0)


async def _restart_later(control: CampaignControl, nodes: Sequence[int], seconds: float) -> None:
    await asyncio.sleep(seconds)
    await asyncio.to_thread(control.cluster.restart, *nodes)
    await control.elect_preferred_leaders()


def _restart_skewed(control: CampaignControl, nodes: Sequence[int], seconds: int) -> None:
    with _environment(_skewed(seconds)):
        control.cluster.restart(*nodes)


def _skewed(seconds: int) -> dict[str, str]:
    library = faketime_library()
    if library is None:
        raise SkewUnavailableError("clock-skew: install the distribution's package faketime")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",  # its name in older releases
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # otherwise Java's timed waits never end
        "NO_FAKE_STAT": "1",  # Java compares the times of its files
    }


@contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    """Set variables for processes that start meanwhile. No other ones start during a step."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

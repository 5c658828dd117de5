"""The cost of a record when many tasks send and await one record each, at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load (no headers); ``warm_up_records``; ``tasks``, a
    divisor of both.
    """
    load, tasks = Load(**arguments["load"]), arguments["tasks"]
    async with started(adapter, settings):
        await _bursts(adapter, replace(load, records=arguments["warm_up_records"]), tasks)
        cost = await measured(load.records, lambda: _bursts(adapter, load, tasks))
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}


async def _bursts(adapter: Adapter, load: Load, tasks: int) -> None:
    records = load.keyed_values()
    for _ in range(load.records // tasks):
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                key, value = next(records)
                group.create_task(adapter.send_and_wait(load.topic, value, key))

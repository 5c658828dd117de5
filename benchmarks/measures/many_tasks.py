"""The cost of a record when many tasks each send and await records in sequence."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load (no headers); ``tasks``, a divisor of the number of
    records.
    """
    load, tasks = Load(**arguments["load"]), arguments["tasks"]
    records = load.keyed_values()

    async def one_task() -> None:
        for _ in range(load.records // tasks):
            key, value = next(records)
            await adapter.send_and_wait(load.topic, value, key)

    async def all_tasks() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(one_task())

    async with started(adapter, settings):
        await adapter.send_and_wait(load.topic, b"v", None)  # connects and fetches metadata
        cost = await measured(load.records, all_tasks)
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}

"""Measures the time that asyncio takes for tasks that each await one future, without a client: the
part of ``bursts`` that no client can save.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings
from benchmarks.harness import measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: as for ``bursts``. Neither the adapter nor the broker is used."""
    load, tasks = Load(**arguments["load"]), arguments["tasks"]
    await _bursts(arguments["warm_up_records"] // tasks, tasks)
    cost = await measured(load.records, lambda: _bursts(load.records // tasks, tasks))
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s, "sent": 0}


async def _bursts(count: int, tasks: int) -> None:
    for _ in range(count):
        waiting: list[asyncio.Future[None]] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(_wait(waiting))
            await asyncio.sleep(0)  # all tasks wait now
            for future in waiting:
                future.set_result(None)


async def _wait(waiting: list[asyncio.Future[None]]) -> None:
    future = asyncio.get_running_loop().create_future()
    waiting.append(future)
    await future

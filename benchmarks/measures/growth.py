"""The cost of many records that many tasks send with many producers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.harness import Cost, measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load; ``warm_up_records``; ``tasks``, a divisor of the
    number of records; ``producers``, a divisor of both numbers of records.
    """
    load, tasks, producers = Load(**arguments["load"]), arguments["tasks"], arguments["producers"]
    warm_up = replace(load, records=arguments["warm_up_records"])
    async with AsyncExitStack() as stack:
        adapters = [adapter, *(type(adapter)() for _ in range(1, producers))]
        for each in adapters:
            await stack.enter_async_context(started(each, settings))
        await _cost(adapters, warm_up, producers)
        cost = await _cost(adapters, load, max(tasks, producers))
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}


async def _cost(adapters: Sequence[Adapter], load: Load, tasks: int) -> Cost:
    """Send the records in equal parts, one for each task, and return the cost. The tasks exist
    before.
    """
    part = replace(load, records=load.records // tasks)
    begin = asyncio.Event()

    async def send(adapter: Adapter) -> None:
        await begin.wait()
        await adapter.send_all(part)

    sending = [
        asyncio.create_task(send(adapters[number % len(adapters)])) for number in range(tasks)
    ]
    await asyncio.sleep(0)  # they wait

    async def send_all() -> None:
        begin.set()
        for each in sending:
            await each

    return await measured(load.records, send_all)

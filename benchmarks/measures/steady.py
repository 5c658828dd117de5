"""Records at a constant rate for minutes: latency, CPU and memory of each of several windows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Numbers
from benchmarks.measures.memory import resident_bytes
from benchmarks.timing import in_milliseconds, on_schedule

_TICKS_PER_SECOND = 100


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load, with the records of a window; ``rate`` in records
    per second, a multiple of 100; ``windows``, after one for warm-up.

    Each record is sent by a separate task, and its latency begins when it is due.
    """
    load, rate = Load(**arguments["load"]), arguments["rate"]
    windows = []
    async with started(adapter, settings):
        for number in range(arguments["windows"] + 1):
            window = await _window(adapter, load, rate)
            if number:
                windows.append(window)
    return {"windows": windows, "sent": load.records * (arguments["windows"] + 1)}


async def _window(adapter: Adapter, load: Load, rate: int) -> Numbers:
    """Send the records of a window and wait for them. Raises if one fails."""
    clock, durations = time.perf_counter, list[float]()
    records = load.keyed_values()
    at_once = rate // _TICKS_PER_SECOND
    wall_s, cpu_s = clock(), time.process_time()

    async def send(due: float, key: bytes | None, value: bytes) -> None:
        await adapter.send_and_wait(load.topic, value, key)
        durations.append(clock() - due)

    async with asyncio.TaskGroup() as group:

        def begin(due: float) -> None:
            for _ in range(at_once):
                group.create_task(send(due, *next(records)))

        await on_schedule(1 / _TICKS_PER_SECOND, load.records // at_once, begin)
    cpu_s, wall_s = time.process_time() - cpu_s, clock() - wall_s
    return {
        **in_milliseconds(durations),
        "cpu_percent": 100 * cpu_s / wall_s,
        "rss_mb": resident_bytes() / (1 << 20),
    }

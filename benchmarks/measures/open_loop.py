"""The latency of records at a fixed rate.

Each record is sent by a separate task that does not wait for earlier ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Numbers
from benchmarks.timing import (
    MILLISECONDS,
    frozen_heap,
    in_milliseconds,
    on_schedule,
    percentile,
)

_MAX_TICKS_PER_SECOND = 1_000  # asyncio's timers have a resolution of a millisecond


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load (no headers); ``warm_up_records``; ``rate``, in
    records per second.

    The latency of a record begins when it is due. ``late_p99_ms`` is how late its task was created
    because the event loop was busy. ``failed`` counts failed records, ``sent`` the others,
    including the warm-up.
    """
    load, rate = Load(**arguments["load"]), arguments["rate"]
    async with started(adapter, settings):
        warm_up = await _run(adapter, replace(load, records=arguments["warm_up_records"]), rate)
        with frozen_heap():
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            run = await _run(adapter, load, rate)
            cpu_percent = 100 * (time.process_time() - cpu_s) / (time.perf_counter() - wall_s)
    return {
        **in_milliseconds(run.durations),
        "late_p99_ms": percentile(sorted(run.lateness), 99) * MILLISECONDS,
        "cpu_percent": cpu_percent,
        "failed": run.failed,
        "sent": len(warm_up.durations) - warm_up.failed + len(run.durations) - run.failed,
    }


@dataclass(slots=True)
class _Run:
    """Durations of records from due to resolved, and how late each tick was, in seconds."""

    durations: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    failed: int = 0


async def _run(adapter: Adapter, load: Load, rate: int) -> _Run:
    clock = time.perf_counter
    run = _Run()
    records = load.keyed_values()
    ticks_per_second = min(rate, _MAX_TICKS_PER_SECOND)
    at_once = rate // ticks_per_second

    async def send(due: float, key: bytes | None, value: bytes) -> None:
        try:
            await adapter.send_and_wait(load.topic, value, key)
        except Exception:
            run.failed += 1
        run.durations.append(clock() - due)

    async with asyncio.TaskGroup() as group:

        def begin(due: float) -> None:
            run.lateness.append(clock() - due)
            for _ in range(at_once):
                group.create_task(send(due, *next(records)))

        await on_schedule(1 / ticks_per_second, load.records // at_once, begin)
    return run

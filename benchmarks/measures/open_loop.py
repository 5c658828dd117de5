"""How long records take that come at a fixed rate, each from a task of its own, whether or not
those before are done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Figures
from benchmarks.timing import (
    MILLISECONDS,
    in_milliseconds,
    older_heap_frozen,
    on_schedule,
    percentile,
)

_MOST_MOMENTS_A_SECOND = 1_000  # asyncio's timers are no finer than a millisecond


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``load``, the fields of Load (no headers); ``warm_up_records``, sent before and
    not counted; ``rate``, in records a second.

    A record's time begins with the moment at which it was due. ``late_p99_ms`` tells how late its
    task was made: the event loop was busy. ``failed`` counts records that were not delivered (a
    client that falls behind may never catch up); ``sent`` counts the others, with those of the
    warm-up.
    """
    load, rate = Load(**arguments["load"]), arguments["rate"]
    async with started(adapter, settings):
        warm_up = await _run(adapter, replace(load, records=arguments["warm_up_records"]), rate)
        with older_heap_frozen():
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
    """Seconds from due to acknowledged, or failed, of each record, and from due to begun of each
    moment.
    """

    durations: list[float] = field(default_factory=list)
    lateness: list[float] = field(default_factory=list)
    failed: int = 0


async def _run(adapter: Adapter, load: Load, rate: int) -> _Run:
    clock = time.perf_counter
    run = _Run()
    records = load.keyed_values()
    moments_a_second = min(rate, _MOST_MOMENTS_A_SECOND)
    at_once = rate // moments_a_second

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

        await on_schedule(1 / moments_a_second, load.records // at_once, begin)
    return run

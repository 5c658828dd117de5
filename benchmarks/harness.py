"""Measure the cost of a call, and choose the event loop."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of ``records`` records: CPU seconds of this process (all threads), and elapsed
    seconds.
    """

    records: int
    cpu_s: float
    wall_s: float


async def measured(records: int, work: Callable[[], Awaitable[object]]) -> Cost:
    """Await ``work()`` and return its cost."""
    gc.collect()  # so that earlier garbage is not measured
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return Cost(records, time.process_time() - cpu, time.perf_counter() - wall)


def loop_factory(*, wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory if it is wanted and installed; else None, for asyncio's loop."""
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop

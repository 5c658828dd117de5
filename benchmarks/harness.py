"""What is measured of one run, and on which event loop."""

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
    """What ``records`` records took: CPU seconds of this process (all its threads) and seconds on
    the wall.
    """

    records: int
    cpu_s: float
    wall_s: float


async def measured(records: int, work: Callable[[], Awaitable[object]]) -> Cost:
    """Await ``work()`` and tell what it took."""
    gc.collect()  # so that nobody pays for what was left before
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return Cost(records, time.process_time() - cpu, time.perf_counter() - wall)


def loop_factory(*, wanted: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is wanted and installed; None means asyncio's own."""
    if not wanted or importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop

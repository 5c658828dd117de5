"""Fixed schedules, a frozen heap, and percentiles of durations."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

MILLISECONDS = 1e3
_PERCENTILES = {"p50_ms": 50, "p99_ms": 99, "p99.9_ms": 99.9}


async def on_schedule(interval_s: float, ticks: int, act: Callable[[float], object]) -> None:
    """Call ``act(due)`` ``ticks`` times, ``interval_s`` apart; ``due`` is in seconds of
    ``time.perf_counter``.

    Late ticks are not skipped: if the loop stalls for 20 ms, all 20 ticks of a millisecond are
    late. Otherwise a client that blocks the loop would hide that (coordinated omission).
    """
    start = time.perf_counter() + interval_s
    for tick in range(ticks):
        due = start + tick * interval_s
        pause_s = due - time.perf_counter()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        act(due)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude older objects from garbage collection within the block.

    The modules of all clients are in a worker's heap. Full collections would take 10 to 30 ms and
    distort the latencies of the slowest records.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Return a percentile of sorted values (nearest rank: always one of the values)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def in_milliseconds(durations_s: Sequence[float]) -> dict[str, float]:
    """Return the 50th, 99th and 99.9th percentile and the maximum in milliseconds."""
    ordered = sorted(durations_s)
    percentiles = {
        name: percentile(ordered, percent) * MILLISECONDS for name, percent in _PERCENTILES.items()
    }
    return {**percentiles, "max_ms": ordered[-1] * MILLISECONDS}

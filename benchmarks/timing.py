"""Moments that are fixed before a run begins, a heap that is out of the way, and what is told of
many durations.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

MILLISECONDS = 1e3
_SHARES = {"p50_ms": 50, "p99_ms": 99, "p99.9_ms": 99.9}


async def on_schedule(interval_s: float, moments: int, act: Callable[[float], object]) -> None:
    """Call ``act(due)`` for each of so many moments, ``interval_s`` apart; ``due`` in seconds of
    ``time.perf_counter``.

    A moment that has passed already is made up for at once and none is left out: a loop that stalls
    for 20 ms is late for 20 moments of a millisecond, not for one. (Else a client that stalls the
    loop would hide its own stalls: "coordinated omission".)
    """
    start = time.perf_counter() + interval_s
    for moment in range(moments):
        due = start + moment * interval_s
        pause_s = due - time.perf_counter()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        act(due)


@contextmanager
def older_heap_frozen() -> Iterator[None]:
    """Within the block the garbage collector looks only at what was made since.

    The modules of all clients are in a worker's heap: each full collection would look at them for
    10 to 30 ms, and what these do to the slowest records says nothing of the client.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the values, which are in order, that ``percent`` of them do not exceed
    (nearest rank: one that was really seen).
    """
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def in_milliseconds(durations_s: Sequence[float]) -> dict[str, float]:
    """Median, 99th and 99.9th percentile and the longest, in milliseconds."""
    ordered = sorted(durations_s)
    shares = {
        name: percentile(ordered, percent) * MILLISECONDS for name, percent in _SHARES.items()
    }
    return {**shares, "max_ms": ordered[-1] * MILLISECONDS}

"""Waits for states that no event reports, and reads the records that a broker has stored."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable

from aioprod.testing import EmbeddedCluster, ThreadedCluster

LIMIT_S = 60.0
_MOST_SHARED = 20.0


def programs_per_core() -> float:
    """Return how many programs share a core of this machine, at least 1. The time limits of a test,
    and of the processes that it starts, are multiplied by it.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return min(max(load / (os.cpu_count() or 1), 1.0), _MOST_SHARED)


async def until(
    condition: Callable[[], object], limit_s: float = LIMIT_S, *, pause_s: float = 0.002
) -> None:
    """Wait until a condition is true; a condition may be a coroutine function.

    Args:
        limit_s: seconds after which the test fails, of the test's event loop: perhaps in virtual
            time.
        pause_s: seconds between two calls of the condition.
    """
    async with asyncio.timeout(limit_s):
        while not await _result(condition):  # noqa: ASYNC110
            await asyncio.sleep(pause_s)


async def _result(condition: Callable[[], object]) -> object:
    result = condition()
    return await result if inspect.isawaitable(result) else result


def wait_until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> None:
    """The same without an event loop.

    Raises:
        TimeoutError: after ``limit_s`` seconds.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {limit_s:g} s: {condition}")
        time.sleep(0.01)


def stored(
    broker: EmbeddedCluster | ThreadedCluster,
    topic: str = "t",
    partition: int | None = None,
    *,
    committed_only: bool = False,
) -> list[bytes | None]:
    """Return the values in a topic, or in one of its partitions, in the order of their offsets."""
    records = broker.records(topic, partition, committed_only=committed_only)
    return [record.value for record in records]

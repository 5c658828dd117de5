"""What a producer costs that has nothing to do."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings, started
from benchmarks.measures import Figures

_SETTLE_S = 2.0  # time-outs of what was sent, connections to further brokers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``topic``, to which one record is sent first, so that the client has all that it
    needs; ``duration_s``.

    A wake-up is a voluntary context switch: a thread of this process went to sleep, so it was awake
    before.
    """
    duration_s = arguments["duration_s"]
    async with started(adapter, settings):
        await adapter.send_and_wait(arguments["topic"], b"v", None)
        await asyncio.sleep(_SETTLE_S)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(duration_s)
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wake_ups = after.ru_nvcsw - before.ru_nvcsw - 1  # one is the end of our own sleep
    return {"cpu_percent": 100 * cpu_s / duration_s, "wake_ups_per_s": wake_ups / duration_s}

"""The cost of an idle producer."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings, started
from benchmarks.measures import Numbers

_QUIET_AFTER_S = 2.0  # timeouts of the record, connections to other brokers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``topic``, to which one record is sent first, to connect; ``duration_s``.

    Wake-ups are voluntary context switches: a thread that goes to sleep was awake.
    """
    duration_s = arguments["duration_s"]
    async with started(adapter, settings):
        await adapter.send_and_wait(arguments["topic"], b"v", None)
        await asyncio.sleep(_QUIET_AFTER_S)
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(duration_s)
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    wake_ups = after.ru_nvcsw - before.ru_nvcsw - 1  # without our own
    return {"cpu_percent": 100 * cpu_s / duration_s, "wake_ups_per_s": wake_ups / duration_s}

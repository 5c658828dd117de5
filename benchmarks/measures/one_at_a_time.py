"""The latency of records that are awaited one at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Numbers
from benchmarks.timing import frozen_heap, in_milliseconds

_WARM_UP_SHARE = 0.2


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load (no headers); ``warm_up_records``; ``limit_s``, after
    which it stops.

    ``sent`` is the total number of records.
    """
    load, limit_s = Load(**arguments["load"]), arguments["limit_s"]
    async with started(adapter, settings):
        warm_up = await _durations(
            adapter, replace(load, records=arguments["warm_up_records"]), limit_s * _WARM_UP_SHARE
        )
        with frozen_heap():
            durations = await _durations(adapter, load, limit_s)
    return {**in_milliseconds(durations), "sent": len(warm_up) + len(durations)}


async def _durations(adapter: Adapter, load: Load, limit_s: float) -> list[float]:
    clock, send_and_wait, topic = time.perf_counter, adapter.send_and_wait, load.topic
    durations: list[float] = []
    end = clock() + limit_s
    for key, value in load.keyed_values():
        started_at = clock()
        if started_at > end:
            break
        await send_and_wait(topic, value, key)
        durations.append(clock() - started_at)
    return durations

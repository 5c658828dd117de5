"""The cost of many records to one topic when the producer knows many others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: those of ``throughput``; ``topics``, each of which gets one record first."""
    load = Load(**arguments["load"])
    async with started(adapter, settings):
        await asyncio.gather(
            *(adapter.send_and_wait(topic, b"v", None) for topic in arguments["topics"])
        )
        await adapter.send_all(replace(load, records=arguments["warm_up_records"]))
        cost = await measured(load.records, lambda: adapter.send_all(load))
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}

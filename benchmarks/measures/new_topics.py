"""The cost of the first record to a topic, which waits for the topic's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Numbers

_VALUE = b"v" * 100


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``topics``, each of which gets one record, awaited before the next is sent."""
    topics = arguments["topics"]

    async def one_record_each() -> None:
        for topic in topics:
            await adapter.send_and_wait(topic, _VALUE, None)

    async with started(adapter, settings):
        cost = await measured(len(topics), one_record_each)
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}

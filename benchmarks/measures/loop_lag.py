"""How late the event loop runs what wants to run every millisecond, while large compressed batches
are sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Figures
from benchmarks.timing import in_milliseconds, older_heap_frozen, on_schedule

_TICKS_A_SECOND = 1_000


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``load``, the fields of Load (no keys, no headers); ``warm_up_records``, sent
    before and not counted; ``batch_records``, which are sent at once; ``batches_a_second``.
    """
    load, batch_records, rate = (
        Load(**arguments["load"]),
        arguments["batch_records"],
        arguments["batches_a_second"],
    )
    batches = load.records // batch_records
    values = load.values()
    lags: list[float] = []
    async with started(adapter, settings):
        await _send(
            adapter, load.topic, replace(load, records=arguments["warm_up_records"]).values()
        )
        with older_heap_frozen():
            async with asyncio.TaskGroup() as group:
                ticks = int(batches / rate * _TICKS_A_SECOND)
                group.create_task(
                    on_schedule(
                        1 / _TICKS_A_SECOND,
                        ticks,
                        lambda due: lags.append(time.perf_counter() - due),
                    )
                )
                await on_schedule(
                    1 / rate,
                    batches,
                    lambda _: group.create_task(
                        _send(adapter, load.topic, islice(values, batch_records))
                    ),
                )
    return in_milliseconds(lags)


async def _send(adapter: Adapter, topic: str, values: Iterable[bytes]) -> None:
    async with asyncio.TaskGroup() as group:
        for value in values:
            group.create_task(adapter.send_and_wait(topic, value, None))

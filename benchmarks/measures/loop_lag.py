"""Measures the delay of a callback that is due every millisecond while large batches are sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings, started
from benchmarks.measures import Numbers
from benchmarks.timing import frozen_heap, in_milliseconds, on_schedule

_TICKS_PER_SECOND = 1_000


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load (no keys, no headers); ``warm_up_records``;
    ``batch_records``, which are sent at the same time; ``batches_per_second``.
    """
    load, batch_records, rate = (
        Load(**arguments["load"]),
        arguments["batch_records"],
        arguments["batches_per_second"],
    )
    batches = load.records // batch_records
    values = load.values()
    lags: list[float] = []
    async with started(adapter, settings):
        await _send(
            adapter, load.topic, replace(load, records=arguments["warm_up_records"]).values()
        )
        with frozen_heap():
            async with asyncio.TaskGroup() as group:
                ticks = int(batches / rate * _TICKS_PER_SECOND)
                group.create_task(
                    on_schedule(
                        1 / _TICKS_PER_SECOND,
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

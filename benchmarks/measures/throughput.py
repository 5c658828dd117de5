"""The cost of many records: CPU and elapsed time from the first ``send`` to the last
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, ForeignClient, Load, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Numbers


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load; ``warm_up_records``. ``sent`` includes the records
    of the warm-up, of which foreign clients send more.
    """
    load, warm_up = Load(**arguments["load"]), arguments["warm_up_records"]
    async with started(adapter, settings):
        if isinstance(adapter, ForeignClient):
            warm_up = adapter.warm_up(replace(load, records=warm_up))
            cost = adapter.cost(load)
        else:
            await adapter.send_all(replace(load, records=warm_up))
            cost = await measured(load.records, lambda: adapter.send_all(load))
    return {
        "records": cost.records,
        "cpu_s": cost.cpu_s,
        "wall_s": cost.wall_s,
        "sent": warm_up + cost.records,
    }

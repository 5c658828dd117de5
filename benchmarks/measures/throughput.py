"""The cost of many records: CPU and elapsed time from the first ``send`` to the last
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, ExternalTool, Load, Settings, started
from benchmarks.harness import measured
from benchmarks.measures import Figures


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``load``, the fields of Load; ``warm_up_records``. External tools count their
    records themselves.
    """
    load = Load(**arguments["load"])
    async with started(adapter, settings):
        if isinstance(adapter, ExternalTool):
            cost = await adapter.steady(load)
        else:
            await adapter.send_all(replace(load, records=arguments["warm_up_records"]))
            cost = await measured(load.records, lambda: adapter.send_all(load))
    return {"records": cost.records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}

"""The cost of transactions: CPU and elapsed time from the first one's beginning to the last one's
commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.adapters import Adapter, Load, Settings
from benchmarks.harness import measured
from benchmarks.measures import Numbers
from benchmarks.transactors import opened


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``load``, the fields of Load; ``records_each``, those of a transaction;
    ``transactional_id``; ``warm_up_transactions``. The adapter names the client.
    """
    load, each = Load(**arguments["load"]), arguments["records_each"]
    warm_up = replace(load, records=arguments["warm_up_transactions"] * each)
    async with opened(adapter.name, settings, arguments["transactional_id"]) as transactor:
        await transactor.transact(warm_up, each)
        cost = await measured(load.records, lambda: transactor.transact(load, each))
        cost = transactor.cost or cost
    return {
        "records": cost.records,
        "transactions": cost.records // each,
        "cpu_s": cost.cpu_s,
        "wall_s": cost.wall_s,
        "sent": warm_up.records + cost.records,
    }

"""The cost of reading a topic: CPU and elapsed time from the assignment to the last value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings
from benchmarks.harness import measured
from benchmarks.measures import Numbers
from benchmarks.readers import opened


class ValuesDifferError(Exception):
    """The values that were read differ in size from those that were written."""


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``reader``, a name of READERS; ``topic`` and the number of its ``partitions``,
    ``records`` and ``value_bytes``. The adapter is not used.
    """
    topic, records, expected = arguments["topic"], arguments["records"], arguments["value_bytes"]
    found: list[int] = []

    async with opened(arguments["reader"], settings.bootstrap_servers) as reader:

        async def read() -> None:
            reader.assign(topic, arguments["partitions"])
            found.append(await reader.read(records))

        cost = await measured(records, read)
        cost = reader.cost or cost
    if found != [expected]:
        raise ValuesDifferError(
            f"{arguments['reader']}: {records} values of {found[0]} bytes instead of {expected}"
        )
    return {"records": records, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s}

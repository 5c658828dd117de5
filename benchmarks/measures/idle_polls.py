"""The cost of polls without records, and what they leave in memory."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings
from benchmarks.harness import measured
from benchmarks.measures import Numbers
from benchmarks.measures.memory import resident_bytes
from benchmarks.readers import opened

_WARM_UP_POLLS = 20_000


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Numbers:
    """Arguments: ``reader``, a name of READERS; ``topic``, which is empty; ``polls``. The adapter
    is not used.

    After a warm-up, ``grown_bytes``, ``grown_objects`` and ``grown_callbacks`` are the growth of
    resident memory, of objects known to the garbage collector, and of pending callbacks.
    """
    polls = arguments["polls"]
    found = 0
    async with opened(arguments["reader"], settings.bootstrap_servers) as reader:

        async def poll() -> None:
            nonlocal found
            found += await reader.poll(polls)

        reader.assign(arguments["topic"], 1)
        await reader.poll(_WARM_UP_POLLS)
        before = _memory_state()
        cost = await measured(polls, poll)
        after = _memory_state()
    if found:
        raise ValueError(f"{found} records in an empty topic")
    grown = {f"grown_{what}": after[what] - before[what] for what in after}
    return {"polls": polls, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s, **grown}


def _memory_state() -> dict[str, int]:
    gc.collect()
    loop: Any = asyncio.get_running_loop()
    objects = gc.get_objects()
    futures = [each for each in objects if isinstance(each, asyncio.Future)]
    # uvloop does not expose its scheduled callbacks.
    waiting = sum(len(getattr(loop, name, ())) for name in ("_scheduled", "_ready"))
    callbacks = waiting + sum(len(getattr(future, "_callbacks", None) or ()) for future in futures)
    return {"bytes": resident_bytes(), "objects": len(objects), "callbacks": callbacks}

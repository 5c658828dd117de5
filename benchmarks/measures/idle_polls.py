"""What polls cost that find nothing, and what they leave behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

from benchmarks.adapters import Adapter, Settings
from benchmarks.harness import measured
from benchmarks.measures import Figures
from benchmarks.measures.memory import resident_bytes
from benchmarks.readers import opened

_WARM_UP_POLLS = 20_000


async def measure(adapter: Adapter, settings: Settings, arguments: Mapping[str, Any]) -> Figures:
    """Arguments: ``reader``, a name of READERS; ``topic``, which is empty; ``polls``. The adapter
    is left alone.

    ``grown_bytes``, ``grown_objects`` and ``grown_callbacks`` are what the process has more after
    the polls than after the first 20,000 of them: resident memory, objects that the garbage
    collector knows, and calls that wait, for their time or for a future.
    """
    polls = arguments["polls"]
    found = 0
    async with opened(arguments["reader"], settings.bootstrap_servers) as reader:

        async def poll() -> None:
            nonlocal found
            found += await reader.poll(polls)

        reader.assign(arguments["topic"])
        await reader.poll(_WARM_UP_POLLS)
        before = _held()
        cost = await measured(polls, poll)
        after = _held()
    if found:
        raise ValueError(f"{found} records in a topic that is empty")
    grown = {f"grown_{what}": after[what] - before[what] for what in after}
    return {"polls": polls, "cpu_s": cost.cpu_s, "wall_s": cost.wall_s, **grown}


def _held() -> dict[str, int]:
    gc.collect()
    loop: Any = asyncio.get_running_loop()
    objects = gc.get_objects()
    futures = [held for held in objects if isinstance(held, asyncio.Future)]
    # uvloop does not tell what it has scheduled.
    waiting = sum(len(getattr(loop, name, ())) for name in ("_scheduled", "_ready"))
    callbacks = waiting + sum(len(getattr(future, "_callbacks", None) or ()) for future in futures)
    return {"bytes": resident_bytes(), "objects": len(objects), "callbacks": callbacks}

"""A process with a `Processor`, for ``benchmarks.processing``; the lines on standard input and
output are those of ``programs/java/Processing.java``.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aioprod
from aioprod.processing import Processor, Record
from benchmarks.harness import Cost
from benchmarks.processing_outputs import process_outputs

_LIMIT_S = 300


async def process(
    servers: str, topic: str, group: str, concurrency: int, records: int, sleep_s: float
) -> Cost:
    """Process the records of a topic, and return what that cost from the first handler on."""
    begun, done = 0, 0
    wall = cpu = 0.0
    all_done = asyncio.Event()

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        nonlocal begun, done, wall, cpu
        if not begun:
            wall, cpu = time.perf_counter(), time.process_time()
        begun += 1
        await asyncio.sleep(sleep_s)
        done += 1
        if done == records:
            all_done.set()

    processor = Processor(
        handle, topic, bootstrap_servers=servers, group_id=group, concurrency=concurrency
    )
    async with processor, asyncio.timeout(_LIMIT_S):
        await all_done.wait()
        cost = Cost(begun, time.process_time() - cpu, time.perf_counter() - wall)
    return cost


async def _process(
    servers: str, topic: str, group: str, concurrency: str, records: str, sleep_ms: str
) -> Cost:
    return await process(
        servers, topic, group, int(concurrency), int(records), int(sleep_ms) / 1000
    )


async def _outputs(
    servers: str, topic: str, output: str, group: str, client: str, order: str, records: str
) -> Cost:
    return await process_outputs(servers, topic, output, group, client, order, int(records))


_WORK: dict[str, Callable[..., Coroutine[Any, Any, Cost]]] = {
    "process": _process,
    "outputs": _outputs,
}


def main() -> None:
    """Handle requests until standard input ends."""
    logging.disable(logging.CRITICAL)
    print(f"aioprod {aioprod.__version__}, Python {platform.python_version()}", flush=True)
    for line in sys.stdin:
        what, *given = line.rstrip("\n").split("\t")
        try:
            cost = asyncio.run(_WORK[what](*given))
        except Exception as error:
            print("failed", f"{error!r}".replace("\n", " "), sep="\t", flush=True)
            continue
        print("processed", cost.records, cost.cpu_s, cost.wall_s, sep="\t", flush=True)


if __name__ == "__main__":
    main()

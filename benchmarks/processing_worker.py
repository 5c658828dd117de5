"""A process with a `Processor`, for ``benchmarks.processing``; the lines on standard input and
output are those of ``programs/java/Processing.java``.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import time

import aioprod
from aioprod.processing import Processor, Record
from benchmarks.harness import Cost

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


def main() -> None:
    """Handle requests until standard input ends."""
    logging.disable(logging.CRITICAL)
    print(f"aioprod {aioprod.__version__}, Python {platform.python_version()}", flush=True)
    for line in sys.stdin:
        _, servers, topic, group, concurrency, records, sleep_ms = line.rstrip("\n").split("\t")
        try:
            work = process(
                servers, topic, group, int(concurrency), int(records), int(sleep_ms) / 1000
            )
            cost = asyncio.run(work)
        except Exception as error:
            print("failed", f"{error!r}".replace("\n", " "), sep="\t", flush=True)
            continue
        print("processed", cost.records, cost.cpu_s, cost.wall_s, sep="\t", flush=True)


if __name__ == "__main__":
    main()

"""A process with a `ShareConsumer`, for ``benchmarks.sharing``; the lines on standard input and
output are those of ``programs/java/Sharing.java``.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import time

import aioprod
from aioprod import ShareConsumer
from benchmarks.harness import Cost

_LIMIT_S = 300


async def share(servers: str, topic: str, group: str, records: int) -> tuple[Cost, int]:
    """Read the records of a topic, accept them, and return what that cost from the first one to
    the end, and their bytes.
    """
    found = size = 0
    wall = cpu = 0.0
    async with asyncio.timeout(_LIMIT_S):
        async with ShareConsumer(servers, group_id=group, topics=[topic]) as consumer:
            while found < records:
                polled = await consumer.getmany()
                if not found:
                    wall, cpu = time.perf_counter(), time.process_time()
                found += len(polled)
                for record in polled:
                    size += len(record.value or b"")
            await consumer.commit()
    return Cost(found, time.process_time() - cpu, time.perf_counter() - wall), size


def main() -> None:
    """Handle requests until standard input ends."""
    logging.disable(logging.CRITICAL)
    print(f"aioprod {aioprod.__version__}, Python {platform.python_version()}", flush=True)
    for line in sys.stdin:
        _, servers, topic, group, records = line.rstrip("\n").split("\t")
        try:
            cost, size = asyncio.run(share(servers, topic, group, int(records)))
        except Exception as error:
            print("failed", f"{error!r}".replace("\n", " "), sep="\t", flush=True)
            continue
        print("shared", cost.records, size, cost.cpu_s, cost.wall_s, sep="\t", flush=True)


if __name__ == "__main__":
    main()

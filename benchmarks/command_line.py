"""Records per second that ``aioprod consume`` prints into a pipe, compared with kcat if it is
installed. The programs take turns; the medians of their CPU time count, without their start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from aioprod import Producer
from benchmarks.broker import broker_process
from benchmarks.builds import interpreter

TOPIC = "lines"
VALUE = b'{"id": %d, "name": "some text of a record", "amount": 12.5, "note": "of a hundred bytes"}'
CHUNK = 5_000


async def fill(servers: str, records: int) -> None:
    async with Producer(servers) as producer:
        for first in range(0, records, CHUNK):
            await producer.send_many(TOPIC, [VALUE % n for n in range(first, first + CHUNK)])


def commands(servers: str) -> dict[str, list[str]]:
    """Return the programs: with names, and the arguments for all records."""
    ours = [sys.executable, "-m", "aioprod", "consume", TOPIC, "-b", servers, "--exit", "--quiet"]
    found = {"aioprod %v": [*ours, "--format", r"%v\n"], "aioprod json": ours}
    if shutil.which("kcat"):
        theirs = ["kcat", "-b", servers, "-C", "-t", TOPIC, "-e", "-q"]
        found |= {"kcat %s": [*theirs, "-f", r"%s\n"], "kcat json": [*theirs, "-J"]}
    return found


def measure(command: Sequence[str], records: int) -> tuple[float, float]:
    """Return the seconds of CPU and of the clock; check that all lines arrive."""
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(
        ["sh", "-c", '"$@" | wc -l', "sh", *command], capture_output=True, check=True, text=True
    )
    after = os.times()
    assert int(done.stdout) == records, done
    cpu = (
        after.children_user - before.children_user + after.children_system - before.children_system
    )
    return cpu, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cpu: dict[str, list[float]] = {}
    wall: dict[str, list[float]] = {}
    starts: list[float] = []
    with broker_process({TOPIC: 3}) as servers:
        asyncio.run(fill(servers, options.records))
        programs = commands(servers)
        nothing = [*programs["aioprod json"], "--from", "end"]
        for _ in range(options.rounds):
            starts.append(measure(nothing, 0)[0])
            for name, command in programs.items():
                spent = measure(command, options.records)
                cpu.setdefault(name, []).append(spent[0])
                wall.setdefault(name, []).append(spent[1])
    start = statistics.median(starts)
    print(f"{interpreter()}; load {os.getloadavg()[0]:.0f}; {options.records:,} records")
    print(f"{'program':14}{'records/s of CPU':>18}{'records/s':>12}")
    for name in programs:
        own = statistics.median(cpu[name]) - (start if name.startswith("aioprod") else 0.0)
        rates = options.records / own, options.records / statistics.median(wall[name])
        print(f"{name:14}{rates[0]:18,.0f}{rates[1]:12,.0f}")


if __name__ == "__main__":
    main()

"""`ShareConsumer` compared with Java's, on a real broker: one member reads and accepts all records.

Each runs in a process of its own, one at a time, and measures itself from the first records to the
end of ``close``: connecting and joining the group are not included. Ratios are those of a round;
the first round is for warm-up.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from statistics import median

from aioprod import Admin
from aioprod.admin import ConfigResource
from aioprod.testing.cache import SetupError
from benchmarks.adapters.foreign import Program
from benchmarks.adapters.installed import java_share_consumer
from benchmarks.harness import MICROSECONDS, Cost
from benchmarks.processing import fill
from benchmarks.real_broker import bootstrap, topic

AIOPROD, JAVA = "aioprod", "java"
_PARTITIONS = 6
_VALUE_BYTES = 100
_groups = count(1)


async def begin_at_first(servers: str, group: str) -> None:
    """Let a new group read from the first record."""
    async with Admin(servers) as admin:
        await admin.incremental_alter_configs(
            {ConfigResource.group(group): {"share.auto.offset.reset": "earliest"}}
        )


def share(program: Program, servers: str, name: str, records: int) -> Cost:
    """Read and accept all records of a topic in a new group."""
    group = f"benchmark-{os.getpid()}-{next(_groups)}-{time.time_ns()}"
    asyncio.run(begin_at_first(servers, group))
    found, size, cpu_s, wall_s = program.request("share", servers, name, group, records)
    if (int(found), int(size)) != (records, records * _VALUE_BYTES):
        raise RuntimeError(f"{found} records of {size} bytes were read, of {records}")
    return Cost(records, float(cpu_s), float(wall_s))


def report(costs: dict[str, list[Cost]]) -> None:
    """Print the medians of the rounds, and of their ratios."""
    print("\n| client | records/s | CPU µs per record |\n|---|---|---|")
    for name, listed in costs.items():
        rates = [cost.records / cost.wall_s for cost in listed]
        cpu = [cost.cpu_s / cost.records * MICROSECONDS for cost in listed]
        print(
            f"| {name} | {median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
            f" | {median(cpu):.2f} ({min(cpu):.2f}-{max(cpu):.2f}) |"
        )
    if len(costs) == 2:
        pairs = list(zip(costs[AIOPROD], costs[JAVA], strict=True))
        rate = median(theirs.wall_s / ours.wall_s for ours, theirs in pairs)
        cpu_ratio = median(ours.cpu_s / theirs.cpu_s for ours, theirs in pairs)
        print(f"| ratio | {rate:.2f} | {cpu_ratio:.2f} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="a running broker (default: start one)")
    parser.add_argument("--records", type=int, default=300_000, help="records per round")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--clients", default=f"{AIOPROD},{JAVA}", help="default: %(default)s")
    chosen = parser.parse_args(arguments)
    with ExitStack() as stack:
        servers = stack.enter_context(bootstrap(chosen.bootstrap))
        programs: dict[str, Program] = {}
        for name in chosen.clients.split(","):
            command = (
                [sys.executable, "-m", "benchmarks.sharing_worker"]
                if name == AIOPROD
                else java_share_consumer()
            )
            programs[name] = Program(command)
            stack.callback(programs[name].close)
            print(f"{name}: {programs[name].versions}")
        costs: defaultdict[str, list[Cost]] = defaultdict(list)
        with topic(servers, _PARTITIONS) as name:
            fill(servers, name, chosen.records, 1_000)
            for repetition in range(chosen.repetitions + 1):
                for client, program in programs.items():
                    cost = share(program, servers, name, chosen.records)
                    if repetition:
                        costs[client].append(cost)
        report(costs)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(str(error))

"""`ShareConsumer` compared with Java's, on a real broker: one member reads and accepts all records.

Each runs in a process of its own, one at a time, and measures itself from the first records to the
end of ``close``: connecting and joining the group are not included. Ratios are those of a round;
the first round is for warm-up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count

from aioprod import Admin
from aioprod.admin import ConfigResource
from aioprod.testing.cache import SetupError
from benchmarks.adapters.foreign import Program
from benchmarks.adapters.installed import java_share_consumer
from benchmarks.harness import Cost
from benchmarks.processing import CPU, RATE, fill
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Results
from benchmarks.rounds import options, report

TITLE, CASE = "A share consumer", "read and accept"
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=(AIOPROD, JAVA), repetitions=3)
    parser.add_argument("--records", type=int, default=300_000, help="records per round")
    chosen = parser.parse_args(arguments)
    results = Results(TITLE, (RATE, CPU), baseline=JAVA, clients={})
    with ExitStack() as stack:
        servers = stack.enter_context(bootstrap(chosen.bootstrap))
        programs: dict[str, Program] = {}
        for name in chosen.clients:
            command = (
                [sys.executable, "-m", "benchmarks.sharing_worker"]
                if name == AIOPROD
                else java_share_consumer()
            )
            programs[name] = Program(command)
            stack.callback(programs[name].close)
            results.clients[name] = programs[name].versions
        with topic(servers, _PARTITIONS) as name:
            fill(servers, name, chosen.records, 1_000)
            for repetition in range(chosen.repetitions + 1):
                for client, program in programs.items():
                    cost = share(program, servers, name, chosen.records)
                    if repetition:
                        results.add(CASE, client, asdict(cost))
    report(results, chosen)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(str(error))

"""Measures what uvloop saves: tasks send records and await them, on asyncio's event loop and on
uvloop in turn.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.bursts import CPU, WALL
from benchmarks.loads import measure_on_new_topic
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap
from benchmarks.results import Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.workers import Worker, worker

TITLE = "Records that tasks send and await: asyncio's event loop and uvloop"
CLIENTS = ("aioprod", "aiokafka")
TASKS = (1, 10, 100, 1_000)
# One task waits for the broker with each record.
RECORDS_PER_TASK = 1_000


async def awaited(worker: Worker, settings: Settings, tasks: int, records: int) -> Numbers:
    """Run the measure ``many_tasks``."""
    each = max(1, min(records // tasks, RECORDS_PER_TASK))
    load = Load("", each * tasks)
    return await measure_on_new_topic(
        worker, "many_tasks", settings, load, warm_up_records=1, tasks=tasks
    )


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each client on both loops."""
    results = Results(TITLE, (CPU, WALL), baseline=chosen.clients[0])
    settings = Settings(servers, linger_ms=0)
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(worker(client, uvloop=uvloop))
            for client in chosen.clients
            for uvloop in (False, True)
        ]
        measurements = [
            Measurement(
                f"{tasks:,} tasks" if tasks > 1 else "1 task",
                one.name,
                partial(awaited, one, settings, tasks, chosen.records),
            )
            for tasks in chosen.tasks
            for one in workers
        ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records", type=int, default=20_000, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        nargs="*",
        default=TASKS,
        help="numbers of tasks (default: %(default)s)",
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)


if __name__ == "__main__":
    main()

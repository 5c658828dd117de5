"""The cost of a record when many tasks send and await one record each, at the same time.

The rows of bare tasks show what asyncio takes for them: each awaits one future, without a client.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.harness import MICROSECONDS
from benchmarks.loads import measure_on_new_topic
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import growth_table
from benchmarks.workers import Worker, worker

TITLE = "Bursts of tasks that await one record each: what a record costs"
BARE = "bare tasks"
CLIENTS = ("aioprod", "confluent-kafka AIOProducer", "aiokafka")
TASKS = (500, 10_000)
# Bursts of few tasks mostly wait for linger.
MAX_BURSTS = 100
TARGET_RATIO = 1.2

CPU = Metric(
    "CPU us per record", lambda numbers: float(numbers["cpu_s"] / numbers["records"] * MICROSECONDS)
)
WALL = Metric(
    "us per record (wall)",
    lambda numbers: float(numbers["wall_s"] / numbers["records"] * MICROSECONDS),
)


async def bursts(
    worker: Worker, measure: str, settings: Settings, tasks: int, records: int
) -> Numbers:
    """Run the measure ``bursts`` or ``bare_tasks`` with complete bursts, at least one."""
    load = Load("", min(max(1, records // tasks), MAX_BURSTS) * tasks)
    return await measure_on_new_topic(
        worker, measure, settings, load, warm_up_records=tasks, tasks=tasks
    )


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each number of tasks and each client."""
    results = Results(TITLE, (CPU, WALL), baseline="confluent-kafka AIOProducer")
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            for client in chosen.clients
        }
        bare = await stack.enter_async_context(worker("aioprod", uvloop=chosen.uvloop))
        measurements = [
            Measurement(
                f"{tasks:,} tasks",
                name,
                partial(bursts, opened, measure, Settings(servers), tasks, chosen.records),
            )
            for tasks in chosen.tasks
            for name, opened, measure in (
                (BARE, bare, "bare_tasks"),
                *((client, workers[client], "bursts") for client in chosen.clients),
            )
        ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records", type=int, default=50_000, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        nargs="+",
        default=TASKS,
        help="tasks of a burst; the first is the baseline (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    base, *others = results.rounds
    print("\n" + growth_table(results, CPU, dict.fromkeys(others, base), TARGET_RATIO))


if __name__ == "__main__":
    main()

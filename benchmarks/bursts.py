"""What does a record cost when many tasks send one each, all at once, and wait for it; beside
bursts of few tasks?
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.growth import growth_table
from benchmarks.harness import MICROSECONDS
from benchmarks.loads import ask_on_new_topic
from benchmarks.measures import Figures
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.workers import Worker, worker

QUESTION = "Bursts of tasks that await one record each: what a record costs"
CLIENTS = ("aioprod", "confluent-kafka AIOProducer", "aiokafka")
TASKS = (100, 1_000, 10_000)
# a burst of few tasks is mostly a wait for linger; one client waits for a tenth of a second
MOST_BURSTS = 100
FLAT = 2.0

CPU = Metric(
    "CPU us a record", lambda figures: float(figures["cpu_s"] / figures["records"] * MICROSECONDS)
)
WALL = Metric(
    "us a record on the wall",
    lambda figures: float(figures["wall_s"] / figures["records"] * MICROSECONDS),
)


async def bursts(worker: Worker, settings: Settings, tasks: int, records: int) -> Figures:
    """Figures of ``bursts``: whole ones, at least one."""
    load = Load("", min(max(1, records // tasks), MOST_BURSTS) * tasks)
    return await ask_on_new_topic(
        worker, "bursts", settings, load, warm_up_records=tasks, tasks=tasks
    )


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Ask about every number of tasks and every client."""
    results = Results(QUESTION, (CPU, WALL), beside="confluent-kafka AIOProducer")
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            for client in chosen.clients
        }
        questions = [
            Question(
                f"{tasks:,} tasks",
                client,
                partial(bursts, workers[client], Settings(servers), tasks, chosen.records),
            )
            for tasks in chosen.tasks
            for client in chosen.clients
        ]
        await in_rounds(results, questions, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records", type=int, default=50_000, help="records a round (default: %(default)s)"
    )
    parser.add_argument(
        "--tasks",
        type=int,
        nargs="+",
        default=TASKS,
        help="in a burst; others are shown beside the first (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="run all on uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    base, *others = results.rounds
    print("\n" + growth_table(results, CPU, dict.fromkeys(others, base), FLAT))


if __name__ == "__main__":
    main()

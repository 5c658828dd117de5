"""The cost of a record when 10,000 tasks wait for memory in a small buffer.

All tasks call ``send_and_wait`` on one partition with a buffer of 1 MiB. The row "again" repeats
the first case and shows the precision of the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict

from benchmarks.adapters import Load, Settings
from benchmarks.broker import broker_process
from benchmarks.bursts import CPU, WALL
from benchmarks.measures import Numbers
from benchmarks.results import Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import growth_table
from benchmarks.workers import Worker, worker

TOPIC = "many-tasks"
BUFFER_BYTES = 1 << 20
CLIENTS = ("aioprod", "confluent-kafka AIOProducer", "aiokafka")
TARGET_RATIO = 2.0


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each number of tasks and each client."""
    few, many = f"{chosen.few:,} tasks", f"{chosen.many:,} tasks"
    cases = {few: chosen.few, f"{few}, again": chosen.few, many: chosen.many}
    results = Results(
        "Tasks that wait for memory in a buffer of 1 MiB",
        (CPU, WALL),
        baseline="confluent-kafka AIOProducer",
    )
    settings = Settings(servers, batch_size=16_384, buffer_memory=BUFFER_BYTES)

    def measurement(worker: Worker, case: str, tasks: int) -> Measurement:
        records = chosen.records if worker.name.startswith("aioprod") else chosen.other_records
        load = Load(TOPIC, max(1, records // tasks) * tasks)

        async def run() -> Numbers:
            return await worker.call("many_tasks", settings, {"load": asdict(load), "tasks": tasks})

        return Measurement(case, worker.name, run)

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(client)) for client in chosen.clients]
        await run_rounds(
            results,
            [measurement(one, case, tasks) for case, tasks in cases.items() for one in workers],
            chosen.repetitions,
        )
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, embedded=True)
    parser.add_argument(
        "--records", type=int, default=200_000, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--other-records",
        type=int,
        default=20_000,
        help="records per round of other clients, which are slower (default: %(default)s)",
    )
    parser.add_argument(
        "--few", type=int, default=500, help="tasks of the first case (default: %(default)s)"
    )
    parser.add_argument(
        "--many", type=int, default=10_000, help="tasks of the last case (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    with broker_process({TOPIC: 1}) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    first, *others = results.rounds
    print("\n" + growth_table(results, CPU, dict.fromkeys(others, first), TARGET_RATIO))


if __name__ == "__main__":
    main()

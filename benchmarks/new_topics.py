"""The cost of the first record to a topic when the producer knows many topics.

Each topic gets one record, which waits for the topic's metadata.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from benchmarks.adapters import Settings
from benchmarks.broker import broker_process
from benchmarks.bursts import CPU, WALL
from benchmarks.measures import Numbers
from benchmarks.results import Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import growth_table
from benchmarks.workers import Worker, worker

CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
TARGET_RATIO = 2.0


async def measure(chosen: argparse.Namespace, servers: str, topics: Sequence[str]) -> Results:
    """Measure a tenth of the topics, and all."""
    results = Results("The first record to each of many topics", (CPU, WALL))

    def measurement(worker: Worker, count: int) -> Measurement:
        async def run() -> Numbers:
            return await worker.call(
                "new_topics", Settings(servers, linger_ms=0), {"topics": topics[:count]}
            )

        return Measurement(f"{count:,} topics", worker.name, run)

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(client)) for client in chosen.clients]
        counts = (max(1, len(topics) // 10), len(topics))
        await run_rounds(
            results,
            [measurement(one, count) for count in counts for one in workers],
            chosen.repetitions,
        )
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, embedded=True)
    parser.add_argument(
        "--topics", type=int, default=2_000, help="topics of the second case (default: %(default)s)"
    )
    chosen = parser.parse_args(arguments)
    topics = [f"topic-{number:05d}" for number in range(chosen.topics)]
    with broker_process(dict.fromkeys(topics, 1)) as servers:
        results = asyncio.run(measure(chosen, servers, topics))
    report(results, chosen)
    first, *others = results.rounds
    print("\n" + growth_table(results, CPU, dict.fromkeys(others, first), TARGET_RATIO))


if __name__ == "__main__":
    main()

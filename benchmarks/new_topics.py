"""What does the first record to a topic cost when the producer knows many topics already?

One topic after another gets one record, which has to wait for the topic's metadata; ten times as
many topics should cost ten times as much.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from benchmarks.adapters import Settings
from benchmarks.broker import broker_process
from benchmarks.bursts import CPU, WALL
from benchmarks.growth import growth_table
from benchmarks.measures import Figures
from benchmarks.results import Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.workers import Worker, worker

CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
GOOD_ENOUGH = 2.0


async def measure(chosen: argparse.Namespace, servers: str, topics: Sequence[str]) -> Results:
    """Ask about a tenth of the topics, and about all."""
    results = Results("The first record to each of many topics: what one costs", (CPU, WALL))

    def question(worker: Worker, count: int) -> Question:
        async def ask() -> Figures:
            return await worker.call(
                "new_topics", Settings(servers, linger_ms=0), {"topics": topics[:count]}
            )

        return Question(f"{count:,} topics", worker.name, ask)

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(client)) for client in chosen.clients]
        counts = (max(1, len(topics) // 10), len(topics))
        await in_rounds(
            results,
            [question(one, count) for count in counts for one in workers],
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
    print("\n" + growth_table(results, CPU, dict.fromkeys(others, first), GOOD_ENOUGH))


if __name__ == "__main__":
    main()

"""The cost of an idle producer: CPU time and wake-ups."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import Settings
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.workers import Worker, worker

TITLE = "An idle producer"
CLIENTS = ("aioprod", "confluent-kafka", "confluent-kafka AIOProducer", "aiokafka", "kafka-python")
METRICS = (
    Metric("wake-ups per second", lambda numbers: float(numbers["wake_ups_per_s"]), compared=False),
    Metric("CPU %", lambda numbers: float(numbers["cpu_percent"]), 3, compared=False),
)
CASE = "idle"
CEILINGS = [Ceiling(CASE, "aioprod", METRICS[0], 0.5), Ceiling(CASE, "aioprod", METRICS[1], 0.1)]


async def idle(worker: Worker, settings: Settings, seconds: float) -> Numbers:
    """Run the measure ``idle``."""
    with topic(settings.bootstrap_servers) as name:
        return await worker.call("idle", settings, {"topic": name, "duration_s": seconds})


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each client."""
    results = Results(TITLE, METRICS)
    measurements: list[Measurement] = []
    async with AsyncExitStack() as stack:
        for client in chosen.clients:
            opened = await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            measurements.append(
                Measurement(CASE, client, partial(idle, opened, Settings(servers), chosen.seconds))
            )
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=2)
    parser.add_argument(
        "--seconds", type=float, default=10, help="seconds per round (default: %(default)s)"
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + ceiling_table(results, CEILINGS))


if __name__ == "__main__":
    main()

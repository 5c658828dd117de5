"""The lag of the event loop while the producer compresses and sends batches of 1 MB with zstd."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.loads import measure_on_new_topic
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.workers import worker

TITLE = "Lag of the event loop with batches of 1 MB and zstd"
CLIENTS = ("aioprod", "confluent-kafka AIOProducer", "aiokafka")
VALUE_SIZE = 10_000
BATCH_RECORDS = 100
BATCH_SIZE = 1 << 20
TARGET_MS = 5.0
P99 = Metric("p99 ms", lambda numbers: float(numbers["p99_ms"]))
METRICS = (
    Metric("p50 ms", lambda numbers: float(numbers["p50_ms"]), compared=False),
    P99,
    Metric("max ms", lambda numbers: float(numbers["max_ms"]), 1, compared=False),
)


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each client."""
    settings = Settings(servers, batch_size=BATCH_SIZE, compression_type="zstd")
    load = Load("", int(chosen.seconds * chosen.rate) * BATCH_RECORDS, VALUE_SIZE)
    results = Results(TITLE, METRICS, baseline="aiokafka")
    measurements: list[Measurement] = []
    async with AsyncExitStack() as stack:
        for client in chosen.clients:
            opened = await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            run = partial(
                measure_on_new_topic,
                opened,
                "loop_lag",
                settings,
                load,
                warm_up_records=BATCH_RECORDS,
            )
            measurements.append(
                Measurement(
                    f"{chosen.rate} batches per second",
                    client,
                    partial(run, batch_records=BATCH_RECORDS, batches_per_second=chosen.rate),
                )
            )
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--rate", type=int, default=20, help="batches per second (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=5, help="seconds per round (default: %(default)s)"
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print(
        "\n"
        + ceiling_table(
            results, [Ceiling(case, "aioprod", P99, TARGET_MS) for case in results.rounds]
        )
    )


if __name__ == "__main__":
    main()

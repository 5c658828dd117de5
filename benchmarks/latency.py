"""The latency of an awaited record: one at a time, and at fixed rates.

One at a time is with linger 0, compared with a raw round trip: an encoded request on one asyncio
stream. Records at a rate are with linger 5 ms, each sent by a separate task; the latency begins
when the record is due.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks.adapters import ADAPTERS, Load, Settings
from benchmarks.loads import measure_on_new_topic
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, worker

TITLE = "The latency of an awaited record"
CLIENTS = ("aioprod", "confluent-kafka", "confluent-kafka AIOProducer", "aiokafka", "kafka-python")
RAW = "raw round trip"
ONE_AT_A_TIME = "one at a time"
RATES = (2_000, 20_000)
WARM_UP_RECORDS = 300
WARM_UP_S = 1
LIMIT_S = 5  # the slowest client takes 0.1 s per record


def rate_case(rate: int) -> str:
    """Return the name of the case."""
    return f"{rate:,} per second"


METRICS = (
    Metric("p50 ms", lambda numbers: float(numbers["p50_ms"]), 3),
    Metric("p99 ms", lambda numbers: float(numbers["p99_ms"])),
    Metric("p99.9 ms", lambda numbers: float(numbers["p99.9_ms"]), compared=False),
    Metric("failed", lambda numbers: float(numbers.get("failed", 0)), 0, compared=False),
)
P50, P99, *_ = METRICS
OTHERS_AT_RATE = ("aiokafka", "confluent-kafka AIOProducer")
ONE_AT_A_TIME_TARGETS = [
    Target(ONE_AT_A_TIME, "aioprod", metric, RAW, "at most", 1.3) for metric in (P50, P99)
]
TARGETS = [
    *ONE_AT_A_TIME_TARGETS,
    *(
        Target(rate_case(rate), "aioprod", P99, other, "at most", 1.0)
        for rate in RATES
        for other in OTHERS_AT_RATE
    ),
]


async def one_at_a_time(worker: Worker, measure: str, settings: Settings, records: int) -> Numbers:
    """Run the measure ``one_at_a_time`` or ``raw_round_trip``."""
    return await measure_on_new_topic(
        worker,
        measure,
        settings,
        Load("", records),
        warm_up_records=WARM_UP_RECORDS,
        limit_s=LIMIT_S,
    )


async def at_a_rate(worker: Worker, settings: Settings, rate: int, seconds: float) -> Numbers:
    """Run the measure ``open_loop``."""
    load = Load("", int(rate * seconds))
    return await measure_on_new_topic(
        worker, "open_loop", settings, load, warm_up_records=rate * WARM_UP_S, rate=rate
    )


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each client; at rates, only clients that support many tasks."""
    at_once, lingering = Settings(servers, linger_ms=0), Settings(servers)
    results = Results(TITLE, METRICS, baseline=RAW)
    measurements: list[Measurement] = []
    async with AsyncExitStack() as stack:
        if chosen.records:
            raw = await stack.enter_async_context(worker("aioprod", uvloop=chosen.uvloop))
            measurements.append(
                Measurement(
                    ONE_AT_A_TIME,
                    RAW,
                    partial(one_at_a_time, raw, "raw_round_trip", at_once, chosen.records),
                )
            )
        for client in chosen.clients:
            opened = await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            if chosen.records:
                measurements.append(
                    Measurement(
                        ONE_AT_A_TIME,
                        client,
                        partial(one_at_a_time, opened, "one_at_a_time", at_once, chosen.records),
                    )
                )
            for rate in chosen.rates if "many tasks" not in ADAPTERS[client].lacks else ():
                measurements.append(
                    Measurement(
                        rate_case(rate),
                        client,
                        partial(at_a_rate, opened, lingering, rate, chosen.seconds),
                    )
                )
        # Run the one-at-a-time measurements in a row, raw round trips included.
        measurements.sort(key=lambda measurement: measurement.case != ONE_AT_A_TIME)
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records",
        type=int,
        default=2_000,
        help="records per round, one at a time; 0 to skip (default: %(default)s)",
    )
    parser.add_argument(
        "--rates",
        type=int,
        nargs="*",
        default=RATES,
        help="records per second; empty to skip (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5,
        help="seconds per round at each rate (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + target_table(results, TARGETS))


if __name__ == "__main__":
    main()

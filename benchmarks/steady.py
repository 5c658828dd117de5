"""A quarter of an hour at a constant rate: memory, CPU and latency of each minute must not grow.

Tasks send records of 100 bytes and await them, with linger 5 ms. One client after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.adapters import Load, Settings
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import options, report
from benchmarks.workers import describe, worker

TITLE = "A constant rate"
CLIENTS = ("aioprod",)
RATE = 2_000
MINUTES = 15
WINDOW_S = 60.0
PARTITIONS = 6
KEYS = 10_000
_GRACE_S = 60

P99 = Metric("p99 ms", lambda numbers: float(numbers["p99_ms"]), compared=False)
CPU = Metric("CPU %", lambda numbers: float(numbers["cpu_percent"]), compared=False)
MEMORY = Metric("RSS MB", lambda numbers: float(numbers["rss_mb"]), 1, compared=False)
METRICS = (MEMORY, CPU, P99)
FIRST, LAST, GROWTH = "first third", "last third", "last third, times the first"
CEILINGS = [Ceiling(GROWTH, "aioprod", metric, 1.1) for metric in METRICS[:2]]


async def run(
    client: str, servers: str, results: Results, *, rate: int, windows: int, window_s: float
) -> list[Numbers]:
    """Run the measure ``steady`` and return the numbers of each window.

    Raises:
        RecordsMissingError: if the topic does not have a record for each that was sent.
    """
    with topic(servers, PARTITIONS) as name:
        async with worker(client) as opened:
            await describe(results, client, opened)
            load = Load(name, int(rate * window_s), keys=KEYS)
            numbers = await opened.call(
                "steady",
                Settings(servers),
                {"load": asdict(load), "rate": rate, "windows": windows},
                timeout_s=(windows + 1) * window_s + _GRACE_S,
            )
        check_record_count(servers, name, PARTITIONS, numbers["sent"])
    found: list[Numbers] = numbers["windows"]
    return found


def compared(windows: Sequence[Numbers]) -> dict[str, list[Numbers]]:
    """Return the windows of the first and of the last third, and how the medians grew."""
    third = max(1, len(windows) // 3)
    first, last = list(windows[:third]), list(windows[-third:])
    grown = {
        name: statistics.median(each[name] for each in last)
        / statistics.median(each[name] for each in first)
        for name in first[0]
    }
    return {FIRST: first, LAST: last, GROWTH: [grown]}


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each client."""
    results = Results(f"{TITLE}: {chosen.rate:,} records/s", METRICS, baseline="", clients={})
    for client in chosen.clients:
        windows = await run(
            client,
            servers,
            results,
            rate=chosen.rate,
            windows=max(1, round(chosen.minutes * 60 / chosen.window_seconds)),
            window_s=chosen.window_seconds,
        )
        for case, found in compared(windows).items():
            for numbers in found:
                results.add(case, client, numbers)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, repetitions=1)
    parser.add_argument(
        "--rate",
        type=int,
        default=RATE,
        help="records per second, a multiple of 100 (default: %(default)s)",
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="default: %(default)s")
    parser.add_argument(
        "--window-seconds", type=float, default=WINDOW_S, help="default: %(default)s"
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + ceiling_table(results, CEILINGS))


if __name__ == "__main__":
    main()

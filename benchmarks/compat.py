"""aiokafka's names on aioprod, compared with aiokafka: the same calls with aiokafka's defaults.

Sending: records of 100 bytes to six partitions, their futures awaited in groups; then one awaited
record at a time. Reading: ``async for``, ``getone`` and ``getmany``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial

from benchmarks import consumer
from benchmarks.adapters import Load, Settings
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, names, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, worker

THEIRS, OURS = "aiokafka", "aioprod compat"
PARTITIONS = 6
GROUP = 10_000
SENDING = {"send, without keys": 0, "send, with keys": 10_000}
"""The cases, with the number of keys."""
AWAITED = "send_and_wait, one at a time"
CALLS = ("async for", "getone", "getmany")
RATE = Metric("records/s", lambda numbers: float(numbers["records"] / numbers["wall_s"]), 0)
CPU = Metric(
    "CPU us per record", lambda numbers: float(numbers["cpu_s"] / numbers["records"] * 1e6)
)
TARGETS = [
    Target(case, OURS, RATE, THEIRS, "at least", 1.0) for case in (*SENDING, AWAITED, *CALLS)
]


def defaults(servers: str) -> Settings:
    """Return aiokafka's default settings."""
    return Settings(servers, acks="1", linger_ms=0, batch_size=16_384)


async def send(worker: Worker, servers: str, records: int, keys: int, group: int) -> Numbers:
    """Run the measure ``throughput``; ``group`` is 1 for records that are awaited alone."""
    with topic(servers, PARTITIONS) as name:
        load = Load(name, records, keys=keys, group=group)
        numbers = await worker.call(
            "throughput",
            defaults(servers),
            {"load": asdict(load), "warm_up_records": max(records // 10, 1)},
        )
        check_record_count(servers, name, PARTITIONS, numbers["sent"])
    return numbers


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each case with both clients."""
    results = Results(__doc__.partition(":")[0] if __doc__ else "", (RATE, CPU), baseline=THEIRS)
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client)) for client in chosen.clients
        }
        if "sending" in chosen.parts:
            await measure_sending(chosen, servers, workers, results)
        if "reading" in chosen.parts:
            await measure_reading(chosen, servers, workers, results)
    return results


async def measure_sending(
    chosen: argparse.Namespace, servers: str, workers: Mapping[str, Worker], results: Results
) -> None:
    """Measure records whose futures are awaited in groups, and records that are awaited alone."""
    cases = [(case, chosen.records, keys, GROUP) for case, keys in SENDING.items()]
    for case, records, keys, group in (*cases, (AWAITED, chosen.records // 50, 0, 1)):
        measurements = [
            Measurement(case, client, partial(send, opened, servers, records, keys, group))
            for client, opened in workers.items()
        ]
        await run_rounds(results, measurements, chosen.repetitions)


async def measure_reading(
    chosen: argparse.Namespace, servers: str, workers: Mapping[str, Worker], results: Results
) -> None:
    """Measure each call that reads."""
    settings = defaults(servers)
    async with consumer.filled_topic(servers, consumer.HEADLINE, chosen.records) as load:
        for call in CALLS:
            measurements = [
                Measurement(
                    call, client, partial(consumer.read, opened, settings, f"{client} {call}", load)
                )
                for client, opened in workers.items()
            ]
            await run_rounds(results, measurements, chosen.repetitions)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=(THEIRS, OURS))
    parser.add_argument(
        "--records",
        type=int,
        default=200_000,
        help="records per round; a fiftieth of it awaited one at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--parts", type=names, default=["sending", "reading"], help="default: sending,reading"
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    print("\n" + target_table(results, TARGETS))


if __name__ == "__main__":
    main()

"""The cost of reading records that come one at a time, as to most consumers that wait.

A producer sends records at a constant rate to all partitions in turn, each in a batch of its own.
Most responses have one record, so what a reader does for a request and for a partition counts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from aioprod import Producer
from aioprod.counts import counted
from benchmarks.adapters import Load, Settings
from benchmarks.consumer import CPU, RESPONSE_TIMEOUT_S
from benchmarks.measures import Numbers
from benchmarks.readers import READERS
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.timing import on_schedule
from benchmarks.workers import Worker, describe, worker

TITLE = "Reading records that come one at a time"
AIOPROD, BASELINE, AIOKAFKA = "aioprod async for", "confluent-kafka poll", "aiokafka async for"
RECORDS, RATE = 3_000, 1_000
PARTITIONS = (1, 12, 100)


def case_of(partitions: int) -> str:
    """Return the name of a case."""
    return counted(partitions, "partition")


TARGETS = [
    Target(case_of(partitions), AIOPROD, CPU, AIOKAFKA, "at most", 1.0) for partitions in PARTITIONS
]


async def send(servers: str, load: Load, partitions: int) -> None:
    """Send the records at ``RATE`` per second."""
    async with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        numbered, sending = enumerate(load.values()), []

        def send_next(_: float) -> None:
            number, value = next(numbered)
            call = producer.send(load.topic, value, partition=number % partitions)
            sending.append(asyncio.ensure_future(call))

        await on_schedule(1 / RATE, load.records, send_next)
        await asyncio.gather(*sending)


async def trickle(
    opened: Worker, settings: Settings, reader: str, partitions: int, records: int
) -> Numbers:
    """Run the measure ``reading`` while the records are sent."""
    servers = settings.bootstrap_servers
    with topic(servers, partitions) as name:
        load = Load(name, records)
        arguments = {
            "reader": reader,
            "topic": name,
            "partitions": partitions,
            "records": records,
            "value_bytes": sum(map(len, load.values())),
        }
        reading = opened.call("reading", settings, arguments, timeout_s=RESPONSE_TIMEOUT_S)
        numbers, _ = await asyncio.gather(reading, send(servers, load, partitions))
        return numbers


async def measure(chosen: argparse.Namespace, servers: str) -> Results:
    """Measure each reader and number of partitions."""
    results = Results(TITLE, (CPU,), baseline=BASELINE, clients={})
    async with AsyncExitStack() as stack:
        measurements: list[Measurement] = []
        workers = {
            reader: await stack.enter_async_context(worker(READERS[reader].client))
            for reader in chosen.clients
        }
        for reader, opened in workers.items():
            await describe(results, READERS[reader].client, opened)
        for partitions in chosen.partitions:
            measurements += [
                Measurement(
                    case_of(partitions),
                    reader,
                    partial(trickle, opened, Settings(servers), reader, partitions, chosen.records),
                )
                for reader, opened in workers.items()
            ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=(AIOPROD, BASELINE, AIOKAFKA))
    parser.add_argument(
        "--records", type=int, default=RECORDS, help="records of a topic (default: %(default)s)"
    )
    parser.add_argument(
        "--partitions",
        type=int,
        nargs="+",
        default=list(PARTITIONS),
        help="default: " + " ".join(map(str, PARTITIONS)),
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    if targets := target_table(results, TARGETS):
        print("\n" + targets)


if __name__ == "__main__":
    main()

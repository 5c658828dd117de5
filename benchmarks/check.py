"""Check aioprod's performance in about three minutes.

Compares sending, reading, one awaited record, bulk sending and many partitions with the targets.
Exits with status 1 if one is missed by more than 15 %.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from benchmarks import consumer, latency, producer, scaling
from benchmarks.adapters import Settings
from benchmarks.broker import broker_process
from benchmarks.loads import CountedTopic
from benchmarks.readers import READERS
from benchmarks.real_broker import bootstrap
from benchmarks.results import Results
from benchmarks.rounds import Measurement, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import worker

TOLERANCE = 0.15
ROUND_S = 1.0
CLIENTS = ("aioprod", "confluent-kafka")
BULK = ("aioprod send_many", "aioprod send_arrow", "line rate")
READ_WITH = ("aioprod async for", "aioprod getmany", consumer.BASELINE)
READ_POINTS = (consumer.HEADLINE, consumer.LARGE, consumer.ALONE)
RECORDS_ONE_AT_A_TIME, RECORDS_READ, RECORDS_WITH_KEYS = 2_000, 300_000, 200_000
PARTITIONS = 1_000
LINGER_MS = 1_000
"""Long enough for full batches."""
ONE, MANY = "1 partition", f"{PARTITIONS:,} partitions"
SLOW_KEYS = "batches that fill slowly, keys"

READING = [
    target
    for target in consumer.TARGETS
    if target.baseline == consumer.BASELINE and target.case in {at.name for at in READ_POINTS}
]
PARTITIONED = [
    Target(SLOW_KEYS, MANY, scaling.CPU, ONE, "at most", scaling.TARGET_RATIO),
]
Checked = tuple[Results, Sequence[Target]]


async def sending(servers: str, repetitions: int, round_s: float) -> list[Checked]:
    """Measure many records, with the bulk methods in addition to the headline."""
    checked: list[Checked] = []
    for points, clients in (
        ([producer.HEADLINE], (*CLIENTS, *BULK)),
        ([producer.KEYED, producer.SMALL, producer.LARGE], CLIENTS),
    ):
        results = await producer.measure(
            points, clients, servers, round_s=round_s, repetitions=repetitions
        )
        checked.append((results, producer.TARGETS))
    return checked


async def one_at_a_time(servers: str, repetitions: int) -> Checked:
    """Measure one awaited record, and a raw round trip."""
    arguments = argparse.Namespace(
        clients=["aioprod"],
        records=RECORDS_ONE_AT_A_TIME,
        rates=(),
        uvloop=False,
        repetitions=repetitions,
    )
    return await latency.measure(arguments, servers), latency.ONE_AT_A_TIME_TARGETS


async def reading(servers: str, repetitions: int) -> Checked:
    """Measure readers with records of 100 and 1,000 bytes, and with batches of one record."""
    results = Results(consumer.TITLE, (consumer.RATE, consumer.CPU), consumer.BASELINE)
    settings = Settings(servers)
    async with AsyncExitStack() as stack:
        workers = {
            reader: await stack.enter_async_context(worker(READERS[reader].client))
            for reader in READ_WITH
        }
        for point in READ_POINTS:
            async with consumer.filled_topic(servers, point, RECORDS_READ) as load:
                measurements = [
                    Measurement(
                        point.name, reader, partial(consumer.read, opened, settings, reader, load)
                    )
                    for reader, opened in workers.items()
                ]
                await run_rounds(results, measurements, repetitions)
    return results, READING


async def partitions(repetitions: int) -> Checked:
    """Measure records with keys to one and to many partitions, on an embedded broker."""
    results = Results(scaling.TITLE, [scaling.CPU], ONE)
    counts = {ONE: 1, MANY: PARTITIONS}
    names = {title: f"check-{count}" for title, count in counts.items()}
    with broker_process({names[title]: count for title, count in counts.items()}) as servers:
        topics = [CountedTopic(names[title], count) for title, count in counts.items()]
        cases = {
            case.name: case for case in scaling.partition_cases(servers, topics, LINGER_MS, CLIENTS)
        }
        async with worker("aioprod") as opened:
            measurements = [
                Measurement(SLOW_KEYS, title, partial(case.run, opened, RECORDS_WITH_KEYS))
                for title, case in (
                    (ONE, cases[scaling.ONE_PARTITION_KEYS]),
                    (MANY, cases[f"{MANY}, keys"]),
                )
            ]
            await run_rounds(results, measurements, repetitions)
    return results, PARTITIONED


async def measure(servers: str, *, repetitions: int, round_s: float) -> list[Checked]:
    """Measure everything, one after the other."""
    return [
        *await sending(servers, repetitions, round_s),
        await one_at_a_time(servers, repetitions),
        await reading(servers, repetitions),
        await partitions(repetitions),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--repetitions",
        type=int,
        default=5,
        help="rounds, after one for warm-up (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=ROUND_S,
        help="approximate duration of a measurement of sending (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running broker (default: start one)"
    )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        checked = asyncio.run(
            measure(servers, repetitions=chosen.repetitions, round_s=chosen.seconds)
        )
    for results, _ in checked:
        print(results.table() + "\n")
    print(checked[0][0].notes())
    for results, targets in checked:
        print("\n" + target_table(results, targets))
    worst = max(target.shortfall(results) for results, targets in checked for target in targets)
    if worst > TOLERANCE:
        sys.exit(f"a target is missed by {worst:.0%}, more than {TOLERANCE:.0%}")


if __name__ == "__main__":
    main()

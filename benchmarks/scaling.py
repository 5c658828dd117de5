"""The cost of a record with many partitions, or with many topics in the cluster, compared with one.

Records without keys fill the batch of one partition after the other. Records with keys go to all
partitions, with small batches and a long linger, so that batches are equally full with any number
of partitions. Partitions are on a real broker, many topics on an embedded one.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.broker import broker_process
from benchmarks.harness import MICROSECONDS
from benchmarks.loads import CountedTopic
from benchmarks.measures import Numbers
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import growth_table
from benchmarks.workers import Worker, worker

TITLE = "Many partitions, many topics"
CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
RECORD_DIVISORS = {"aiokafka": 4}
"""Slow clients send fewer records."""
PARTITIONS = (6, 100, 1_000)
TOPICS = 5_000
KEYS_PER_PARTITION = 7
FULL_BATCH_SIZE, LONG_LINGER_MS = 4_096, 2_000
BUFFER_MEMORY = 64 << 20
TARGET_RATIO = 1.2

ONE_PARTITION, ONE_PARTITION_KEYS, ONE_TOPIC = (
    "1 partition",
    "1 partition, keys",
    "1 topic in the cluster",
)

CPU = Metric(
    "CPU us per record", lambda numbers: float(numbers["cpu_s"] / numbers["records"] * MICROSECONDS)
)


@dataclass(frozen=True, slots=True)
class Case:
    """A case and the name of its baseline, if it has one."""

    name: str
    baseline: str
    run: Callable[[Worker, int], Awaitable[Numbers]]
    clients: Sequence[str]


async def throughput(
    settings: Settings, topic: CountedTopic, keys: int, worker: Worker, records: int
) -> Numbers:
    """Run the measure ``throughput``; the warm-up uses each key."""
    return await topic.measure(
        worker,
        "throughput",
        settings,
        Load("", records, keys=keys, group=records),  # waiting would end batches early
        warm_up_records=max(keys, records // 10),
    )


async def known_topics(
    settings: Settings, topic: CountedTopic, others: Sequence[str], worker: Worker, records: int
) -> Numbers:
    """Run the measure ``known_topics``."""
    return await topic.measure(
        worker,
        "known_topics",
        settings,
        Load("", records),
        warm_up_records=records // 10,
        topics=others,
    )


def partition_cases(
    servers: str, topics: Sequence[CountedTopic], linger_ms: int, clients: Sequence[str]
) -> Iterator[Case]:
    """Return the cases of partitions; ``topics`` are ordered by their number of partitions."""
    normal = Settings(servers, buffer_memory=BUFFER_MEMORY)
    full_batches = Settings(
        servers, buffer_memory=BUFFER_MEMORY, batch_size=FULL_BATCH_SIZE, linger_ms=linger_ms
    )
    one, *_, largest = topics
    keys = largest.partitions * KEYS_PER_PARTITION
    yield Case(ONE_PARTITION, "", partial(throughput, normal, one, 0), clients)
    for many in topics[1:]:
        yield Case(
            f"{many.partitions:,} partitions",
            ONE_PARTITION,
            partial(throughput, normal, many, 0),
            clients,
        )
    yield Case(ONE_PARTITION_KEYS, "", partial(throughput, full_batches, one, keys), clients)
    keyed = f"{largest.partitions:,} partitions, keys"
    yield Case(keyed, ONE_PARTITION_KEYS, partial(throughput, full_batches, largest, keys), clients)
    yield Case(
        f"{keyed}, linger 5 ms",
        ONE_PARTITION_KEYS,
        partial(throughput, normal, largest, keys),
        clients,
    )


def topic_cases(
    small: str, large: str, topics: Sequence[str], clients: Sequence[str]
) -> Iterator[Case]:
    """Return the cases of topics, on embedded brokers with one topic and with many."""
    alone, among_many = (
        Settings(small, buffer_memory=BUFFER_MEMORY),
        Settings(large, buffer_memory=BUFFER_MEMORY),
    )
    used, *others = topics
    one, one_of_many = CountedTopic(used), CountedTopic(used)
    yield Case(ONE_TOPIC, "", partial(throughput, alone, one, 0), clients)
    yield Case(
        f"{len(topics):,} topics in the cluster",
        ONE_TOPIC,
        partial(throughput, among_many, one_of_many, 0),
        clients,
    )
    # Other clients take a minute to fetch the metadata of all topics.
    known = [client for client in clients if client.startswith("aioprod")]
    yield Case(
        f"{len(topics):,} topics known to the producer",
        ONE_TOPIC,
        partial(known_topics, among_many, one_of_many, others),
        known,
    )


async def measure(cases: Sequence[Case], chosen: argparse.Namespace) -> Results:
    """Measure each case with each client."""
    results = Results(TITLE, [CPU])
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            for client in chosen.clients
        }
        measurements = [
            Measurement(
                case.name,
                client,
                partial(
                    case.run, workers[client], chosen.records // RECORD_DIVISORS.get(client, 1)
                ),
            )
            for case in cases
            for client in case.clients
        ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records",
        type=int,
        default=200_000,
        help="records per round; aiokafka sends a quarter (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        nargs="*",
        default=PARTITIONS,
        help="numbers of partitions to compare with one; empty to skip (default: %(default)s)",
    )
    parser.add_argument(
        "--linger-ms",
        type=int,
        default=LONG_LINGER_MS,
        help="linger with keys, to fill batches (default: %(default)s)",
    )
    parser.add_argument(
        "--topics",
        type=int,
        default=TOPICS,
        help="topics in the cluster; 0 to skip (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    cases: list[Case] = []
    with ExitStack() as stack:
        if chosen.partitions:
            servers = stack.enter_context(bootstrap(chosen.bootstrap))
            topics = [
                CountedTopic(stack.enter_context(topic(servers, count)), count)
                for count in (1, *sorted(chosen.partitions))
            ]
            cases += partition_cases(servers, topics, chosen.linger_ms, chosen.clients)
        if chosen.topics:
            names = [f"topic-{number:05d}" for number in range(chosen.topics)]
            small, large = (
                stack.enter_context(broker_process(dict.fromkeys(some, 1)))
                for some in (names[:1], names)
            )
            cases += topic_cases(small, large, names, chosen.clients)
        results = asyncio.run(measure(cases, chosen))
    report(results, chosen)
    print(
        "\n"
        + growth_table(
            results,
            CPU,
            {case.name: case.baseline for case in cases if case.baseline},
            TARGET_RATIO,
        )
    )


if __name__ == "__main__":
    main()

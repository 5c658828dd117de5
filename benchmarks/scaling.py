"""Does a record cost more with many partitions, or with many topics in the cluster, beside one?

Records without keys fill one partition's batch after the other, at the usual settings. Records with
keys spread over all partitions; batches are small and linger is long there, so that they are as
full on a thousand partitions as on one. Partitions are on a real broker; the cluster of many topics
is an embedded one.
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
from benchmarks.growth import growth_table
from benchmarks.harness import MICROSECONDS
from benchmarks.loads import CountedTopic
from benchmarks.measures import Figures
from benchmarks.real_broker import bootstrap, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.workers import Worker, worker

QUESTION = "Many partitions, many topics: what a record costs"
CLIENTS = ("aioprod", "confluent-kafka", "aiokafka")
SLOW = {"aiokafka": 4}
"""Who gets one of so many records: it needs more than 100 us for each on 1,000 partitions."""
PARTITIONS = (6, 100, 1_000)
TOPICS = 5_000
KEYS_A_PARTITION = 7
FULL_BATCH_SIZE, LONG_LINGER_MS = 4_096, 2_000
BUFFER_MEMORY = 64 << 20
ENOUGH = 1.2

ONE_PARTITION, ONE_PARTITION_KEYS, ONE_TOPIC = (
    "1 partition",
    "1 partition, keys",
    "1 topic in the cluster",
)

CPU = Metric(
    "CPU us a record", lambda figures: float(figures["cpu_s"] / figures["records"] * MICROSECONDS)
)


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked, and what it is shown beside: another case's name, or nothing."""

    name: str
    beside: str
    ask: Callable[[Worker, int], Awaitable[Figures]]
    clients: Sequence[str]


async def throughput(
    settings: Settings, topic: CountedTopic, keys: int, worker: Worker, records: int
) -> Figures:
    """Figures of ``throughput``. Every key is used once before."""
    return await topic.ask(
        worker,
        "throughput",
        settings,
        Load("", records, keys=keys),
        warm_up_records=max(keys, records // 10),
    )


async def known_topics(
    settings: Settings, topic: CountedTopic, others: Sequence[str], worker: Worker, records: int
) -> Figures:
    """Figures of ``known_topics``."""
    return await topic.ask(
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
    """On the real broker; of the topics the first has one partition and the last has most."""
    as_usual = Settings(servers, buffer_memory=BUFFER_MEMORY)
    full_batches = Settings(
        servers, buffer_memory=BUFFER_MEMORY, batch_size=FULL_BATCH_SIZE, linger_ms=linger_ms
    )
    one, *_, most = topics
    keys = most.partitions * KEYS_A_PARTITION
    yield Case(ONE_PARTITION, "", partial(throughput, as_usual, one, 0), clients)
    for many in topics[1:]:
        yield Case(
            f"{many.partitions:,} partitions",
            ONE_PARTITION,
            partial(throughput, as_usual, many, 0),
            clients,
        )
    yield Case(ONE_PARTITION_KEYS, "", partial(throughput, full_batches, one, keys), clients)
    keyed = f"{most.partitions:,} partitions, keys"
    yield Case(keyed, ONE_PARTITION_KEYS, partial(throughput, full_batches, most, keys), clients)
    yield Case(
        f"{keyed}, linger 5 ms",
        ONE_PARTITION_KEYS,
        partial(throughput, as_usual, most, keys),
        clients,
    )


def topic_cases(
    small: str, large: str, topics: Sequence[str], clients: Sequence[str]
) -> Iterator[Case]:
    """On the embedded brokers of one topic and of many."""
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
    # The peers take a minute to get to know so many.
    known = [client for client in clients if client == "aioprod"]
    yield Case(
        f"{len(topics):,} topics known to the producer",
        ONE_TOPIC,
        partial(known_topics, among_many, one_of_many, others),
        known,
    )


async def measure(cases: Sequence[Case], chosen: argparse.Namespace) -> Results:
    """Ask every client about every case."""
    results = Results(QUESTION, [CPU])
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client, uvloop=chosen.uvloop))
            for client in chosen.clients
        }
        questions = [
            Question(
                case.name,
                client,
                partial(case.ask, workers[client], chosen.records // SLOW.get(client, 1)),
            )
            for case in cases
            for client in case.clients
        ]
        await in_rounds(results, questions, chosen.repetitions)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS)
    parser.add_argument(
        "--records",
        type=int,
        default=200_000,
        help="records a round; aiokafka gets a quarter (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        nargs="*",
        default=PARTITIONS,
        help="beside one; none leaves that out (default: %(default)s)",
    )
    parser.add_argument(
        "--linger-ms",
        type=int,
        default=LONG_LINGER_MS,
        help="time for small batches to get full (default: %(default)s)",
    )
    parser.add_argument(
        "--topics",
        type=int,
        default=TOPICS,
        help="topics in the cluster; 0 leaves that out (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="run all on uvloop")
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
            results, CPU, {case.name: case.beside for case in cases if case.beside}, ENOUGH
        )
    )


if __name__ == "__main__":
    main()

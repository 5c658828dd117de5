"""What does a record cost that is read, and how many go through in a second, beside the other
clients? What do polls cost that find nothing?

Every reader reads the same topic of one partition from its beginning to its end, again and again,
and looks at every value; the bytes of all values must be those that were written. The headline is
100 bytes without key in batches of 64 KiB; every case differs from it in what its name says.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.adapters import Load, Settings, started
from benchmarks.adapters.confluent import Confluent
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Figures
from benchmarks.readers import READERS
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, options, report
from benchmarks.targets import Target, verdicts
from benchmarks.workers import Worker, worker

QUESTION = "Records that are read: what one costs, and how many a second"
RECORDS = 400_000
MOST_BYTES = 100_000_000
"""What a topic holds at most: cases with large records have fewer of them."""
POLLS, PEER_POLLS = 1_000_000, 20_000
ANSWER_TIMEOUT_S = 300.0

BESIDE = "confluent-kafka consume"
RATE = Metric("records/s", lambda figures: float(figures["records"] / figures["wall_s"]), 0)
CPU = Metric("CPU us a record", lambda figures: float(figures["cpu_s"] / figures["records"] * 1e6))
POLL_CPU = Metric(
    "CPU us a poll",
    lambda figures: float(figures["cpu_s"] / figures["polls"] * 1e6),
    compared=False,
)
GROWN_BYTES = Metric(
    "grown by KiB", lambda figures: float(figures["grown_bytes"] / 1024), 0, compared=False
)
GROWN_OBJECTS = Metric(
    "by objects", lambda figures: float(figures["grown_objects"]), 0, compared=False
)
GROWN_CALLBACKS = Metric(
    "by callbacks", lambda figures: float(figures["grown_callbacks"]), 0, compared=False
)
GROWN = (GROWN_BYTES, GROWN_OBJECTS, GROWN_CALLBACKS)
POLL_READERS = ("aioprod getmany", "aiokafka getmany", BESIDE)


@dataclass(frozen=True, slots=True)
class Point:
    """What a case reads: the headline by default."""

    value_size: int = 100
    sizes_vary: bool = False
    headers: int = 0
    compression_type: str = "none"

    @property
    def name(self) -> str:
        """The size, and what differs from the headline."""
        parts = ["-".join(f"{size:,}" for size in sorted({*self.load("", 0).sizes})) + " B"]
        parts += [f"headers: {self.headers}"] if self.headers else []
        parts += [self.compression_type] if self.compression_type != "none" else []
        return ", ".join(parts)

    def load(self, name: str, most: int) -> Load:
        """What a topic holds: so many records, or fewer where these are large."""
        records = min(most, MOST_BYTES // self.value_size)
        return Load(
            name, records, self.value_size, headers=self.headers, sizes_vary=self.sizes_vary
        )


HEADLINE = Point()
POINTS = [
    HEADLINE,
    Point(sizes_vary=True),
    Point(headers=2),
    Point(compression_type="lz4"),
    Point(value_size=10),
    Point(value_size=1_000),
]
TARGETS = [
    *(
        Target(point.name, "aioprod async for", CPU, "aiokafka async for", "at most", 0.25)
        for point in POINTS
    ),
    *(Target(point.name, "aioprod getmany", CPU, BESIDE, "at most", 1.0) for point in POINTS),
]
IDLE = "polls that find nothing"
CEILINGS = [
    Ceiling(IDLE, "aioprod getmany", metric, most)
    for metric, most in zip(GROWN, (1_024, 500, 10), strict=True)
]


@asynccontextmanager
async def filled_topic(servers: str, point: Point, most: int) -> AsyncIterator[Load]:
    """A topic with the records of a case; raises RecordsMissingError where the broker has not all
    of them.
    """
    with topic(servers) as name:
        load = point.load(name, most)
        async with started(
            Confluent(), Settings(servers, compression_type=point.compression_type)
        ) as producer:
            await producer.send_all(load)
        check_record_count(servers, name, 1, load.records)
        yield load


async def read(worker: Worker, settings: Settings, reader: str, load: Load) -> Figures:
    """Figures of ``reading``."""
    given = {
        "reader": reader,
        "topic": load.topic,
        "records": load.records,
        "value_bytes": sum(map(len, load.values())),
    }
    return await worker.call("reading", settings, given, timeout_s=ANSWER_TIMEOUT_S)


async def idle_polls(worker: Worker, settings: Settings, reader: str, polls: int) -> Figures:
    """Figures of ``idle_polls``, on a topic that is empty."""
    with topic(settings.bootstrap_servers) as name:
        return await worker.call(
            "idle_polls",
            settings,
            {"reader": reader, "topic": name, "polls": polls},
            timeout_s=ANSWER_TIMEOUT_S,
        )


async def measure(chosen: argparse.Namespace, servers: str) -> tuple[Results, Results]:
    """Ask about every case and every reader; then about idle polls, each reader in a process that
    does nothing else.
    """
    results = Results(QUESTION, (RATE, CPU), beside=BESIDE)
    polls = Results("Polls that find nothing", (POLL_CPU, *GROWN), beside=BESIDE)
    settings = Settings(servers)
    async with AsyncExitStack() as stack:
        workers = {
            name: await stack.enter_async_context(
                worker(READERS[name].client, uvloop=chosen.uvloop)
            )
            for name in chosen.clients
        }
        for point in POINTS if chosen.records else ():
            async with filled_topic(servers, point, chosen.records) as load:
                questions = [
                    Question(
                        point.name, reader, partial(read, workers[reader], settings, reader, load)
                    )
                    for reader in chosen.clients
                ]
                await in_rounds(results, questions, chosen.repetitions)
    for reader in POLL_READERS:
        if reader in chosen.clients and chosen.polls:
            async with worker(READERS[reader].client, uvloop=chosen.uvloop) as alone:
                count = (
                    chosen.polls
                    if READERS[reader].client == "aioprod"
                    else min(chosen.polls, PEER_POLLS)
                )
                polls.add(IDLE, reader, await idle_polls(alone, settings, reader, count))
    return results, polls


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=list(READERS))
    parser.add_argument(
        "--records",
        type=int,
        default=RECORDS,
        help="of a topic; 0 asks about idle polls only (default: %(default)s)",
    )
    parser.add_argument(
        "--polls",
        type=int,
        default=POLLS,
        help=f"that find nothing, of others {PEER_POLLS:,} (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="run all on uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results, polls = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    if judged := verdicts(results, TARGETS):
        print("\n" + judged)
    if polls.rounds:
        print(f"\n{polls.table()}\n\n{ceiling_table(polls, CEILINGS)}")


if __name__ == "__main__":
    main()

"""What does a record cost of many that are sent one after the other, and how many go through in a
second, beside the other clients?

The settings are the same for all. The headline is 100 bytes without key, acks=all, linger 5 ms,
batches of 64 KiB, one partition; every case differs from it in what its name says.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

from benchmarks.adapters import ADAPTERS, Feature, Foreign, Load, Settings
from benchmarks.measures import Figures
from benchmarks.real_broker import (
    bootstrap,
    check_record_count,
    record_count,
    topic,
    use_every_partition,
)
from benchmarks.results import Metric, Results
from benchmarks.rounds import Question, in_rounds, names, options, report
from benchmarks.targets import Target, verdicts
from benchmarks.workers import Worker, worker

QUESTION = "Many records: what one costs, and how many a second"
ROUND_S = 1.5
FIRST_RECORDS, FEWEST_RECORDS = 20_000, 1_000
KEYS = 10_000
KEYED_PARTITIONS = 6
MANY_PARTITIONS = 100
"""From here on a new topic for every measurement would take the broker longer than the measurement.
"""
LOOPS = (
    "aioprod",
    "aioprod send_many",
    "aioprod send_arrow",
    "confluent-kafka AIOProducer",
    "aiokafka",
)
"""Clients that run on the worker's event loop; to the others uvloop makes no difference."""

RATE = Metric("records/s", lambda figures: float(figures["records"] / figures["wall_s"]), 0)
CPU = Metric(
    "CPU s per million records", lambda figures: float(figures["cpu_s"] / figures["records"] * 1e6)
)


@dataclass(frozen=True, slots=True)
class Point:
    """What a case sends, and how: the headline by default."""

    value_size: int = 100
    keys: int = 0
    headers: int = 0
    partitions: int = 1
    acks: str = "all"
    compression_type: str = "none"
    linger_ms: float = 5
    uvloop: bool = False

    @property
    def name(self) -> str:
        """The size, and what differs from the headline."""
        parts = [f"{self.value_size:,} B"]
        parts += [f"keys: {self.keys:,}"] if self.keys else []
        parts += [f"headers: {self.headers}"] if self.headers else []
        parts += [f"partitions: {self.partitions:,}"] if self.partitions != 1 else []
        parts += [f"acks={self.acks}"] if self.acks != "all" else []
        parts += [self.compression_type] if self.compression_type != "none" else []
        parts += [f"linger {self.linger_ms:g} ms"] if self.linger_ms != 5 else []
        parts += ["uvloop"] if self.uvloop else []
        return ", ".join(parts)

    @property
    def needs(self) -> set[Feature]:
        """What a client has to be able to do."""
        needed: set[Feature] = set()
        if self.keys:
            needed.add("keys")
        if self.headers:
            needed.add("headers")
        return needed


AXES: dict[str, Callable[[str], object]] = {
    "value_size": int,
    "keys": int,
    "headers": int,
    "partitions": int,
    "acks": str,
    "compression_type": str,
    "linger_ms": float,
    "uvloop": lambda text: {"no": False, "yes": True}[text],
}
HEADLINE = Point()
QUICK = [
    HEADLINE,
    Point(keys=KEYS, partitions=KEYED_PARTITIONS),
    Point(headers=2),
    Point(value_size=10),
    Point(value_size=1_000),
]
NEIGHBOURS_WITHIN = 0.15
TARGETS = [
    Target(HEADLINE.name, "aioprod", CPU, "confluent-kafka", "at most", 1.0),
    Target(HEADLINE.name, "aioprod", RATE, "confluent-kafka", "at least", 1.0),
    Target(HEADLINE.name, "aioprod", RATE, "aiokafka", "at least", 6.0),
    Target(HEADLINE.name, "aioprod", RATE, "confluent-kafka AIOProducer", "at least", 5.0),
    Target(HEADLINE.name, "aioprod", RATE, "java", "at least", 2.0),
    *(
        target
        for point in QUICK[1:]
        for target in (
            Target(point.name, "aioprod", CPU, "confluent-kafka", "at most", 1 + NEIGHBOURS_WITHIN),
            Target(
                point.name, "aioprod", RATE, "confluent-kafka", "at least", 1 - NEIGHBOURS_WITHIN
            ),
        )
    ),
    *(
        target
        for client in ("aioprod send_many", "aioprod send_arrow")
        for target in (
            Target(HEADLINE.name, client, RATE, "confluent-kafka", "at least", 2.0),
            Target(HEADLINE.name, client, RATE, "line rate", "at least", 0.6),
        )
    ),
]
GRID = [
    *QUICK,
    Point(value_size=10_000),
    Point(acks="1"),
    Point(compression_type="lz4"),
    Point(compression_type="zstd"),
    Point(uvloop=True),
    Point(linger_ms=0),
    *(Point(partitions=partitions) for partitions in (6, 100, 1_000)),
]


class Case:
    """One client at one point. It finds out by itself how many records take as long as a round
    shall last.

    ``shared_topic``: sent to by all clients; without one, and for foreign clients, every
        measurement has a topic of its own.
    """

    def __init__(
        self,
        point: Point,
        client: str,
        worker: Worker,
        servers: str,
        *,
        round_s: float,
        shared_topic: str | None,
    ) -> None:
        self._point = point
        self._foreign = issubclass(ADAPTERS[client], Foreign)
        self._worker = worker
        self._servers = servers
        self._round_s = round_s
        self._shared_topic = None if self._foreign else shared_topic
        self._records = 0

    async def ask(self) -> Figures:
        """Measure once; raises RecordsMissingError where the topic does not hold what was
        acknowledged.
        """
        if self._records or self._foreign:
            return await self._measure(self._records)
        records = FIRST_RECORDS
        while True:
            figures = await self._measure(records)
            self._records = max(FEWEST_RECORDS, int(records * self._round_s / figures["wall_s"]))
            if self._records < 2 * records:
                return figures
            records = min(self._records, 10 * records)

    async def _measure(self, records: int) -> Figures:
        point = self._point
        settings = Settings(
            self._servers,
            acks=point.acks,
            linger_ms=point.linger_ms,
            compression_type=point.compression_type,
        )
        warm_up_records = max(records // 10, point.keys)
        with (
            nullcontext(self._shared_topic)
            if self._shared_topic
            else topic(self._servers, point.partitions) as name
        ):
            before = record_count(self._servers, [name], range(point.partitions))
            load = Load(name, records, point.value_size, point.keys, point.headers)
            figures = await self._worker.call(
                "throughput", settings, {"load": asdict(load), "warm_up_records": warm_up_records}
            )
            acknowledged = figures["records"] if self._foreign else warm_up_records + records
            check_record_count(
                self._servers,
                name,
                point.partitions,
                acknowledged,
                before=before,
                more_allowed=self._foreign,
            )
        return figures


async def measure(
    points: Sequence[Point],
    clients: Sequence[str],
    servers: str,
    *,
    round_s: float,
    repetitions: int,
) -> Results:
    """Ask about every point, one after the other, and every client that can do it."""
    results = Results(QUESTION, (RATE, CPU))
    async with AsyncExitStack() as stack:
        workers: dict[tuple[str, bool], Worker] = {}
        for point in points:
            questions = []
            with (
                topic(servers, point.partitions)
                if point.partitions >= MANY_PARTITIONS
                else nullcontext() as shared_topic
            ):
                if shared_topic:
                    use_every_partition(servers, shared_topic, point.partitions)
                for client in clients:
                    if point.needs & ADAPTERS[client].lacks or (
                        point.uvloop and client not in (*LOOPS, results.beside)
                    ):
                        continue
                    process = client, point.uvloop and client in LOOPS
                    if process not in workers:
                        workers[process] = await stack.enter_async_context(
                            worker(client, uvloop=process[1])
                        )
                    case = Case(
                        point,
                        client,
                        workers[process],
                        servers,
                        round_s=round_s,
                        shared_topic=shared_topic,
                    )
                    questions.append(Question(point.name, client, case.ask))
                await in_rounds(results, questions, repetitions)
    return results


def points(chosen: argparse.Namespace) -> list[Point]:
    """What was asked for: all combinations of the lists given, or the grid, or the headline and
    those beside it.
    """
    given = {name: values for name in AXES if (values := getattr(chosen, name)) is not None}
    if given:
        return [
            Point(**dict(zip(given, values, strict=True))) for values in product(*given.values())
        ]
    return GRID if chosen.grid else QUICK


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=list(ADAPTERS))
    parser.add_argument(
        "--grid",
        action="store_true",
        help="more than the headline and its neighbours: one axis at a time (takes an hour)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=ROUND_S,
        help="about how long one measurement lasts (default: %(default)s)",
    )
    axes = parser.add_argument_group(
        "instead of the headline", "all combinations of these; lists have commas between"
    )
    for name, kind in AXES.items():
        axes.add_argument(
            f"--{name.replace('_', '-')}", type=partial(_list_of, kind), metavar=name.upper()
        )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        asked = measure(
            points(chosen),
            chosen.clients,
            servers,
            round_s=chosen.seconds,
            repetitions=chosen.repetitions,
        )
        results = asyncio.run(asked)
    report(results, chosen)
    if judged := verdicts(results, TARGETS):
        print("\n" + judged)


def _list_of(kind: Callable[[str], object], text: str) -> list[object]:
    return [kind(name) for name in names(text)]


if __name__ == "__main__":
    main()

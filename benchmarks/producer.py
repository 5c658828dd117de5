"""The cost and throughput of sending many records, compared with other clients.

The settings are the same for all. The headline is 100 bytes without key, acks=all, linger 5 ms,
batches of 64 KiB, one partition; names of cases say what differs. Clients of other ecosystems are
measured on demand: --clients aioprod,confluent-kafka,franz-go,java,platformatic,kafkajs.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product

from benchmarks.adapters import ADAPTERS, Feature, ForeignClient, Load, Settings
from benchmarks.measures import Numbers
from benchmarks.real_broker import (
    bootstrap,
    check_record_count,
    record_count,
    topic,
    use_every_partition,
)
from benchmarks.results import Metric, Results, side_by_side
from benchmarks.rounds import Measurement, names, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, available, describe, worker

TITLE = "Sending many records"
ROUND_S = 1.5
FIRST_RECORDS, MIN_RECORDS = 20_000, 1_000
KEYS = 10_000
KEYED_PARTITIONS = 6
MANY_PARTITIONS = 100
"""From this number on, all measurements share a topic, as creating one takes too long."""
LOOPS = (
    "aioprod",
    "aioprod-pure",
    "aioprod send_many",
    "aioprod send_arrow",
    "confluent-kafka AIOProducer",
    "aiokafka",
)
"""Clients that run on the worker's event loop; uvloop does not affect the others."""

CLIENTS = [name for name, adapter in ADAPTERS.items() if not issubclass(adapter, ForeignClient)]
ON_DEMAND = [name for name in ADAPTERS if name not in CLIENTS]

RATE = Metric("records/s", lambda numbers: float(numbers["records"] / numbers["wall_s"]), 0)
CPU = Metric(
    "CPU s per million records", lambda numbers: float(numbers["cpu_s"] / numbers["records"] * 1e6)
)


@dataclass(frozen=True, slots=True)
class Point:
    """The records and settings of a case; the default is the headline."""

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
        """The size and the differences from the headline."""
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
        """The features that a client must support."""
        needed: set[Feature] = set()
        if self.headers:
            needed.add("headers")
        if self.compression_type not in ("none", "gzip"):
            needed.add("codecs")
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
KEYED, HEADERS, SMALL, LARGE = QUICK[1:]
TARGETS = [
    Target(HEADLINE.name, "aioprod", CPU, "confluent-kafka", "at most", 0.4),
    Target(HEADLINE.name, "aioprod", RATE, "confluent-kafka", "at least", 1.3),
    Target(KEYED.name, "aioprod", CPU, "confluent-kafka", "at most", 0.45),
    Target(SMALL.name, "aioprod", CPU, "confluent-kafka", "at most", 0.5),
    Target(LARGE.name, "aioprod", CPU, "confluent-kafka", "at most", 0.8),
    *(Target(point.name, "aioprod", CPU, "franz-go", "at most", 1.0) for point in QUICK),
    Target(HEADLINE.name, "aioprod", RATE, "aiokafka", "at least", 6.0),
    Target(HEADLINE.name, "aioprod", RATE, "confluent-kafka AIOProducer", "at least", 5.0),
    *(
        Target(HEADLINE.name, client, RATE, "line rate", "at least", 0.7)
        for client in ("aioprod send_many", "aioprod send_arrow")
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
    """A client at a point. Its first measurement finds the number of records for a round.

    Args:
        shared_topic: a topic for all clients; if None, each measurement creates a topic.
    """

    def __init__(
        self,
        point: Point,
        worker: Worker,
        servers: str,
        *,
        round_s: float,
        shared_topic: str | None,
    ) -> None:
        self._point = point
        self._worker = worker
        self._servers = servers
        self._round_s = round_s
        self._shared_topic = shared_topic
        self._records = 0

    async def run(self) -> Numbers:
        """Measure once.

        Raises:
            RecordsMissingError: if the topic does not have the acknowledged records.
        """
        if self._records:
            return await self._measure(self._records)
        records = FIRST_RECORDS
        while True:
            numbers = await self._measure(records)
            self._records = max(MIN_RECORDS, int(records * self._round_s / numbers["wall_s"]))
            if self._records < 2 * records:
                return numbers
            records = min(self._records, 10 * records)

    async def _measure(self, records: int) -> Numbers:
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
            numbers = await self._worker.call(
                "throughput", settings, {"load": asdict(load), "warm_up_records": warm_up_records}
            )
            check_record_count(
                self._servers, name, point.partitions, numbers["sent"], before=before
            )
        return numbers


async def measure(
    points: Sequence[Point],
    clients: Sequence[str],
    servers: str,
    *,
    round_s: float,
    repetitions: int,
    python: str = sys.executable,
) -> Results:
    """Measure each point with each client that supports it. Clients of other ecosystems that are
    not installed are left out.

    Args:
        python: the interpreter of the Python clients.
    """
    results = Results(TITLE, (RATE, CPU), clients={})
    installed = available(clients, results)
    async with AsyncExitStack() as stack:
        workers: dict[tuple[str, bool], Worker] = {}
        for point in points:
            able = [
                client
                for client in installed
                if not point.needs & ADAPTERS[client].lacks
                and (not point.uvloop or client in (*LOOPS, results.baseline))
            ]
            for client in able:
                process = client, point.uvloop and client in LOOPS
                if process not in workers:
                    workers[process] = await stack.enter_async_context(
                        worker(client, uvloop=process[1], python=python)
                    )
                    await describe(results, client, workers[process])
            with (
                topic(servers, point.partitions)
                if point.partitions >= MANY_PARTITIONS
                else nullcontext() as shared_topic
            ):
                if shared_topic:
                    use_every_partition(servers, shared_topic, point.partitions)
                measurements = []
                for client in able:
                    opened = workers[client, point.uvloop and client in LOOPS]
                    case = Case(point, opened, servers, round_s=round_s, shared_topic=shared_topic)
                    measurements.append(Measurement(point.name, client, case.run))
                await run_rounds(results, measurements, repetitions)
    return results


def points(chosen: argparse.Namespace) -> list[Point]:
    """Return the chosen points: all combinations of the given axes, the grid, or the headline and
    its neighbors.
    """
    given = {name: values for name in AXES if (values := getattr(chosen, name)) is not None}
    if given:
        return [
            Point(**dict(zip(given, values, strict=True))) for values in product(*given.values())
        ]
    return GRID if chosen.grid else QUICK


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, on_demand=ON_DEMAND)
    parser.add_argument(
        "--grid",
        action="store_true",
        help="vary one axis at a time (takes an hour)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=ROUND_S,
        help="approximate duration of a measurement (default: %(default)s)",
    )
    parser.add_argument(
        "--python",
        type=names,
        default=[sys.executable],
        metavar="PATHS",
        help="interpreters of the Python clients, one after the other (default: this one)",
    )
    axes = parser.add_argument_group(
        "instead of the headline", "all combinations of these comma-separated lists"
    )
    for name, kind in AXES.items():
        axes.add_argument(
            f"--{name.replace('_', '-')}", type=partial(_list_of, kind), metavar=name.upper()
        )
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        runs: list[Results] = []
        for python in chosen.python:
            measuring = measure(
                points(chosen),
                chosen.clients,
                servers,
                round_s=chosen.seconds,
                repetitions=chosen.repetitions,
                python=python,
            )
            runs.append(asyncio.run(measuring))
            report(runs[-1], chosen, len(runs) - 1)
            print("\n" + target_table(runs[-1], TARGETS) + "\n", flush=True)
    print(side_by_side(runs))


def _list_of(kind: Callable[[str], object], text: str) -> list[object]:
    return [kind(name) for name in names(text)]


if __name__ == "__main__":
    main()

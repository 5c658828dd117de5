"""The cost of reading records, and of polls without records.

All readers read the same topic with one partition from beginning to end and check the total size of
the values. The headline is 100 bytes without key in batches of 64 KiB; names of cases say what
differs. Records that are sent one after the other, as in web applications, are stored in batches of
one record.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.adapters import Load, Settings, started
from benchmarks.adapters.confluent import Confluent
from benchmarks.ceilings import Ceiling, ceiling_table
from benchmarks.measures import Numbers
from benchmarks.readers import READERS
from benchmarks.real_broker import bootstrap, check_record_count, topic
from benchmarks.results import Metric, Results
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.targets import Target, target_table
from benchmarks.workers import Worker, available, describe, worker

TITLE = "Reading records"
RECORDS = 400_000
MAX_BYTES = 300_000_000
"""The maximum size of a topic, which limits the number of large records."""
MAX_ALONE = 100_000
"""The maximum number of records that are alone in their batches, which take longer to write."""
POLLS, POLLS_OF_OTHERS = 1_000_000, 20_000
RESPONSE_TIMEOUT_S = 300.0

BASELINE = "confluent-kafka consume"
RATE = Metric("records/s", lambda numbers: float(numbers["records"] / numbers["wall_s"]), 0)
CPU = Metric(
    "CPU us per record", lambda numbers: float(numbers["cpu_s"] / numbers["records"] * 1e6)
)
POLL_CPU = Metric(
    "CPU us per poll",
    lambda numbers: float(numbers["cpu_s"] / numbers["polls"] * 1e6),
    compared=False,
)
GROWN_BYTES = Metric(
    "grown by KiB", lambda numbers: float(numbers["grown_bytes"] / 1024), 0, compared=False
)
GROWN_OBJECTS = Metric(
    "by objects", lambda numbers: float(numbers["grown_objects"]), 0, compared=False
)
GROWN_CALLBACKS = Metric(
    "by callbacks", lambda numbers: float(numbers["grown_callbacks"]), 0, compared=False
)
GROWN = (GROWN_BYTES, GROWN_OBJECTS, GROWN_CALLBACKS)
FRANZ_GO, LINE_RATE = "franz-go", "line rate of Fetch"
ON_DEMAND = [name for name in READERS if "compat" in name or "getone" in name]
"""Measured by ``benchmarks.compat``."""
POLL_READERS = ("aioprod getmany", "aiokafka getmany", BASELINE)


@dataclass(frozen=True, slots=True)
class Point:
    """The records of a case; the default is the headline."""

    value_size: int = 100
    sizes_vary: bool = False
    headers: int = 0
    compression_type: str = "none"
    alone: bool = False

    @property
    def name(self) -> str:
        """The size and the differences from the headline."""
        parts = ["-".join(f"{size:,}" for size in sorted({*self.load("", 0).sizes})) + " B"]
        parts += [f"headers: {self.headers}"] if self.headers else []
        parts += [self.compression_type] if self.compression_type != "none" else []
        parts += ["batches of 1"] if self.alone else []
        return ", ".join(parts)

    def load(self, name: str, max_records: int) -> Load:
        """Return the records of a topic, as many as fit into ``MAX_BYTES``."""
        limit = MAX_ALONE if self.alone else MAX_BYTES // self.value_size
        records = min(max_records, limit)
        return Load(
            name, records, self.value_size, headers=self.headers, sizes_vary=self.sizes_vary
        )


HEADLINE, LARGE, ALONE = Point(), Point(value_size=1_000), Point(alone=True)
POINTS = [
    HEADLINE,
    Point(sizes_vary=True),
    Point(headers=2),
    Point(compression_type="lz4"),
    Point(value_size=10),
    LARGE,
    ALONE,
]
_MANY = {HEADLINE: 0.7, LARGE: 0.65}
TARGETS = [
    *(
        Target(point.name, "aioprod async for", CPU, "aiokafka async for", "at most", 0.25)
        for point in POINTS
    ),
    Target(HEADLINE.name, "aioprod async for", CPU, BASELINE, "at most", 0.8),
    Target(LARGE.name, "aioprod async for", CPU, BASELINE, "at most", 0.75),
    Target(ALONE.name, "aioprod async for", CPU, BASELINE, "at most", 1.0),
    *(
        Target(point.name, "aioprod getmany", CPU, BASELINE, "at most", _MANY.get(point, 1.0))
        for point in POINTS
    ),
    *(
        Target(point.name, reader, CPU, FRANZ_GO, "at most", 1.0)
        for point in (HEADLINE, LARGE, ALONE)
        for reader in ("aioprod async for", "aioprod getmany")
    ),
]
IDLE = "polls without records"
CEILINGS = [
    Ceiling(IDLE, "aioprod getmany", metric, maximum)
    for metric, maximum in zip(GROWN, (1_024, 500, 10), strict=True)
]


@asynccontextmanager
async def filled_topic(servers: str, point: Point, max_records: int) -> AsyncIterator[Load]:
    """Create a topic with the records of a case.

    Raises:
        RecordsMissingError: if the broker does not have all of them.
    """
    with topic(servers) as name:
        load = point.load(name, max_records)
        settings = Settings(servers, compression_type=point.compression_type)
        if point.alone:
            settings = replace(settings, batch_size=1)
        async with started(Confluent(), settings) as producer:
            await producer.send_all(load)
        check_record_count(servers, name, 1, load.records)
        yield load


async def read(worker: Worker, settings: Settings, reader: str, load: Load) -> Numbers:
    """Run the measure ``reading``."""
    arguments = {
        "reader": reader,
        "topic": load.topic,
        "partitions": 1,
        "records": load.records,
        "value_bytes": sum(map(len, load.values())),
    }
    return await worker.call("reading", settings, arguments, timeout_s=RESPONSE_TIMEOUT_S)


async def idle_polls(worker: Worker, settings: Settings, reader: str, polls: int) -> Numbers:
    """Run the measure ``idle_polls`` on an empty topic."""
    with topic(settings.bootstrap_servers) as name:
        return await worker.call(
            "idle_polls",
            settings,
            {"reader": reader, "topic": name, "polls": polls},
            timeout_s=RESPONSE_TIMEOUT_S,
        )


async def measure(chosen: argparse.Namespace, servers: str) -> tuple[Results, Results]:
    """Measure each case and reader; then polls without records, each reader in a new process."""
    results = Results(TITLE, (RATE, CPU), baseline=BASELINE, clients={})
    clients = available(dict.fromkeys(READERS[name].client for name in chosen.clients), results)
    readers = [name for name in chosen.clients if READERS[name].client in clients]
    polls = Results("Polls without records", (POLL_CPU, *GROWN), baseline=BASELINE)
    settings = Settings(servers)
    async with AsyncExitStack() as stack:
        workers = {
            name: await stack.enter_async_context(
                worker(READERS[name].client, uvloop=chosen.uvloop)
            )
            for name in readers
        }
        for name, opened in workers.items():
            await describe(results, READERS[name].client, opened)
        for point in POINTS if chosen.records else ():
            async with filled_topic(servers, point, chosen.records) as load:
                measurements = [
                    Measurement(
                        point.name, reader, partial(read, workers[reader], settings, reader, load)
                    )
                    for reader in readers
                ]
                await run_rounds(results, measurements, chosen.repetitions)
    for reader in POLL_READERS:
        if reader in chosen.clients and chosen.polls:
            async with worker(READERS[reader].client, uvloop=chosen.uvloop) as alone:
                count = (
                    chosen.polls
                    if READERS[reader].client == "aioprod"
                    else min(chosen.polls, POLLS_OF_OTHERS)
                )
                polls.add(IDLE, reader, await idle_polls(alone, settings, reader, count))
    return results, polls


def main(arguments: Sequence[str] | None = None) -> None:
    by_default = [name for name in READERS if name not in ON_DEMAND]
    parser = options(__doc__ or "", clients=by_default, on_demand=ON_DEMAND)
    parser.add_argument(
        "--records",
        type=int,
        default=RECORDS,
        help="records of a topic; 0 for polls only (default: %(default)s)",
    )
    parser.add_argument(
        "--polls",
        type=int,
        default=POLLS,
        help=f"polls without records; of other clients {POLLS_OF_OTHERS:,} (default: %(default)s)",
    )
    parser.add_argument("--uvloop", action="store_true", help="use uvloop")
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        results, polls = asyncio.run(measure(chosen, servers))
    report(results, chosen)
    if targets := target_table(results, TARGETS):
        print("\n" + targets)
    if polls.rounds:
        print(f"\n{polls.table()}\n\n{ceiling_table(polls, CEILINGS)}")


if __name__ == "__main__":
    main()

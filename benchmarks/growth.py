"""Measures how the cost of a record grows with brokers, partitions, tasks, producers and size.

One number changes at a time from 100 bytes, no key, one of each. The broker is embedded, in another
process; three brokers share one. The cost of a payload is compared with the sum of what a record
of 10 bytes and the bytes of a record of 10,000 bytes cost.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.adapters import Load, Settings
from benchmarks.broker import broker_process
from benchmarks.charts import Line, write_lines_png
from benchmarks.loads import measure_on_new_topic
from benchmarks.measures import Numbers
from benchmarks.producer import RATE
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results, spread
from benchmarks.rounds import Measurement, options, report, run_rounds
from benchmarks.scaling import BUFFER_MEMORY, CPU, FULL_BATCH_SIZE
from benchmarks.workers import Worker, describe, worker

TITLE = "CPU time of a record, times that of the first case"
CLIENTS = ("aioprod", "aioprod-pure")
RECORDS = 300_000
MAX_BYTES = 100_000_000
"""The maximum size of all values of a measurement."""
WARM_UP_DIVISOR = 6
LIMIT = 1.2
KEYED_PARTITIONS = 6
KEYS = 10_000
GROUP = 50_000
FULL_BATCH_LINGER_MS = 1_000

CPU_PER_MB = Metric(
    "CPU ms per MB",
    lambda numbers: float(numbers["cpu_s"] / numbers["records"] / numbers["value_size"] * 1e9),
    compared=False,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A point of an axis; ``at`` is its number there."""

    axis: str
    at: int
    brokers: int = 1
    partitions: int = 1
    keys: int = 0
    tasks: int = 1
    producers: int = 1
    value_size: int = 100
    full_batches: bool = False

    @property
    def name(self) -> str:
        return f"{self.axis}: {self.at:,}"

    def load(self, max_records: int) -> Load:
        """Return the records: a multiple of the numbers of tasks and producers."""
        parts = max(self.tasks, self.producers)
        records = min(max_records, MAX_BYTES // self.value_size)
        records = max(1, records // parts) * parts
        # With full batches, waiting would end them early.
        group = records if self.full_batches else GROUP
        return Load("", records, self.value_size, self.keys, group=group)

    def settings(self, servers: str) -> Settings:
        """Return the settings: with full batches, small ones and a long linger, so that they are
        equally full with any number of partitions.
        """
        if self.full_batches:
            return Settings(
                servers,
                buffer_memory=BUFFER_MEMORY,
                batch_size=FULL_BATCH_SIZE,
                linger_ms=FULL_BATCH_LINGER_MS,
            )
        return Settings(servers, buffer_memory=BUFFER_MEMORY)


PARTITIONS = (1, 10, 100, 1_000, 5_000)
BROKERS, PAYLOAD = "brokers, 6 partitions, keys", "bytes of a value"
LARGE = 10_000
"""The payload that shows what bytes cost; larger ones do not share batches."""
AXES: dict[str, Sequence[Case]] = {
    cases[0].axis: cases
    for cases in (
        [
            Case(BROKERS, number, brokers=number, partitions=KEYED_PARTITIONS, keys=KEYS)
            for number in (1, 3)
        ],
        [Case("partitions, no keys", number, partitions=number) for number in PARTITIONS],
        [
            Case(
                "partitions, 7,000 keys, full batches",
                number,
                partitions=number,
                keys=7_000,
                full_batches=True,
            )
            for number in PARTITIONS[:-1]  # more need more records to fill batches
        ],
        [Case("tasks", number, tasks=number) for number in (1, 10, 100, 1_000, 10_000)],
        [Case("producers", number, producers=number) for number in (1, 5, 10, 50)],
        [Case(PAYLOAD, 10**power, value_size=10**power) for power in range(1, 7)],
    )
}


async def run_case(case: Case, servers: str, max_records: int, worker: Worker) -> Numbers:
    """Run the measure ``growth`` on a new topic."""
    load = case.load(max_records)
    warm_up = max(load.records // WARM_UP_DIVISOR, case.keys) // case.producers * case.producers
    numbers = await measure_on_new_topic(
        worker,
        "growth",
        case.settings(servers),
        load,
        partitions=case.partitions,
        warm_up_records=max(warm_up, case.producers),
        tasks=case.tasks,
        producers=case.producers,
    )
    return {**numbers, "value_size": case.value_size}


async def measure(chosen: argparse.Namespace, servers: Mapping[int, str]) -> Results:
    """Measure each case of the chosen axes.

    Args:
        servers: the bootstrap servers by the number of brokers.
    """
    results = Results(TITLE, (CPU, CPU_PER_MB, RATE), baseline="aioprod-pure", clients={})
    async with AsyncExitStack() as stack:
        workers = {
            client: await stack.enter_async_context(worker(client)) for client in chosen.clients
        }
        for client, opened in workers.items():
            await describe(results, client, opened)
        for axis in chosen.axes:
            measurements = [
                Measurement(
                    case.name,
                    client,
                    partial(run_case, case, servers[case.brokers], chosen.records, workers[client]),
                )
                for case in AXES[axis]
                for client in chosen.clients
            ]
            await run_rounds(results, measurements, chosen.repetitions)
    return results


def growth(results: Results, axis: str, client: str) -> dict[int, list[float]]:
    """Return the growth of each round by the number on the axis: the ratio to the first case. For
    the payload it is the ratio to the sum of the costs of a record and of its bytes.
    """
    costs = {case.at: results.values(CPU, case.name, client) for case in AXES[axis]}
    first = next(iter(costs))
    expected: Callable[[int, int], float]
    if axis == PAYLOAD:

        def expected(at: int, number: int) -> float:
            of_bytes = costs[LARGE][number] - costs[first][number]
            return costs[first][number] + of_bytes * (at - first) / (LARGE - first)
    else:

        def expected(at: int, number: int) -> float:
            return costs[first][number]

    return {
        at: [cost / expected(at, number) for number, cost in enumerate(of_rounds)]
        for at, of_rounds in costs.items()
    }


def ratio_table(results: Results, axes: Sequence[str], clients: Sequence[str]) -> str:
    """Return a Markdown table of the growth, with the limit."""
    lines = [
        f"| case | {' | '.join(clients)} | target |",
        "|---" * (len(clients) + 2) + "|",
    ]
    for axis in axes:
        grown = [growth(results, axis, client) for client in clients]
        for case in AXES[axis][1:]:
            cells = [spread(each[case.at], 2) for each in grown]
            lines.append(f"| {case.name} | {' | '.join(cells)} | {LIMIT:g} |")
    return "\n".join(lines)


def lines(results: Results, axes: Sequence[str], clients: Sequence[str]) -> list[Line]:
    """Return the lines of the chart."""
    return [
        Line(
            axis,
            client,
            growth(results, axis, client),
            {case.at: results.values(CPU, case.name, client) for case in AXES[axis]},
        )
        for axis in axes
        for client in clients
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__ or "", clients=CLIENTS, embedded=True)
    parser.add_argument(
        "--records", type=int, default=RECORDS, help="records per round (default: %(default)s)"
    )
    parser.add_argument(
        "--axes",
        nargs="+",
        choices=list(AXES),
        default=list(AXES),
        metavar="AXIS",
        help=f"any of: {'; '.join(AXES)} (default: all)",
    )
    chosen = parser.parse_args(arguments)
    with ExitStack() as stack:
        numbers = sorted({case.brokers for axis in chosen.axes for case in AXES[axis]})
        servers = {
            number: stack.enter_context(
                bootstrap(stack.enter_context(broker_process({}, nodes=number)))
            )
            for number in numbers
        }
        results = asyncio.run(measure(chosen, servers))
    png, chosen.png = chosen.png, None
    report(results, chosen)
    print("\n" + ratio_table(results, chosen.axes, chosen.clients))
    if png:
        write_lines_png(TITLE, lines(results, chosen.axes, chosen.clients), LIMIT, png)


if __name__ == "__main__":
    main()

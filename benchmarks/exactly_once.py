"""The cost of exactly-once in the Spark sink: batches of at-least-once and exactly-once, and each
step of the protocol. Without a JVM.

Tasks and driver run in this process, in sequence, against a real Kafka or ``--bootstrap``. Spark's
own time for a batch, about 300 ms, is not included. CPU time is that of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import product
from statistics import median
from typing import Any
from unittest.mock import patch

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.spark import writing
from aioprod.spark.coordination import CoordinationClient, open_coordination
from aioprod.spark.exactly_once import driver, task, transactions
from aioprod.spark.exactly_once.ids import Sink, short_run
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.kept import event_loop_factory
from aioprod.spark.sink_options import SinkOptions, parse_sink_options
from benchmarks.real_broker import bootstrap, topic, use_every_partition

_ARROW_ROWS = 10_000
_WARM_UP = 2
_STEPS: dict[str, tuple[Any, str]] = {
    "task: read the decision log": (task, "_look"),
    "task: connect, InitProducerId (concurrent)": (task, "_start"),
    "task: prepare": (task, "prepare"),
    "driver: connect, InitProducerId": (driver, "fence_older_driver"),
    "driver: read the decision log": (driver, "read_decided"),
    "driver: ListTransactions, DescribeTransactions": (driver, "check_transactions"),
    "driver: decide": (driver, "decide"),
    "driver: commit all": (driver, "commit_or_take_back"),
    "driver: sweep (concurrent)": (driver, "sweep"),
    "brokers, afterwards: write the remaining markers": (
        sys.modules[__name__],
        "markers_written",
    ),
}
_RUN = short_run("benchmark")
_MARKERS_LIMIT_S = 60


class Steps:
    """The durations of each step in milliseconds."""

    def __init__(self) -> None:
        self.took: defaultdict[str, list[float]] = defaultdict(list)

    def watch(self, label: str, module: Any, name: str) -> AbstractContextManager[object]:
        """Measure a step of the protocol within a ``with`` block."""
        step: Callable[..., Awaitable[Any]] = getattr(module, name)

        async def timed(*args: Any, **kwargs: Any) -> Any:
            begun = time.perf_counter()
            try:
                return await step(*args, **kwargs)
            finally:
                self.took[label].append((time.perf_counter() - begun) * 1000)

        return patch.object(module, name, timed)


def batches(rows: int) -> list[pa.RecordBatch]:
    """Return the rows of a task: 100 random bytes and a key of six bytes each."""
    values = [os.urandom(100) for _ in range(rows)]
    table = pa.table(
        {
            "value": pa.array(values, pa.binary()),
            "key": pa.array([b"%06d" % number for number in range(rows)], pa.binary()),
        }
    )
    return list(table.to_batches(max_chunksize=_ARROW_ROWS))


async def measure(
    servers: str, topic: str, rows: int, tasks: int, repetitions: int
) -> dict[str, list[tuple[float, float]]]:
    """Return the elapsed and CPU milliseconds of each batch, by kind of delivery."""
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    plain, exact = (
        parse_sink_options(options | {"delivery": "at-least-once"}),
        parse_sink_options(options),
    )
    writer = Sink(exact.transactional_id_prefix, f"benchmark-{time.time_ns()}")
    parts = [batches(rows // tasks) for _ in range(tasks)]
    found: dict[str, list[tuple[float, float]]] = {"at-least-once": [], "exactly-once": []}
    for version in range(repetitions + _WARM_UP):
        for kind, write in (
            ("at-least-once", _plainly(plain, parts)),
            ("exactly-once", _exactly(exact, writer, version, parts)),
        ):
            begun, cpu = time.perf_counter(), time.process_time()
            await write
            found[kind].append(
                ((time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000)
            )
        await markers_written(
            exact, [writer.transactional_id(_RUN, version, number) for number in range(tasks)]
        )
    return {kind: taken[_WARM_UP:] for kind, taken in found.items()}


async def _plainly(options: SinkOptions, parts: Sequence[Sequence[pa.RecordBatch]]) -> None:
    async def write(part: Sequence[pa.RecordBatch]) -> None:
        producer = await writing._started(options)
        await writing._write_batches(producer, options.topic, iter(part))
        await producer.close()

    await asyncio.gather(*(write(part) for part in parts))


async def _exactly(
    options: SinkOptions, writer: Sink, version: int, parts: Sequence[Sequence[pa.RecordBatch]]
) -> None:
    attempts = [
        TaskAttempt(writer, _RUN, version, partition, partition) for partition in range(len(parts))
    ]

    async def write(attempt: TaskAttempt, part: Sequence[pa.RecordBatch]) -> TaskReport:
        brokers = CoordinationClient(options.producer, f"{attempt.transactional_id}-look")
        try:
            return await task.write_task(brokers, options, attempt, iter(part))
        finally:
            await brokers.close()

    reports = await asyncio.gather(*map(write, attempts, parts))
    assert await driver.commit_batch(options, reports, version)


async def markers_written(options: SinkOptions, transactional_ids: Sequence[str]) -> None:
    """Wait until all transaction markers are written: brokers respond to EndTxn earlier."""
    async with (
        asyncio.timeout(_MARKERS_LIMIT_S),
        open_coordination(options.producer, "benchmark") as coordination,
    ):
        states = {""}
        while states != {"CompleteCommit"}:
            states = {
                found.state
                for found in (
                    await transactions.describe_transactions(coordination, transactional_ids)
                ).values()
            }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="a running broker (default: start one)")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="+",
        default=[20, 100_000],
        help="rows per batch (default: %(default)s)",
    )
    parser.add_argument(
        "--tasks",
        type=int,
        nargs="+",
        default=[2],
        help="transactions per batch (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        nargs="+",
        default=[1],
        help="partitions that each task writes to (default: %(default)s)",
    )
    parser.add_argument("--repetitions", type=int, default=20)
    chosen = parser.parse_args(arguments)
    with bootstrap(chosen.bootstrap) as servers:
        for rows, tasks, partitions in product(chosen.rows, chosen.tasks, chosen.partitions):
            with topic(servers, partitions) as name:
                use_every_partition(servers, name, partitions)
                _report(servers, name, rows, tasks, partitions, chosen.repetitions)


def _report(
    servers: str, name: str, rows: int, tasks: int, partitions: int, repetitions: int
) -> None:
    steps = Steps()
    with ExitStack() as stack:
        for label, (module, step) in _STEPS.items():
            stack.enter_context(steps.watch(label, module, step))
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            found = runner.run(measure(servers, name, rows, tasks, repetitions))
    print(
        f"\n{rows:,} rows, {tasks} tasks, {partitions} partitions\n\n| delivery | ms | CPU "
        "ms |\n|---|---|---|"
    )
    for kind, taken in found.items():
        print(
            f"| {kind} | {median(wall for wall, _ in taken):.1f} | "
            f"{median(cpu for _, cpu in taken):.1f} |"
        )
    print("\n| step | ms |\n|---|---|")
    for label, milliseconds in steps.took.items():
        print(f"| {label} | {median(milliseconds):.1f} |")


if __name__ == "__main__":
    main()

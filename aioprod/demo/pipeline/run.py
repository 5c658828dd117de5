"""Runs the two queries of the application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioprod.demo.pipeline.delays import (
    CarrierHourDelay,
    RouteDelay,
    measure_delays,
)
from aioprod.demo.pipeline.events import dead_letters, parse_events, read_records
from aioprod.demo.pipeline.options import PipelineOptions
from aioprod.demo.pipeline.outputs import Outputs
from aioprod.logs import Logger, get_logger
from aioprod.spark.pipeline.running import run_queries
from aioprod.spark.progress import ProgressListener, QueryProgress
from aioprod.spark.session import register
from aioprod.spark.signs import QuerySigns

_PROGRESS_LIMIT_S = 10.0
_CHECKPOINTS = ("delays", "dead-letters")
_HASHED_GROUPS = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
_SPARKS_HASHED_GROUPS, _MORE_HASHED_GROUPS = "128", "40000"

log: Logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The results of a run.

    Attributes:
        rows_read: records that this run read from the topic; a run that resumes from its checkpoint
            reads only new ones.
        dead_letters: the number of these that are not events.
        late: events of this run that were dropped because they were older than the watermark.
        delays: the delays of every carrier and hour, of all runs on the checkpoint, ordered by hour
            and carrier.
        routes: the worst routes by mean delay, worst first.
        delays_path, routes_path: the same as Parquet.
    """

    rows_read: int
    dead_letters: int
    late: int
    delays: list[CarrierHourDelay]
    routes: list[RouteDelay]
    delays_path: str
    routes_path: str


def run_pipeline(
    spark: SparkSession,
    options: PipelineOptions,
    *,
    follow: bool = False,
    stop: threading.Event | None = None,
    on_progress: Callable[[QueryProgress], None] | None = None,
    signs: QuerySigns | None = None,
    timeout_s: float = 600.0,
) -> PipelineResult:
    """Read all flight events of a topic; write delays to Parquet and to another topic, and
    records that are not events to a third.

    Two streaming queries, named by :func:`query_names`, read the topic. The first computes delays
    by carrier and hour and by route (output mode update, so that delays appear before their hour
    is closed); the last update of each counts. The second finds the dead letters.

    Args:
        spark: a session; with the format ``kafka`` it needs Spark's connector jars.
        options: the source and the destinations.
        follow: read until ``stop`` is set or Ctrl-C, not only the events that exist now.
        stop: ends a run with ``follow``.
        on_progress: called after each micro-batch, in a thread of the listener.
        signs: gets the reports of both queries.
        timeout_s: time limit of a run without ``follow``.

    Raises:
        pyspark.errors.StreamingQueryException: if a query failed.
        TimeoutError: if the limit was reached.
    """
    if options.source_format == "aioprod":
        register(spark)
    outputs = Outputs(spark, options)
    tally = _Tally(options.topic, on_progress)
    listener = ProgressListener(tally.add, signs)
    spark.streams.addListener(listener)
    try:
        queries = run_queries(
            _writers(spark, options, outputs, follow=follow),
            stop,
            follow=follow,
            timeout_s=timeout_s,
            starting=lambda: more_hashed_groups(spark),
        )
        if not listener.wait_until_ended(
            [str(query.runId) for query in queries], _PROGRESS_LIMIT_S
        ):
            log.warning("the counts may lack the last micro-batches: Spark did not report all")
    finally:
        spark.streams.removeListener(listener)
    outputs.compact(str(queries[0].id))
    return PipelineResult(
        rows_read=tally.rows,
        dead_letters=tally.dead_letters,
        late=tally.late,
        delays=outputs.delays(),
        routes=outputs.routes(),
        delays_path=outputs.delays_path,
        routes_path=outputs.routes_path,
    )


def query_names(topic: str) -> tuple[str, str]:
    """Return the names of the queries on a topic: delays, dead letters."""
    return f"{topic}: delays", f"{topic}: dead letters"


def _writers(
    spark: SparkSession, options: PipelineOptions, outputs: Outputs, *, follow: bool
) -> list[DataStreamWriter]:
    events = parse_events(read_records(spark, options))
    rejected = dead_letters(read_records(spark, options, headers=True))
    # Spark offers Python sinks no output mode update, hence foreachBatch, which also lets one
    # aggregation feed Kafka and Parquet.
    writers = [
        measure_delays(events, watermark=options.watermark)
        .writeStream.outputMode("update")
        .foreachBatch(outputs.write),
        rejected.writeStream.outputMode("append")
        .format(options.source_format)
        .options(**options.client, topic=options.dead_letters),
    ]
    for writer, name, directory in zip(
        writers, query_names(options.topic), _CHECKPOINTS, strict=True
    ):
        writer.queryName(name).option("checkpointLocation", f"{options.checkpoint_dir}/{directory}")
        if follow:
            writer.trigger(processingTime="0 seconds")
        else:
            writer.trigger(availableNow=True)
    return writers


@contextmanager
def more_hashed_groups(spark: SparkSession) -> Iterator[None]:
    """While a query starts, which keeps a copy of the session's settings, let percentiles of more
    groups than Spark's 128 be hashed; those of others are sorted, which takes a fifth of the time.
    A micro-batch has some ten thousand groups, of about 1 kB each. A session that has another
    number keeps it.
    """
    if spark.conf.get(_HASHED_GROUPS) != _SPARKS_HASHED_GROUPS:
        yield
        return
    spark.conf.set(_HASHED_GROUPS, _MORE_HASHED_GROUPS)
    try:
        yield
    finally:
        spark.conf.set(_HASHED_GROUPS, _SPARKS_HASHED_GROUPS)


class _Tally:
    """Counts rows over all micro-batches of a run."""

    def __init__(self, topic: str, on_progress: Callable[[QueryProgress], None] | None) -> None:
        self._delays, self._rejected = query_names(topic)
        self._on_progress = on_progress
        self.rows = self.late = self.dead_letters = 0

    def add(self, progress: QueryProgress) -> None:
        if progress.query == self._delays:
            self.rows += progress.rows
            self.late += progress.late_rows
        elif progress.query == self._rejected:
            self.dead_letters += progress.dead_letters or 0
        if self._on_progress is not None:
            self._on_progress(progress)

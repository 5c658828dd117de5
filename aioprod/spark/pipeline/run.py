"""Starts and stops the queries of the pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from aioprod.logs import get_logger
from aioprod.spark.pipeline.events import dead_letters, parse_events, read_records
from aioprod.spark.pipeline.figures import (
    CarrierHourDelay,
    RouteDelay,
    delay_figures,
)
from aioprod.spark.pipeline.options import PipelineOptions
from aioprod.spark.pipeline.outputs import Outputs
from aioprod.spark.progress import DEAD_LETTERS, ProgressListener, QueryProgress
from aioprod.spark.session import register
from aioprod.spark.signs import QuerySigns

_POLL_S = 0.1
_PROGRESS_LIMIT_S = 10.0
_SOURCE_LIMIT_S = 20.0
_CHECKPOINTS = ("figures", "dead-letters")
_HASHED_GROUPS = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
_SPARKS_HASHED_GROUPS, _MORE_HASHED_GROUPS = "128", "40000"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """The results of a run.

    Attributes:
        rows_read: records that this run read from the topic; a run that resumes from its checkpoint
            reads only new ones.
        dead_letters: the number of these that are not events.
        late: events of this run that were dropped because they were older than the watermark.
        delays: figures of every carrier and hour, of all runs on the checkpoint, ordered by hour
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
    """Read all flight events of a topic; write delay figures to Parquet and to another topic, and
    records that are not events to a third.

    Two streaming queries, named by :func:`query_names`, read the topic. The first computes figures
    by carrier and hour and by route (output mode update, so that figures appear before their hour
    is closed); the last update of each counts. The second finds the dead letters.

    Args:
        spark: a session; with the format ``kafka`` it needs Spark's connector jars.
        options: what to read and where to write.
        follow: read until ``stop`` is set or Ctrl-C, not only the events that exist now.
        stop: ends a run with ``follow``.
        on_progress: called after each micro-batch, in a thread of the listener.
        signs: gets the signs of life of both queries.
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
    """Return the names of the queries on a topic: figures, dead letters."""
    return f"{topic}: figures", f"{topic}: dead letters"


def _writers(
    spark: SparkSession, options: PipelineOptions, outputs: Outputs, *, follow: bool
) -> list[DataStreamWriter]:
    events = parse_events(read_records(spark, options))
    rejected = dead_letters(read_records(spark, options, headers=True)).observe(
        DEAD_LETTERS, F.count(F.lit(1)).alias("rows")
    )
    # Spark offers Python sinks no output mode update, hence foreachBatch, which also lets one
    # aggregation feed Kafka and Parquet.
    writers = [
        delay_figures(events, watermark=options.watermark)
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


def run_queries(
    writers: Sequence[DataStreamWriter],
    stop: threading.Event | None = None,
    *,
    follow: bool,
    timeout_s: float,
    starting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> list[StreamingQuery]:
    """Start queries one after another; stop all when they have ended, one has failed, or the time
    is over.

    Args:
        writers: the queries, with their triggers.
        stop: ends them when it is set.
        follow: run without a limit, and take Ctrl-C for the usual end.
        timeout_s: the limit otherwise, in seconds.
        starting: what surrounds the start of each query.

    Returns:
        The queries, which have ended.

    Raises:
        pyspark.errors.StreamingQueryException: if a query failed.
        TimeoutError: if the limit was reached.
    """
    queries: list[StreamingQuery] = []
    try:
        for writer in writers:
            with starting():
                queries.append(writer.start())
            _wait_for_source(queries[-1])
        _wait(queries, stop, None if follow else timeout_s)
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        for query in queries:
            query.stop()
    return queries


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


def _wait_for_source(query: StreamingQuery) -> None:
    """Wait until a query's source runs. Spark fails a query whose Python process has not started
    within 10 s, which several at once may not achieve.
    """
    deadline = time.monotonic() + _SOURCE_LIMIT_S
    while (
        query.isActive
        and query.status["message"].startswith("Initializing")
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_S)


def _wait(
    queries: Sequence[StreamingQuery], stop: threading.Event | None, limit_s: float | None
) -> None:
    """Wait until all queries have ended or one failed, ``stop`` is set, or the time is over."""
    started = time.monotonic()
    pause = stop or threading.Event()
    while any(query.isActive for query in queries) and not pause.wait(_POLL_S):
        _raise_failure(queries)
        if limit_s is not None and time.monotonic() - started > limit_s:
            raise TimeoutError(f"the pipeline did not end within timeout_s={limit_s:g}")
    _raise_failure(queries)


def _raise_failure(queries: Sequence[StreamingQuery]) -> None:
    for query in queries:
        failure = query.exception()
        if failure is not None:
            raise failure


class _Tally:
    """Counts rows over all micro-batches of a run."""

    def __init__(self, topic: str, on_progress: Callable[[QueryProgress], None] | None) -> None:
        self._figures, self._rejected = query_names(topic)
        self._on_progress = on_progress
        self.rows = self.late = self.dead_letters = 0

    def add(self, progress: QueryProgress) -> None:
        if progress.query == self._figures:
            self.rows += progress.rows
            self.late += progress.late_rows
        elif progress.query == self._rejected:
            self.dead_letters += progress.dead_letters or 0
        if self._on_progress is not None:
            self._on_progress(progress)

"""How far streaming queries are: each micro-batch that Spark reports to its listeners, as a few
numbers.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One micro-batch of a streaming query.

    Attributes:
        query: the query's name, else its id.
        run_id: of the query since its last start.
        batch_id: the micro-batch's number. One without rows is reported under the number that the
            next one with rows has.
        rows: records read.
        rows_per_second: of these, by the time that the whole trigger took.
        batch_ms: that time in milliseconds, planning and commits included.
        lag: records that the topics held beyond the micro-batch's end; None where the source does
            not tell (this library's before Spark 4.2).
        late_rows: rows dropped as they were older than the watermark.
        observed: the metrics of ``DataFrame.observe``: values by metric's name, by observation's
            name.
    """

    query: str
    run_id: UUID
    batch_id: int
    rows: int
    rows_per_second: float
    batch_ms: int
    lag: int | None
    late_rows: int
    observed: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> QueryProgress:
        """Take from Spark's report what tells how far the query is."""
        return cls(
            query=progress.name or str(progress.id),
            run_id=progress.runId,
            batch_id=progress.batchId,
            rows=progress.numInputRows or 0,
            rows_per_second=_number(progress.processedRowsPerSecond),
            batch_ms=progress.batchDuration,
            lag=_lag(progress.sources),
            late_rows=sum(
                operator.numRowsDroppedByWatermark for operator in progress.stateOperators
            ),
            observed={name: row.asDict() for name, row in progress.observedMetrics.items()},
        )

    def __str__(self) -> str:
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        late = f", {self.late_rows:,} late rows dropped" if self.late_rows else ""
        return (
            f"{self.query}, batch {self.batch_id}: {self.rows:,} rows in {self.batch_ms:,} ms "
            f"({self.rows_per_second:,.0f}/s), lag {lag}{late}"
        )


class ProgressListener(StreamingQueryListener):
    """Follows the streaming queries of a session:
    ``spark.streams.addListener(ProgressListener(print))``.

    Each micro-batch is a line of the log (INFO, logger ``aioprod.spark.progress``). Spark calls in
    a thread of its own, some moments after the micro-batch; `wait_until_ended` waits for what is
    still to come of queries that have ended.
    """

    def __init__(self, on_progress: Callable[[QueryProgress], None] | None = None) -> None:
        """``on_progress`` is called for each micro-batch, in Spark's thread: it must be quick. What
        it raises is logged.
        """
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._newest: dict[str, QueryProgress] = {}
        self._ended: set[str] = set()

    @property
    def newest(self) -> dict[str, QueryProgress]:
        """The last micro-batch of each query, by the query's name."""
        with self._changed:
            return dict(self._newest)

    def wait_until_ended(self, run_ids: Collection[str], timeout_s: float) -> bool:
        """Wait until Spark has told of the end of these runs, and thereby of all their
        micro-batches; False where it has not in time.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._ended.issuperset(run_ids), timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        log.info("%s has started", event.name or event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        _remember_type_check()
        progress = QueryProgress.of(event.progress)
        log.info("%s", progress)
        with self._changed:
            self._newest[progress.query] = progress
        if self._on_progress is not None:
            try:
                self._on_progress(progress)
            except BaseException:  # it would end Spark's thread, and with it all later reports
                log.exception("the callback of a progress listener failed")

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()


def _remember_type_check() -> None:
    """Look up only once the class by which PySpark tells Java's exceptions apart.

    It reads each report through Java iterators, whose end is an exception, and compares each with
    14 classes. Each time Java looks in all jars for a class "py4j", then "py4j.reflection".
    Remembered, a report takes 14 instead of 80 ms of the listener's CPU.
    """
    jvm = SparkContext._jvm  # none with Spark Connect
    if jvm is not None and "py4j" not in vars(jvm):
        package = jvm.py4j
        reflection = package.reflection
        vars(reflection)["TypeUtil"] = reflection.TypeUtil
        vars(package)["reflection"] = reflection
        vars(jvm)["py4j"] = package


def _lag(sources: Collection[SourceProgress]) -> int | None:
    """Latest less end offset over all partitions of all sources; a partition that the end does not
    name yet counts from its beginning.
    """
    total = 0
    for source in sources:
        latest, end = _offsets(source.latestOffset), _offsets(source.endOffset)
        if latest is None or end is None:
            return None
        total += sum(max(0, offset - end.get(place, 0)) for place, offset in latest.items())
    return total


def _offsets(text: str | None) -> dict[tuple[str, str], int] | None:
    """``{"topic": {"0": 5}}``, as Spark's Kafka source and this library's have it, by topic and
    partition; None for anything else.
    """
    try:
        given = json.loads(text or "null")
        return {
            (topic, partition): int(offset)
            for topic, partitions in given.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        return None


def _number(value: float | None) -> float:
    return value if value is not None and value == value else 0.0  # NaN: no time has passed

"""The progress of streaming queries: a few numbers for each micro-batch that Spark reports to its
listeners.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from aioprod.logs import Logger, get_logger
from aioprod.spark.signs import QuerySigns

log: Logger = get_logger(__name__)

_WHOLE_TRIGGER = "triggerExecution"

DEAD_LETTERS = "dead letters"
"""The observation (``DataFrame.observe``) whose metric ``rows`` counts dead letters. Its metric
``samples`` has some of them, as JSON.
"""

INPUT = "input"
"""The observation whose metric ``bytes`` is the size of the values that were read."""


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One micro-batch of a streaming query.

    Attributes:
        query: the query's name, or its id if it has no name.
        run_id: identifies the query's current run.
        started_at: the start of the trigger, in seconds since 1970.
        batch_id: the number of the micro-batch; without rows, the number of the next micro-batch
            with rows.
        rows: the number of records read.
        rows_per_second: rows divided by the duration of the whole trigger.
        batch_ms: the duration of the trigger in milliseconds, including planning and commits.
        phases_ms: the parts of this duration in milliseconds, by Spark's names: ``latestOffset``,
            ``getBatch``, ``queryPlanning``, ``walCommit``, ``addBatch``, ``commitOffsets`` and
            others. They do not cover the whole duration.
        lag: the number of records in the topics after the micro-batch's end; None if the source
            does not report it (aioprod's does from Spark 4.2 on).
        lag_by_partition: the same by topic and partition, with the partition as text.
        state_rows: the number of rows in the state of all operators.
        state_bytes: the memory that this state uses.
        late_rows: the number of rows that were dropped because they were older than the watermark.
        watermark_delay_s: the time from the watermark to the end of the micro-batch, in seconds;
            None if the query has no watermark.
        event_age_s: the age of the newest event time in the micro-batch at its end, in seconds;
            None without a watermark or rows.
        observed: the metrics of ``DataFrame.observe``: values by metric name, by observation
            name.
        skew: the number of records in the partition with the most, divided by the mean of all
            partitions, by their offsets: 1 if they are equal. None in the first micro-batch, and
            without new records or with only one partition.
    """

    query: str
    run_id: UUID
    started_at: float
    batch_id: int
    rows: int
    rows_per_second: float
    batch_ms: int
    phases_ms: Mapping[str, int]
    lag: int | None
    lag_by_partition: Mapping[str, Mapping[str, int]] | None
    state_rows: int
    state_bytes: int
    late_rows: int
    observed: Mapping[str, Mapping[str, Any]]
    watermark_delay_s: float | None = None
    event_age_s: float | None = None
    skew: float | None = None

    @classmethod
    def of(cls, progress: StreamingQueryProgress) -> QueryProgress:
        """Extract the progress from Spark's report."""
        lag = _lag(progress.sources)
        phases = {name: ms for name, ms in progress.durationMs.items() if name != _WHOLE_TRIGGER}
        started_at = datetime.fromisoformat(progress.timestamp).timestamp()
        ended_at = started_at + progress.batchDuration / 1000
        return cls(
            query=progress.name or str(progress.id),
            run_id=progress.runId,
            started_at=started_at,
            batch_id=progress.batchId,
            rows=progress.numInputRows or 0,
            rows_per_second=_number(progress.processedRowsPerSecond),
            batch_ms=progress.batchDuration,
            phases_ms=phases,
            lag=None if lag is None else sum(sum(topic.values()) for topic in lag.values()),
            lag_by_partition=lag,
            state_rows=sum(operator.numRowsTotal for operator in progress.stateOperators),
            state_bytes=sum(operator.memoryUsedBytes for operator in progress.stateOperators),
            late_rows=sum(
                operator.numRowsDroppedByWatermark for operator in progress.stateOperators
            ),
            observed={name: row.asDict() for name, row in progress.observedMetrics.items()},
            watermark_delay_s=_age(progress.eventTime.get("watermark"), ended_at),
            event_age_s=_age(progress.eventTime.get("max"), ended_at),
            skew=_skew(progress.sources),
        )

    @property
    def dead_letters(self) -> int | None:
        """The number of dead letters in this micro-batch: ``rows`` of the observation ``dead
        letters``. None if the query has no such observation.
        """
        count: int | None = self.observed.get(DEAD_LETTERS, {}).get("rows")
        return count

    @property
    def dead_letter_samples(self) -> list[dict[str, Any]]:
        """Samples of the micro-batch's dead letters: ``reason``, ``topic``, ``partition``,
        ``offset``, ``timestamp`` (ms) and ``value``. Empty if the query does not observe them.
        """
        samples = self.observed.get(DEAD_LETTERS, {}).get("samples") or ()
        return [json.loads(sample) for sample in samples if sample is not None]

    @property
    def bytes_read(self) -> int | None:
        """The size of the values in this micro-batch: ``bytes`` of the observation ``input``. None
        if the query has no such observation, or the micro-batch no values.
        """
        size: int | None = self.observed.get(INPUT, {}).get("bytes")
        return size

    @property
    def bytes_per_second(self) -> float | None:
        """`bytes_read` divided by the duration of the whole trigger."""
        size = self.bytes_read
        return None if size is None else _number(size * 1000 / max(self.batch_ms, 1))

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

    Each micro-batch is logged in one line (INFO, logger ``aioprod.spark.progress``). Spark calls
    listeners in its own thread, shortly after the micro-batch; `wait_until_ended` waits for the
    outstanding reports of queries that have ended.
    """

    def __init__(
        self,
        on_progress: Callable[[QueryProgress], None] | None = None,
        signs: QuerySigns | None = None,
    ) -> None:
        """Call ``on_progress`` for each micro-batch, in Spark's thread: it must return quickly. Its
        exceptions are logged. ``signs`` is updated with each report of a query.
        """
        self._on_progress = on_progress
        self._signs = QuerySigns() if signs is None else signs
        self._changed = threading.Condition()
        self._newest: dict[str, QueryProgress] = {}
        self._ended: set[str] = set()

    @property
    def newest(self) -> dict[str, QueryProgress]:
        """Return the last micro-batch of each query, by the query's name."""
        with self._changed:
            return dict(self._newest)

    def wait_until_ended(self, run_ids: Collection[str], timeout_s: float) -> bool:
        """Wait until Spark has reported the end of these runs, and thereby all their micro-batches;
        return False on timeout.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._ended.issuperset(run_ids), timeout_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        name = event.name or str(event.id)
        log.info("%s has started", name)
        self._signs.seen(str(event.runId), name)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        _remember_type_check()
        progress = QueryProgress.of(event.progress)
        log.info("%s", progress)
        self._signs.seen(str(progress.run_id), progress.query)
        with self._changed:
            self._newest[progress.query] = progress
        if self._on_progress is not None:
            try:
                self._on_progress(progress)
            except BaseException:  # would end Spark's thread, and with it all reports
                log.exception("the callback of a progress listener failed")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        self._signs.seen(str(event.runId))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._signs.ended(str(event.runId))
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()


def _remember_type_check() -> None:
    """Cache the class that PySpark uses to recognize Java exceptions.

    PySpark reads each report through Java iterators, which end with an exception, and compares each
    exception with 14 classes. Each time, Java searches all jars for a class "py4j", then
    "py4j.reflection". With the cache, a report costs the listener 14 ms of CPU instead of 80 ms.
    """
    jvm = SparkContext._jvm  # none with Spark Connect
    if jvm is not None and "py4j" not in vars(jvm):
        package = jvm.py4j
        reflection = package.reflection
        vars(reflection)["TypeUtil"] = reflection.TypeUtil
        vars(package)["reflection"] = reflection
        vars(jvm)["py4j"] = package


def _lag(sources: Collection[SourceProgress]) -> dict[str, dict[str, int]] | None:
    """Return the latest minus the end offsets of all sources, by topic and partition. A partition
    without an end offset counts from offset 0.
    """
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        latest, end = _offsets(source.latestOffset), _offsets(source.endOffset)
        if latest is None or end is None:
            return None
        for (topic, partition), offset in latest.items():
            behind = found.setdefault(topic, {})
            more = max(0, offset - end.get((topic, partition), 0))
            behind[partition] = behind.get(partition, 0) + more
    return found


def _skew(sources: Collection[SourceProgress]) -> float | None:
    """Return the most records of a partition in the micro-batch, divided by the mean."""
    counts: list[int] = []
    for source in sources:
        start, end = _offsets(source.startOffset), _offsets(source.endOffset)
        if start is None or end is None:
            return None
        counts += [max(0, offset - start.get(place, 0)) for place, offset in end.items()]
    if len(counts) < 2 or not any(counts):
        return None
    return max(counts) * len(counts) / sum(counts)


def _offsets(text: str | None) -> dict[tuple[str, str], int] | None:
    """Parse ``{"topic": {"0": 5}}``, the format of Spark's and aioprod's Kafka sources, by topic
    and partition; return None for other formats.
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


def _age(moment: str | None, now: float) -> float | None:
    """Return the seconds since a time in Spark's report; None for 1970, the time before the first
    watermark.
    """
    try:
        seconds = datetime.fromisoformat(moment or "").timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, now - seconds) if seconds > 0 else None


def _number(value: float | None) -> float:
    # Spark divides by the time, which may be 0 ms.
    return value if value is not None and math.isfinite(value) else 0.0

"""The measurements of a run's streaming queries, in bounded memory."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aioprod.spark.page.tasks import QueryTasks
from aioprod.spark.progress import QueryProgress
from aioprod.spark.signs import QuerySigns

MAX_BATCHES = 600
"""The number of micro-batches (of all queries) that are kept for the charts."""

MAX_QUERIES = 20
"""The number of queries that are kept; then the one with the oldest report is dropped."""

MAX_PARTITIONS = 50
"""The number of partitions in the page's data: those with the largest lag. Prometheus gets all."""

MAX_REASONS = 20
"""The number of reasons with a sample of a query's dead letters; then the oldest is dropped."""

State = Literal["starting", "running", "stopped", "failed"]


@dataclass(slots=True)
class QueryTotals:
    """One query since the run began.

    Attributes:
        newest: its newest micro-batch.
        reported_at: the time of its report, in seconds since 1970.
        rows, late_rows, batches: sums over all its micro-batches.
        dead_letters: the sum of dead letters; None if the query does not count them.
        bytes_read: the sum of the values' sizes; None if the query does not observe them.
        samples: the newest sample of its dead letters by reason, the newest reason last.
    """

    newest: QueryProgress
    reported_at: float
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    dead_letters: int | None = None
    bytes_read: int | None = None
    samples: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, progress: QueryProgress, now: float) -> None:
        """Add a micro-batch."""
        self.newest, self.reported_at = progress, now
        self.batches += 1
        self.rows += progress.rows
        self.late_rows += progress.late_rows
        if progress.dead_letters is not None:
            self.dead_letters = (self.dead_letters or 0) + progress.dead_letters
        if progress.bytes_read is not None:
            self.bytes_read = (self.bytes_read or 0) + progress.bytes_read
        for sample in progress.dead_letter_samples:
            others = {why: each for why, each in self.samples.items() if why != sample["reason"]}
            newest = [*others.items(), (sample["reason"], sample)][-MAX_REASONS:]
            self.samples = dict(newest)  # a new one, since copies of the totals share it


class ProgressHistory:
    """The data for the page and the metrics. All methods may be called from any thread."""

    def __init__(
        self,
        title: str,
        *,
        lag_limit: int | None = None,
        signs: QuerySigns | None = None,
        clock: Callable[[], float] = time.time,
        tasks: QueryTasks | None = None,
    ) -> None:
        self._title = title
        self._signs = QuerySigns() if signs is None else signs
        self._tasks = QueryTasks() if tasks is None else tasks
        self._lag_limit = lag_limit
        self._clock = clock
        self._lock = threading.Lock()
        self._run = secrets.token_hex(8)
        self._began_at = clock()
        self._ended_at: float | None = None
        self._state: State = "starting"
        self._error: str | None = None
        self._spark_ui: str | None = None
        self._queries: OrderedDict[str, QueryTotals] = OrderedDict()
        self._batches: deque[dict[str, Any]] = deque(maxlen=MAX_BATCHES)
        self._count = 0

    @property
    def state(self) -> State:
        """The run's state."""
        with self._lock:
            return self._state

    def running(self, spark_ui: str | None = None) -> None:
        """Record that Spark is running and its queries start. ``spark_ui`` is the address of
        Spark's UI.
        """
        with self._lock:
            self._spark_ui = spark_ui or self._spark_ui
            if self._state == "starting":
                self._state = "running"

    def add(self, progress: QueryProgress) -> None:
        """Add a micro-batch. The first one also changes the state from starting to running."""
        now = self._clock()
        self.running()
        with self._lock:
            totals = self._queries.setdefault(progress.query, QueryTotals(progress, now))
            totals.add(progress, now)
            self._queries.move_to_end(progress.query)
            if len(self._queries) > MAX_QUERIES:
                self._queries.popitem(last=False)
            self._count += 1
            self._batches.append(_batch(self._count, progress, totals))

    def end(self, error: str | None = None) -> None:
        """End the run: stopped, or failed if ``error`` says why. Only the first end counts."""
        with self._lock:
            if self._ended_at is None:
                self._state, self._error = ("stopped" if error is None else "failed"), error
                self._ended_at = self._clock()

    def stalled(self) -> dict[str, float]:
        """Return the seconds since the last report of each stalled query, by name; empty if the run
        has ended.
        """
        return self._signs.stalled() if self.state == "running" else {}

    def silences(self) -> dict[str, float]:
        """Return the seconds since the last report of each running query, by name."""
        return self._signs.silences()

    def totals(self) -> dict[str, QueryTotals]:
        """Return a copy of each query's totals, by name."""
        with self._lock:
            return {name: replace(totals) for name, totals in sorted(self._queries.items())}

    def longest_stages(self, totals: Mapping[str, QueryTotals]) -> dict[str, dict[str, Any] | None]:
        """Return the stage of each query's newest micro-batch that took longest, by name; see
        :meth:`QueryTasks.longest_stage`.
        """
        return {
            name: self._tasks.longest_stage(name, each.newest.run_id)
            for name, each in totals.items()
        }

    def document(self, run: str = "", after: int = 0) -> dict[str, Any]:
        """Return the data of the page, ready for JSON.

        Args:
            run: the run whose batches the page has; batches of another run are ignored.
            after: the number of the newest of them: only later batches are returned.
        """
        totals, stalled = self.totals(), self.stalled()
        stages = self.longest_stages(totals)
        with self._lock:
            known = after if run == self._run else 0
            return {
                "run": self._run,
                "title": self._title,
                "state": self._state,
                "error": self._error,
                "began_at": self._began_at,
                "ended_at": self._ended_at,
                "now": self._clock(),
                "lag_limit": self._lag_limit,
                "spark_ui": self._spark_ui,
                "stalled": [
                    {"query": query, "silent_s": silent}
                    for query, silent in sorted(stalled.items())
                ],
                "max_batches": MAX_BATCHES,
                "queries": [
                    _query(name, each) | {"stage": stages[name]} for name, each in totals.items()
                ],
                "batches": [batch for batch in self._batches if batch["number"] > known],
            }


def _batch(number: int, progress: QueryProgress, totals: QueryTotals) -> dict[str, Any]:
    """Return one point of the charts."""
    return {
        "number": number,
        "query": progress.query,
        "batch_id": progress.batch_id,
        "ended_at": progress.started_at + progress.batch_ms / 1000,
        "rows": progress.rows,
        "rows_per_second": progress.rows_per_second,
        "batch_ms": progress.batch_ms,
        "phases_ms": dict(progress.phases_ms),
        "lag": progress.lag,
        "state_rows": progress.state_rows,
        "state_bytes": progress.state_bytes,
        "late_rows_total": totals.late_rows,
        "dead_letters_total": totals.dead_letters,
        "watermark_delay_s": progress.watermark_delay_s,
        "event_age_s": progress.event_age_s,
        "bytes_per_second": progress.bytes_per_second,
        "skew": progress.skew,
    }


def _query(name: str, totals: QueryTotals) -> dict[str, Any]:
    newest = totals.newest
    lags = _flat(newest.lag_by_partition)
    largest = sorted(range(len(lags)), key=lambda place: -lags[place]["lag"])[:MAX_PARTITIONS]
    return {
        "query": name,
        "batch_id": newest.batch_id,
        "reported_at": totals.reported_at,
        "batches": totals.batches,
        "rows_total": totals.rows,
        "rows_per_second": newest.rows_per_second,
        "batch_ms": newest.batch_ms,
        "lag": newest.lag,
        "lag_by_partition": [lags[place] for place in sorted(largest)],
        "partitions": len(lags),
        "late_rows_total": totals.late_rows,
        "dead_letters_total": totals.dead_letters,
        "dead_letter_samples": list(totals.samples.values())[::-1],
        "state_rows": newest.state_rows,
        "state_bytes": newest.state_bytes,
        "watermark_delay_s": newest.watermark_delay_s,
        "event_age_s": newest.event_age_s,
        "bytes_per_second": newest.bytes_per_second,
        "bytes_total": totals.bytes_read,
        "skew": newest.skew,
    }


def _flat(lags: Mapping[str, Mapping[str, int]] | None) -> list[dict[str, Any]]:
    """List the lags by topic and number of the partition."""
    return [
        {"topic": topic, "partition": int(partition), "lag": lag}
        for topic, partitions in sorted((lags or {}).items())
        for partition, lag in sorted(partitions.items(), key=lambda item: int(item[0]))
    ]

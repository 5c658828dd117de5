"""Detects stalled streaming queries by their reports: a query that waits for records reports
regularly, a stalled one does not.
"""

from __future__ import annotations

import threading
import time


class QuerySigns:
    """The last report of each running query. All methods may be called from any thread.

    Spark reports the start of a query and each micro-batch, and, while a query waits for records,
    that it is idle: every 10 s (``spark.sql.streaming.noDataProgressEventInterval``), or with each
    trigger if these are further apart. A query without a report for longer is processing one
    micro-batch or is stalled.

    Args:
        limit_s: a query without a report for more seconds counts as stalled; None for no limit.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self.limit_s = limit_s
        self._clock = time.monotonic
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._seen_at: dict[str, float] = {}

    def seen(self, run_id: str, query: str | None = None) -> None:
        """Record a report.

        Args:
            run_id: identifies the query's current run.
            query: the query's name, if the report has it.
        """
        with self._lock:
            if query is not None or run_id not in self._names:
                self._names[run_id] = query or run_id
            self._seen_at[run_id] = self._clock()

    def ended(self, run_id: str) -> None:
        """Expect no more reports of a query that has ended."""
        with self._lock:
            self._names.pop(run_id, None)
            self._seen_at.pop(run_id, None)

    def silences(self) -> dict[str, float]:
        """Return the seconds since the last report of each running query, by name."""
        with self._lock:
            now = self._clock()
            return {self._names[run]: now - seen for run, seen in self._seen_at.items()}

    def stalled(self) -> dict[str, float]:
        """Return the same for the queries whose last report is older than the limit."""
        limit = self.limit_s
        if limit is None:
            return {}
        return {query: silent for query, silent in self.silences().items() if silent > limit}


def stall_text(query: str, silent_s: float) -> str:
    """Return a sentence about a stalled query."""
    return (
        f"{query}: no report for {silent_s:,.0f} s: it is processing one micro-batch, or is stalled"
    )

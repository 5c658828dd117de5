"""Decides when to alert about a streaming query: it lags, has dead letters, is stalled, or has
failed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from aioprod.spark.progress import QueryProgress
from aioprod.spark.signs import QuerySigns, stall_text

AlertKind = Literal["failed", "lag", "lag-over", "dead-letters", "stalled", "stalled-over"]


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert about an application.

    Attributes:
        alert: ``failed``; ``lag`` (exceeds its limit) and ``lag-over`` (has fallen to half of the
            limit); ``dead-letters`` (in this run, more than the limit); ``stalled`` (no report for
            more seconds than the limit) and ``stalled-over`` (it has reported again, or ended).
        pipeline: the name of the application.
        text: the alert as a sentence.
        query: the query's name; None if the whole run has failed.
        value, limit: the number and its limit; in seconds for a stalled query, None for a failure.
    """

    alert: AlertKind
    pipeline: str
    text: str
    query: str | None = None
    value: int | None = None
    limit: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the alert, ready for JSON."""
        return asdict(self)


class AlertRules:
    """Derives alerts from micro-batches and missing reports, one for each change.

    The alert about a lag ends only when the lag has fallen to half of the limit, so that a lag
    around the limit does not cause repeated alerts. All methods may be called from any thread.
    """

    def __init__(
        self,
        pipeline: str,
        send: Callable[[Alert], None],
        *,
        lag_limit: int | None = None,
        dead_letter_limit: int | None = None,
    ) -> None:
        """Call ``send`` with each alert. A number above its limit is an alert; None disables a
        limit.
        """
        self._pipeline = pipeline
        self._send = send
        self._lag_limit = lag_limit
        self._dead_letter_limit = dead_letter_limit
        self._lock = threading.Lock()
        self._lagging: set[str] = set()
        self._stalled: set[str] = set()
        self._newest_lag: dict[str, int] = {}
        self._dead_letters: dict[str, int] = {}
        self._too_many: dict[str, str] = {}

    def add(self, progress: QueryProgress) -> None:
        """Check a micro-batch."""
        with self._lock:
            if self._lag_limit is not None and progress.lag is not None:
                self._look_at_lag(progress.query, progress.lag, self._lag_limit)
            if self._dead_letter_limit is not None and progress.dead_letters:
                self._look_at_dead_letters(
                    progress.query, progress.dead_letters, self._dead_letter_limit
                )

    def look_at_silences(self, signs: QuerySigns) -> None:
        """Check which queries are stalled, or no longer stalled."""
        if signs.limit_s is None:
            return
        limit = round(signs.limit_s)
        with self._lock:
            stalled = signs.stalled()
            for query in sorted(stalled.keys() - self._stalled):
                silent = stalled[query]
                text = stall_text(query, silent)
                self._send(Alert("stalled", self._pipeline, text, query, int(silent), limit))
            for query in sorted(self._stalled - stalled.keys()):
                text = f"{query}: no longer stalled"
                self._send(Alert("stalled-over", self._pipeline, text, query, None, limit))
            self._stalled = set(stalled)

    def fail(self, reason: str) -> None:
        """Report the failure of the run."""
        self._send(Alert("failed", self._pipeline, f"{self._pipeline} has failed: {reason}"))

    def exceeded(self) -> list[str]:
        """Return a line for each limit that is currently exceeded (for dead letters, in this
        run).
        """
        limit = self._lag_limit
        with self._lock:
            lags = [
                _lag_text(query, lag, limit)
                for query, lag in sorted(self._newest_lag.items())
                if limit is not None and lag > limit
            ]
            return lags + [text for _, text in sorted(self._too_many.items())]

    def _look_at_lag(self, query: str, lag: int, limit: int) -> None:
        self._newest_lag[query] = lag
        if lag > limit and query not in self._lagging:
            self._lagging.add(query)
            text = _lag_text(query, lag, limit)
            self._send(Alert("lag", self._pipeline, text, query, lag, limit))
        elif lag <= limit // 2 and query in self._lagging:
            self._lagging.remove(query)
            text = f"{query}: the lag is {lag:,} records again"
            self._send(Alert("lag-over", self._pipeline, text, query, lag, limit))

    def _look_at_dead_letters(self, query: str, more: int, limit: int) -> None:
        count = self._dead_letters[query] = self._dead_letters.get(query, 0) + more
        if count > limit:
            text = f"{query}: {count:,} dead letters in this run, more than {limit:,}"
            if query not in self._too_many:
                self._send(Alert("dead-letters", self._pipeline, text, query, count, limit))
            self._too_many[query] = text


def _lag_text(query: str, lag: int, limit: int) -> str:
    return f"{query}: the lag is {lag:,} records, more than {limit:,}"

"""Notices that the application does not ask for records any more (``max.poll.interval.ms``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PollWatch:
    """Calls back once, when the application was silent for too long.

    Args:
        limit_s: how long is too long.
        on_overdue: what to call.
    """

    def __init__(self, limit_s: float, on_overdue: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._on_overdue = on_overdue
        self._polled_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def polled(self, now: float) -> None:
        """The application has asked."""
        self._polled_at = now

    def begin(self) -> None:
        """From now on it has to ask; does nothing where it had to already."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._polled_at = loop.time()
            self._timer = loop.call_at(self._polled_at + self._limit_s, self._look)

    def stop(self) -> None:
        """It need not ask any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        due = self._polled_at + self._limit_s
        if due > loop.time():
            self._timer = loop.call_at(due, self._look)
        else:
            self._timer = None
            self._on_overdue()

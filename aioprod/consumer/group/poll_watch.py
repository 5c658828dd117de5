"""Detects that the application has stopped polling (``max.poll.interval.ms``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class PollWatch:
    """Calls ``on_overdue`` once if the application does not poll within the limit.

    Args:
        limit_s: the longest time between two polls.
        on_overdue: called when it has passed.
    """

    def __init__(self, limit_s: float, on_overdue: Callable[[], None]) -> None:
        self._limit_s = limit_s
        self._on_overdue = on_overdue
        self._polled_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def polled(self, now: float) -> None:
        """Note a poll."""
        self._polled_at = now

    def begin(self) -> None:
        """Start watching, unless it has started already."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._polled_at = loop.time()
            self._timer = loop.call_at(self._polled_at + self._limit_s, self._look)

    def stop(self) -> None:
        """Stop watching."""
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

"""Detects idle connections, which are closed (connections.max.idle.ms)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Timers may fire a little early.
_MIN_PAUSE_S = 0.001


class IdleTimer:
    """Calls a function when nothing has been sent or received for a given time.

    Args:
        busy: returns True if requests are in flight: then the connection is not idle.
        on_idle: called with the limit, in milliseconds.

    Attributes:
        used_at: loop time at which data was sent or received last.
        is_needed: returns True if the connection must stay open because the broker has state for
            it.
    """

    __slots__ = ("_busy", "_loop", "_on_idle", "_timer", "is_needed", "used_at")

    def __init__(self, busy: Callable[[], bool], on_idle: Callable[[int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.used_at: float = self._loop.time()
        self.is_needed: Callable[[], bool] = lambda: False
        self._busy = busy
        self._on_idle = on_idle
        self._timer: asyncio.Handle | None = None

    def start(self, idle_ms: int) -> None:
        """Call ``on_idle`` once ``idle_ms`` have passed since the last use."""
        now = self._loop.time()
        due = self.used_at + idle_ms / 1000
        if now >= due:
            if not (self._busy() or self.is_needed()):
                self._on_idle(idle_ms)
                return
            due = now + idle_ms / 1000
        self._timer = self._loop.call_at(max(due, now + _MIN_PAUSE_S), self.start, idle_ms)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

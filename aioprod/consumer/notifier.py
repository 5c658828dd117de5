"""Wakes the call that waits for records or positions."""

from __future__ import annotations

import asyncio

# The longest time for which a task that always finds records keeps other tasks from running.
_BURST_S = 0.01


class Notifier:
    """An event with one waiter, the call that owns the consumer."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None
        self._suspended_at = 0.0

    def notify(self) -> None:
        """Wake the waiting call, if any; it checks its condition again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, deadline: float | None) -> bool:
        """Wait for :meth:`notify` or the deadline; return False if the deadline has passed."""
        loop = asyncio.get_running_loop()
        if deadline is not None and loop.time() >= deadline:
            return False
        waiter = self._waiter = loop.create_future()
        timer = loop.call_at(deadline, self.notify) if deadline is not None else None
        try:
            await waiter
        finally:
            self._waiter = None
            self._suspended_at = loop.time()
            if timer is not None:
                timer.cancel()
        return True

    async def let_others_run(self) -> None:
        """Suspend the calling task once if it has run for ``_BURST_S`` without a break."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._suspended_at >= _BURST_S:
            await asyncio.sleep(0)
            self._suspended_at = loop.time()

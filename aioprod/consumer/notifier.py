"""Wakes the call that waits for records or positions."""

from __future__ import annotations

import asyncio

# The longest time for which a task that always finds records keeps other tasks from running.
_BURST_S = 0.01


class Notifier:
    """An event with one waiter, the call that owns the consumer.

    Attributes:
        resumed_at: loop time at which the last wait has ended.
    """

    def __init__(self) -> None:
        self.resumed_at: float = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0  # of the last waiter
        # Rings at the deadline or earlier: a new timer for each wait would cost more.
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0

    def notify(self) -> None:
        """Wake the waiting call, if any; it checks its condition again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, deadline: float) -> bool:
        """Wait for :meth:`notify` or the deadline; return False if the deadline has passed."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            return False
        await self.wait_until(deadline, loop)
        return True

    async def wait_until(self, deadline: float, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for :meth:`notify` or the deadline, which has not passed yet."""
        self._deadline = deadline
        if self._timer is None or deadline < self._timer_due:
            self._set_timer(loop)
        waiter = self._waiter = loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None
            self.resumed_at = loop.time()

    async def let_others_run(self, now: float) -> None:
        """Suspend the calling task once if it has run for ``_BURST_S`` without a break."""
        if now - self.resumed_at >= _BURST_S:
            await asyncio.sleep(0)
            self.resumed_at = asyncio.get_running_loop().time()

    def stop(self) -> None:
        """Stop the timer. Called when the client is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        self.stop()
        self._timer_due = self._deadline
        self._timer = loop.call_at(self._deadline, self._timer_rings, loop)

    def _timer_rings(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        if self._deadline <= self._timer_due:
            self.notify()
        elif self._waiter is not None:
            self._set_timer(loop)

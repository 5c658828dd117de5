"""Wakes the call that waits for records or positions."""

from __future__ import annotations

import asyncio

from aioprod.earliest_timer import EarliestTimer

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
        self._timer = EarliestTimer(self._timer_rings)

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
        self._timer.set(deadline)
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
        self._timer.stop()

    def _timer_rings(self, now: float) -> None:
        if self._deadline <= now:
            self.notify()
        elif self._waiter is not None:
            self._timer.set(self._deadline)

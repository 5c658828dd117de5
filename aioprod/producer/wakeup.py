"""Wakes the sender task. Every collaborator that can make a batch ready to be sent uses it."""

from __future__ import annotations

import asyncio

NEVER = float("inf")


class SenderWakeup:
    """Lets the sender task sleep until there is work, or until a set time."""

    def __init__(self) -> None:
        self._wake_at = NEVER
        self._alarm: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Future[None] | None = None

    def wake(self, at: float = 0.0) -> None:
        """Make the sender run at loop time ``at``, or sooner."""
        if at >= self._wake_at:
            return
        self._wake_at = at
        if self._waiting is None:
            return  # the sender runs, and sees it before it sleeps
        loop = asyncio.get_running_loop()
        if at <= loop.time():
            self._ring()
        else:
            self._set_alarm(at)

    def clear(self) -> None:
        """Forget earlier calls of :meth:`wake`: the sender is about to check all batches."""
        self._wake_at = NEVER

    async def wait(self, at: float) -> None:
        """Sleep until loop time ``at``, or the time that :meth:`wake` sets.

        Other tasks run at least once, even if there is work already.
        """
        loop = asyncio.get_running_loop()
        self._wake_at = min(self._wake_at, at)
        if self._wake_at <= loop.time():
            await asyncio.sleep(0)
            return
        self._waiting = loop.create_future()
        if self._wake_at < NEVER:
            self._set_alarm(self._wake_at)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def close(self) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _set_alarm(self, at: float) -> None:
        # An earlier timer stays: a new timer for each batch would cost more than one needless run.
        if self._alarm is not None:
            if self._alarm.when() <= at:
                return
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(at, self._alarm_rings)

    def _alarm_rings(self) -> None:
        self._alarm = None
        self._ring()

    def _ring(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

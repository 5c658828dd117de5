"""Runs the sender when there is work. Every collaborator that can make a batch ready to be sent
wakes it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable

NEVER = float("inf")
_SOON = float("-inf")


class SenderWakeup:
    """Runs the sender in the next turn of the event loop, or at a set time.

    It runs in a callback, which costs less than waking a task, and together with the tasks of that
    turn: all records that they send at the same time share the requests.
    """

    def __init__(self) -> None:
        self._send: Callable[[float], float] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_at = NEVER  # when the sender runs next: soon, or when the alarm rings
        self._alarms: list[tuple[float, asyncio.Handle]] = []  # the next one is the last
        # The callbacks must not run in, and keep alive, the context of the task that wakes them.
        self._context = contextvars.Context()
        self._over: asyncio.Future[None] | None = None

    async def run(self, send: Callable[[float], float]) -> None:
        """Call ``send`` with the loop time at each wake-up, at first soon; it returns the loop time
        at which to call it again. Ends only if cancelled, or with an exception of ``send`` or the
        error given to :meth:`fail`.
        """
        self._loop = loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._over = loop.create_future()
        self._send = send
        self._wake_at = NEVER
        self.wake()
        try:
            await self._over
        finally:
            self._loop = self._send = None
            for _, alarm in self._alarms:
                alarm.cancel()
            self._alarms.clear()

    def wake(self, at: float = 0.0) -> None:
        """Make the sender run at loop time ``at``, or sooner."""
        loop = self._loop
        if at >= self._wake_at or loop is None:
            return
        if at <= 0 or at <= loop.time():
            self._wake_at = _SOON
            loop.call_soon(self._run, context=self._context)
            return
        self._wake_at = at
        alarm = loop.call_at(at, self._alarm_rings, context=self._context)
        self._alarms.append((at, alarm))

    def fail(self, error: Exception) -> None:
        """End :meth:`run` with ``error``."""
        if self._over is not None and not self._over.done():
            self._over.set_exception(error)

    def _run(self) -> None:
        if self._loop is None or self._send is None or self._over is None or self._over.done():
            return  # cancelled with all other tasks: what it starts now would outlive them
        # What wakes the sender while it runs makes it run again. The alarms stay: new timers for
        # each batch would cost more than needless runs.
        self._wake_at = self._alarms[-1][0] if self._alarms else NEVER
        try:
            at = self._send(self._loop.time())
        except Exception as error:
            self.fail(error)
        else:
            self.wake(at)

    def _alarm_rings(self) -> None:
        self._alarms.pop()
        if self._wake_at > _SOON:
            self._run()

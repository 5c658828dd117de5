"""Runs what decides about requests whenever there is news: callbacks of the event loop, no task
that anybody could cancel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from aioprod.errors import KafkaError

log = logging.getLogger(__name__)

_NEVER = float("inf")


class Background:
    """Calls each of ``steps`` soon after :meth:`wake`, and at the loop time that they name.

    Args:
        steps: functions of the loop time that return when they want to be called again, news or
            not.
        on_fault: called with the error when a step fails, which is a bug; nothing is called any
            more then.
    """

    def __init__(
        self, steps: Sequence[Callable[[float], float]], on_fault: Callable[[KafkaError], None]
    ) -> None:
        self._steps = steps
        self._on_fault = on_fault
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.wake()

    def stop(self) -> None:
        """Call nothing any more."""
        self._loop = None
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None

    def wake(self) -> None:
        """There is news."""
        if self._soon is None and self._loop is not None:
            self._soon = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._soon = None
        if self._loop is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        try:
            again_at = min(step(now) for step in self._steps)
        except Exception as error:
            log.exception("the consumer's background failed")
            self.stop()
            self._on_fault(
                KafkaError(
                    f"the consumer's background failed: {error!r}; close it and make a new one"
                )
            )
            return
        if again_at < _NEVER and self._loop is not None:
            self._timer = self._loop.call_at(max(again_at, now + 0.001), self._timer_rings)

    def _timer_rings(self) -> None:
        self._timer = None
        self.wake()

"""Handles Ctrl-C in commands: the first one ends the work in order, the second one at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aioprod.running_loop import start_task

INTERRUPTED = 130
"""The exit status after Ctrl-C: 128 + SIGINT."""

_CANCEL_LIMIT_S = 5.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)

T = TypeVar("T")


class Interrupted(Exception):
    """Ctrl-C interrupted a wait."""


class Interrupt:
    """Ctrl-C (or SIGTERM) as an event of the running loop."""

    def __init__(self, on_second: Callable[[], object] = lambda: None) -> None:
        """``on_second`` is called before a second Ctrl-C ends the process."""
        self._event = asyncio.Event()
        self._on_second = on_second
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            try:
                loop.add_signal_handler(number, self._arrived)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._arrived))

    @property
    def arrived(self) -> bool:
        """True if Ctrl-C was pressed."""
        return self._event.is_set()

    async def wait(self) -> None:
        """Return when Ctrl-C was pressed."""
        await self._event.wait()

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``; on Ctrl-C cancel it and give it five seconds to end.

        Raises:
            Interrupted: if Ctrl-C was pressed first.
        """
        task = start_task(work, name="aioprod-interruptible")
        waiter = start_task(self._event.wait(), name="aioprod-interrupt")
        try:
            await asyncio.wait({task, waiter}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted
        finally:
            waiter.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=_CANCEL_LIMIT_S)

    def _arrived(self) -> None:
        if self._event.is_set():
            self._on_second()
            os._exit(INTERRUPTED)
        self._event.set()

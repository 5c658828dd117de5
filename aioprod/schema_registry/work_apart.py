"""Decodes in a thread if that takes longer than the event loop may be blocked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from aioprod.preparation import NotPrepared
from aioprod.running_loop import start_task
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.threads import in_thread

_MOST_RUNNING = 100


class TakesLong(Exception):
    """Decoding was stopped in the event loop, since it takes more than a few milliseconds."""


class Outcome(NamedTuple):
    """The result of a thread: a value, or an error."""

    value: Any = None
    error: Exception | None = None


class WorkApart:
    """Decoding in threads. A cancelled caller that calls again finds its work in progress."""

    def __init__(self) -> None:
        self._running: BoundedCache[Hashable, asyncio.Future[Outcome]] = BoundedCache(_MOST_RUNNING)

    def __len__(self) -> int:
        return len(self._running)

    def take(self, key: Hashable) -> Outcome | None:
        """Return the outcome for a key, once; None if no thread works on it.

        Raises:
            NotPrepared: if a thread is still working on it.
        """
        future = self._running.get(key)
        if future is None:
            return None
        if not future.done():
            raise NotPrepared(partial(self._wait, key, future))
        self._running.drop(lambda each: each == key)
        return None if future.cancelled() else future.result()

    def start(self, key: Hashable, decode: Callable[[], Any]) -> NotPrepared:
        """Start decoding in a thread, and return the exception to raise meanwhile."""
        return NotPrepared(partial(self._start, key, decode))

    async def _wait(self, key: Hashable, future: asyncio.Future[Outcome]) -> None:
        if future.get_loop() is asyncio.get_running_loop():
            await _ended(future)
        else:  # that event loop may have ended
            self._running.drop(lambda each: each == key)

    async def _start(self, key: Hashable, decode: Callable[[], Any]) -> None:
        future = self._running.get(key)
        if future is None or future.get_loop() is not asyncio.get_running_loop():
            future = start_task(in_thread(partial(_outcome_of, decode)), name="aioprod-decode")
            self._running.put(key, future)
        await _ended(future)


async def _ended(future: asyncio.Future[Outcome]) -> None:
    # It continues if the caller is cancelled.
    await asyncio.wait([future])


def _outcome_of(decode: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(decode())
    except Exception as error:
        return Outcome(error=error.with_traceback(None))

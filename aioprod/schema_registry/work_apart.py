"""Decoding that takes longer than an event loop should wait: a thread does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from aioprod.preparation import NotPrepared
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.threads import in_thread

_MOST_UNDER_WAY = 100


class TakesLong(Exception):
    """Decoding was given up in the event loop, since it takes more than a few milliseconds."""


class Outcome(NamedTuple):
    """What a thread has found: a value, or why there is none."""

    value: Any = None
    error: Exception | None = None


class WorkApart:
    """What threads are decoding. A caller that is cancelled and comes again finds it under way."""

    def __init__(self) -> None:
        self._under_way: BoundedCache[Hashable, asyncio.Future[Outcome]] = BoundedCache(
            _MOST_UNDER_WAY
        )

    def __len__(self) -> int:
        return len(self._under_way)

    def take(self, key: Hashable) -> Outcome | None:
        """Return what was found for a key, once; None if nothing is under way.

        Raises:
            NotPrepared: if a thread is still at it.
        """
        future = self._under_way.get(key)
        if future is None:
            return None
        if not future.done():
            raise NotPrepared(partial(self._wait, key, future))
        self._under_way.drop(lambda each: each == key)
        return None if future.cancelled() else future.result()

    def start(self, key: Hashable, decode: Callable[[], Any]) -> NotPrepared:
        """Return what is to be raised in place of decoding in the event loop."""
        return NotPrepared(partial(self._start, key, decode))

    async def _wait(self, key: Hashable, future: asyncio.Future[Outcome]) -> None:
        if future.get_loop() is asyncio.get_running_loop():
            await _ended(future)
        else:  # that loop may have ended
            self._under_way.drop(lambda each: each == key)

    async def _start(self, key: Hashable, decode: Callable[[], Any]) -> None:
        future = self._under_way.get(key)
        if future is None or future.get_loop() is not asyncio.get_running_loop():
            future = asyncio.ensure_future(in_thread(partial(_outcome_of, decode)))
            self._under_way.put(key, future)
        await _ended(future)


async def _ended(future: asyncio.Future[Outcome]) -> None:
    # A cancelled caller does not end it.
    await asyncio.wait([future])


def _outcome_of(decode: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(decode())
    except Exception as error:
        return Outcome(error=error.with_traceback(None))

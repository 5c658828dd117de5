"""Several ways to the same thing: the first that succeeds, without one that hangs holding up the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aioprod.errors import KafkaError

T = TypeVar("T")

# As for the addresses of one host (RFC 8305).
_HEAD_START_S = 0.25


async def first_to_succeed(ways: Iterable[Callable[[], Coroutine[Any, Any, T]]], errors: list[KafkaError]) -> T | None:
    """The result of the way that succeeds first; None where none does.

    Each has a quarter of a second before the next begins beside it; one that fails lets the next begin at once.

    Args:
        ways: tried in this order.
        errors: gets the errors of those that failed.
    """
    pending: set[asyncio.Task[T]] = set()
    waiting = iter(ways)
    exhausted = False
    try:
        while True:
            way = next(waiting, None)
            if way is None:
                exhausted = True
            else:
                pending.add(asyncio.get_running_loop().create_task(way(), name="aioprod-race"))
            if not pending:
                return None
            done, pending = await asyncio.wait(pending, timeout=None if exhausted else _HEAD_START_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task.cancelled():
                    continue
                error = task.exception()
                if error is None:
                    return task.result()
                if not isinstance(error, KafkaError):
                    raise error
                errors.append(error)
    finally:
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=1)

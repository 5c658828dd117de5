"""Several ways to the same thing: the first that succeeds, without one that hangs holding up the
rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError

T = TypeVar("T")

# As for the addresses of one host (RFC 8305).
_HEAD_START_S = 0.25


async def first_to_succeed(
    ways: Iterable[Callable[[], Coroutine[Any, Any, T]]], errors: list[KafkaError]
) -> T | None:
    """The result of the way that succeeds first; None where none does.

    Each has a quarter of a second before the next begins beside it; one that fails lets the next
    begin at once.

    Args:
        ways: tried in this order.
        errors: gets the errors of those that failed.
    """
    pending: set[asyncio.Task[T]] = set()
    done: set[asyncio.Task[T]] = set()
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
            done, pending = await asyncio.wait(
                pending,
                timeout=None if exhausted else _HEAD_START_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
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
        await _end(pending | done)


async def first_answer(
    first: Coroutine[Any, Any, T],
    ask_another: Callable[[], Coroutine[Any, Any, T]],
    may_ask_another: Callable[[], bool],
    patience_s: float,
) -> T:
    """The first answer to a question that several can be asked: when one keeps silent, another is
    asked beside it.

    Args:
        first: asks the first.
        ask_another: asks one that was not asked yet. BrokerConnectionError and RequestTimedOutError
            mean no answer; whatever else it raises is one.
        may_ask_another: looked at each time that nobody has answered for ``patience_s`` seconds.

    Raises:
        KafkaError: why the last one did not answer, when all that were asked have failed.
    """
    loop = asyncio.get_running_loop()
    pending = {loop.create_task(first, name="aioprod-ask")}
    done: set[asyncio.Task[T]] = set()
    try:
        while True:
            done, pending = await asyncio.wait(
                pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for number, task in enumerate(done, start=1):
                try:
                    return task.result()
                except (BrokerConnectionError, RequestTimedOutError):
                    if not pending and number == len(done):
                        raise
            if not done and may_ask_another():
                pending.add(loop.create_task(ask_another(), name="aioprod-ask"))
    finally:
        await _end(pending | done)


async def _end(tasks: set[asyncio.Task[T]]) -> None:
    """Cancel what still runs. What others came to is of no interest any more; looked at, or asyncio
    would report it.
    """
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=1)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()

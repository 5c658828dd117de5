"""Runs several attempts concurrently and returns the first success, so that a hung attempt does not
delay the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from aioprod.running_loop import start_task

T = TypeVar("T")

# The delay that RFC 8305 recommends between the addresses of a host.
_HEAD_START_S = 0.25


async def first_to_succeed(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, T]]], errors: list[KafkaError]
) -> T | None:
    """Return the result of the first attempt that succeeds, or None if all fail.

    An attempt starts when the previous one has failed, or a quarter of a second after its start.

    Args:
        attempts: started in this order.
        errors: the list to append the errors of failed attempts to.
    """
    pending: set[asyncio.Task[T]] = set()
    done: set[asyncio.Task[T]] = set()
    waiting = iter(attempts)
    exhausted = False
    try:
        while True:
            attempt = next(waiting, None)
            if attempt is None:
                exhausted = True
            else:
                pending.add(start_task(attempt(), name="aioprod-race"))
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
    """Return the first response of several brokers. The request is sent to another broker whenever
    none has responded for ``patience_s`` seconds.

    Args:
        first: sends the request to the first broker.
        ask_another: sends it to a further broker. BrokerConnectionError and RequestTimedOutError
            mean that there was no response; any other error counts as a response, and is raised.
        may_ask_another: called before that; returns whether the request may be sent to another one.

    Raises:
        KafkaError: if all brokers fail; the last error.
    """
    pending = {start_task(first, name="aioprod-ask")}
    done: set[asyncio.Task[T]] = set()
    try:
        while True:
            done, pending = await asyncio.wait(
                pending, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
            )
            for number, task in enumerate(done, start=1):
                try:
                    return result_of(task)
                except (BrokerConnectionError, RequestTimedOutError):
                    if not pending and number == len(done):
                        raise
            if not done and may_ask_another():
                pending.add(start_task(ask_another(), name="aioprod-ask"))
    finally:
        await _end(pending | done)


def result_of(task: asyncio.Task[T]) -> T:
    """Return the result of a completed task.

    Raises:
        BrokerConnectionError: if it was cancelled without its waiter being cancelled.
    """
    if task.cancelled():
        raise BrokerConnectionError(f"the task {task.get_name()} was cancelled from outside")
    return task.result()


async def _end(tasks: set[asyncio.Task[T]]) -> None:
    """Cancel running tasks. Retrieve errors of the others, which asyncio would log otherwise."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=1)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()

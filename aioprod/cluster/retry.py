"""The loop that repeats failed attempts, after a backoff, until a deadline."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from aioprod.net.bounds import TimeLimit
from aioprod.running_loop import running_loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryLimit:
    """The limit on all attempts together, and its name in the error.

    Attributes:
        limit_ms: the limit.
        what: the purpose of the attempts, such as "asking for metadata".
        setting: the setting that has the limit.
        error_type: the type of the error if the limit passes during an attempt.
    """

    limit_ms: float
    what: str
    setting: str
    error_type: type[KafkaTimeoutError] = KafkaTimeoutError


def is_retriable(error: KafkaError) -> bool:
    """Return whether the same request may succeed later, with this broker or another one."""
    if isinstance(error, BrokerError):
        return error.code.retriable
    return not isinstance(error, AuthenticationError | UnsupportedVersionError)


async def retry(
    attempt: Callable[[], Awaitable[T]],
    pause_s: Callable[[int], float],
    *,
    is_retriable: Callable[[KafkaError], bool],
    limit: RetryLimit | None = None,
    deadline: float = math.inf,
    on_failure: Callable[[KafkaError, int], None] | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Make attempts until one succeeds, and return its result.

    Cancelling the caller cancels the attempt or the pause in progress; nothing runs afterwards.

    Args:
        attempt: makes one attempt.
        pause_s: the seconds to wait after this number of failures, such as `Backoff.seconds`.
        is_retriable: whether another attempt may succeed after this error.
        limit: cancels the attempt or pause in progress when its time is over.
        deadline: loop time before which the last attempt begins; attempts are not cancelled then.
        on_failure: called before each pause, with the error and the number of failures.
        sleep: waits for a number of seconds; it may end early or raise.

    Raises:
        KafkaTimeoutError: if ``limit`` passes during an attempt; the cause is the error of the
            attempt before, if any.
        KafkaError: if the last attempt fails, and its error is not retriable or the limit or the
            deadline would pass during the pause.
    """
    loop = running_loop()
    last_error: KafkaError | None = None
    scope: AbstractAsyncContextManager[None] = nullcontext()
    if limit is not None:
        deadline = min(deadline, loop.time() + limit.limit_ms / 1000)
        scope = TimeLimit(
            limit.limit_ms, limit.what, limit.setting, lambda: last_error, limit.error_type
        )
    try:
        async with scope:
            for failures in itertools.count(1):
                try:
                    return await attempt()
                except KafkaError as error:
                    if not is_retriable(error):
                        raise
                    pause = pause_s(failures)
                    if loop.time() + pause >= deadline:
                        raise
                    last_error = error
                    if on_failure is not None:
                        on_failure(error, failures)
                await sleep(pause)
        raise AssertionError("unreachable")
    finally:
        last_error = None  # its traceback refers to this frame

"""Retries failed attempts, after a backoff, until a deadline."""

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
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


class RetryLimit:
    """The time limit on all attempts together, and its name in the error.

    Attributes:
        limit_ms: the limit.
        what: the purpose of the attempts, such as "requesting metadata".
        setting: the setting that has the limit.
        error_type: the type of the error if the limit expires during an attempt.
    """

    __slots__ = ("error_type", "limit_ms", "setting", "what")

    def __init__(
        self,
        limit_ms: float,
        what: str,
        setting: str,
        error_type: type[KafkaTimeoutError] = KafkaTimeoutError,
    ) -> None:
        self.limit_ms: float = limit_ms
        self.what: str = what
        self.setting: str = setting
        self.error_type: type[KafkaTimeoutError] = error_type


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
    """Call ``attempt`` until it succeeds, and return its result.

    Cancelling the caller cancels the current attempt or pause; no task is left running.

    Args:
        attempt: makes one attempt.
        pause_s: the seconds to wait after this number of failures, such as `Backoff.seconds`.
        is_retriable: whether another attempt may succeed after this error.
        limit: when it expires, the current attempt or pause is cancelled.
        deadline: loop time after which no attempt begins; a running attempt is not cancelled.
        on_failure: called before each pause, with the error and the number of failures.
        sleep: waits for a number of seconds; it may end early or raise.

    Raises:
        KafkaTimeoutError: if ``limit`` expires during an attempt; the cause is the error of the
            previous attempt, if any.
        KafkaError: if an attempt fails and its error is not retriable, or the limit or the deadline
            would expire during the pause.
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

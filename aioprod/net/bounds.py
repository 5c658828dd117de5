"""Bounds on values that brokers send, and the time limit on a call that waits for brokers.

Brokers send pauses, intervals, session lifetimes and sizes. Each value is clamped: a faulty or
hostile server can't stop a client for days, make it flood the network, or fill its memory before
the login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from aioprod.errors import KafkaError, KafkaTimeoutError

#: Longest pause for ``throttle_time_ms`` (KIP-219). Equal to the default of
#: ``default.api.timeout.ms``, as no call waits for longer.
MAX_THROTTLE_MS = 60_000
#: Largest reply. Brokers respect ``fetch.max.bytes``, 55 MB by default, so more is not valid.
MAX_REPLY_BYTES = 512 * 1024 * 1024
#: Largest reply before the login is complete. Valid replies (ApiVersions, SaslHandshake,
#: SaslAuthenticate) take a few KiB.
MAX_REPLY_BYTES_BEFORE_LOGIN = 1024 * 1024
#: Bounds of the pause between two logins on one connection (``session_lifetime_ms``, KIP-368).
MIN_SESSION_MS, MAX_SESSION_MS = 100, 24 * 60 * 60 * 1000
#: Bounds of the pause between two heartbeats (``heartbeat_interval_ms``, KIP-848). Brokers allow 5
#: to 15 seconds by default.
MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS = 100, 60_000
#: Bounds of the time for which records of a share group are locked (KIP-932). Brokers allow 15 to
#: 60 seconds by default, and at most an hour.
MIN_LOCK_MS, MAX_LOCK_MS = 1_000, 60 * 60 * 1000
#: Bounds of the pause between two pushes of metrics (``push_interval_ms``, KIP-714): those of
#: Kafka's ``interval.ms``.
MIN_PUSH_INTERVAL_MS, MAX_PUSH_INTERVAL_MS = 100, 60 * 60 * 1000


def bounded(asked_ms: int, shortest_ms: int, longest_ms: int) -> float:
    """Clamp milliseconds that a broker sent, and return them as seconds."""
    return min(max(asked_ms, shortest_ms), longest_ms) / 1000


class TimeLimit(AbstractAsyncContextManager[None]):
    """Cancels its ``async with`` block after ``limit_ms``.

    Not an asynchronous generator: the event loop tracks those until they are freed, so the steps of
    a simulation would depend on the garbage collector.

    Args:
        what, setting: describe the call and its limit in the error.
        trouble: returns the last problem, which the error mentions.

    Raises:
        KafkaTimeoutError: when the block ends, if the limit has expired. The type is
            ``error_type``.
    """

    def __init__(
        self,
        limit_ms: float,
        what: str,
        setting: str,
        trouble: Callable[[], KafkaError | None] = lambda: None,
        error_type: type[KafkaTimeoutError] = KafkaTimeoutError,
    ) -> None:
        self._limit_ms = limit_ms
        self._name = what, setting
        self._trouble = trouble
        self._error_type = error_type
        self._scope = asyncio.timeout(limit_ms / 1000)

    async def __aenter__(self) -> None:
        await self._scope.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError:  # of this limit, not raised by the block itself
            cause = self._trouble()
            what, setting = self._name
            why = f"; the last problem: {cause}" if cause is not None else ""
            text = f"{what}: not done within {setting}={self._limit_ms:.0f}{why}"
            raise self._error_type(text) from cause

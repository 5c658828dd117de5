"""Bounds on what a broker may ask of a client, and the limit on a call that waits for brokers.

A broker names pauses, intervals, session lifetimes and sizes. Each is taken within bounds: a faulty
or hostile server can neither stop a client for days nor have it flood the network, nor fill its
memory before the login.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aioprod.errors import KafkaError, KafkaTimeoutError

#: Longest pause that is kept for ``throttle_time_ms`` (KIP-219). Kafka's
#: ``default.api.timeout.ms``: no call waits longer by default.
MAX_THROTTLE_MS = 60_000
#: Largest reply. A broker keeps to ``fetch.max.bytes``, 55 MB by default; more can only be garbage.
MAX_REPLY_BYTES = 512 * 1024 * 1024
#: Largest reply before the login is complete. Real ones (ApiVersions, SaslHandshake,
#: SaslAuthenticate) have a few KiB.
MAX_REPLY_BYTES_BEFORE_LOGIN = 1024 * 1024
#: Bounds of the pause between two logins on one connection (``session_lifetime_ms``, KIP-368).
MIN_SESSION_MS, MAX_SESSION_MS = 100, 24 * 60 * 60 * 1000
#: Bounds of the pause between two heartbeats (``heartbeat_interval_ms``, KIP-848). Brokers allow 5
#: to 15 seconds by default.
MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS = 100, 60_000


def bounded(asked_ms: int, shortest_ms: int, longest_ms: int) -> float:
    """The seconds that a broker asks for in milliseconds, at least and at most so many."""
    return min(max(asked_ms, shortest_ms), longest_ms) / 1000


@asynccontextmanager
async def time_limit(
    limit_ms: float,
    what: str,
    setting: str,
    trouble: Callable[[], KafkaError | None] = lambda: None,
    error_type: type[KafkaTimeoutError] = KafkaTimeoutError,
) -> AsyncIterator[None]:
    """End what is in the ``async with`` block after ``limit_ms``.

    Args:
        what, setting: name the call and its limit in the error.
        trouble: tells what did not work last, for the error.

    Raises:
        KafkaTimeoutError: the limit has passed; of type ``error_type``.
    """
    try:
        async with asyncio.timeout(limit_ms / 1000) as scope:
            yield
    except TimeoutError as error:
        if isinstance(error, KafkaError) or not scope.expired():
            raise
        cause = trouble()
        why = f"; the last problem: {cause}" if cause is not None else ""
        raise error_type(f"{what}: not done within {setting}={limit_ms:.0f}{why}") from cause

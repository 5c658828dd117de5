"""Decides how long a read of one partition, or a lookup of offsets, is tried again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aioprod.cluster.client import ClusterClient
from aioprod.cluster.retry import RetryLimit, retry
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    BrokerConnectionError,
    BrokerError,
    KafkaError,
    RequestTimedOutError,
    TopicRecreatedError,
)
from aioprod.net.backoff import Backoff

T = TypeVar("T")

LIMIT_NAME = "default.api.timeout.ms"
# Some brokers do not know a new topic yet; a missing topic fails earlier than the whole limit.
UNKNOWN_TOPIC_LIMIT_S = 5.0
_UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID


class Patience:
    """The time for which errors and empty responses without progress are accepted."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._since: float | None = None

    def reset(self) -> None:
        """Note progress."""
        self._since = None

    def exhausted(self) -> bool:
        """Return whether the limit has passed since the first call after progress."""
        return self._elapsed_s() >= self.limit_s

    def is_retriable(self, error: KafkaError) -> bool:
        """Return whether another attempt may succeed before the limit."""
        unknown = isinstance(error, TopicRecreatedError) or (
            isinstance(error, BrokerError) and error.code in _UNKNOWN_TOPIC
        )
        limit_s = min(self.limit_s, UNKNOWN_TOPIC_LIMIT_S) if unknown else self.limit_s
        return self._elapsed_s() < limit_s and _retriable(error)

    def _elapsed_s(self) -> float:
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        return now - self._since


async def retry_lookup(
    client: ClusterClient, attempt: Callable[[], Awaitable[T]], limit_s: float, what: str
) -> T:
    """Repeat a lookup until it succeeds, or ``limit_s`` has passed."""
    return await retry(
        attempt,
        backoff_of(client).seconds,
        is_retriable=Patience(limit_s).is_retriable,
        limit=RetryLimit(limit_s * 1000, what, LIMIT_NAME, RequestTimedOutError),
    )


def backoff_of(client: ClusterClient) -> Backoff:
    """Return the pauses between attempts that the client's settings ask for."""
    config = client.config
    return Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, random.Random())


def _retriable(error: KafkaError) -> bool:
    if isinstance(error, BrokerError):
        return error.code is not ErrorCode.OFFSET_OUT_OF_RANGE and (
            error.code.retriable or error.code.refresh_metadata
        )
    # A broker with old metadata may have named the deleted topic.
    return isinstance(error, BrokerConnectionError | RequestTimedOutError | TopicRecreatedError)

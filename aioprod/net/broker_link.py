"""The state of the connection to one broker, and the earliest time of the next attempt."""

from __future__ import annotations

import asyncio
import random

from aioprod.config import ClientConfig
from aioprod.errors import AuthenticationError, KafkaError
from aioprod.net.backoff import Backoff
from aioprod.net.connection import Connection


class BrokerLink:
    """The connection to one address, or the reason why there is none.

    Attributes:
        connecting: the task that opens the connection.
        failures: number of attempts that failed since the last success.
        retry_at: loop time before which no attempt is made.
    """

    __slots__ = ("connecting", "connection", "failures", "last_error", "retry_at")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[Connection] | None = None
        self.failures: int = 0
        self.retry_at: float = 0.0
        self.last_error: KafkaError | None = None


class ReconnectBackoff:
    """Pauses between attempts to connect (reconnect.backoff.ms)."""

    def __init__(self, config: ClientConfig, rng: random.Random) -> None:
        self._backoff = Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms, rng)
        self._max_s = config.reconnect_backoff_max_ms / 1000

    def seconds(self, error: KafkaError | None, failures: int) -> float:
        """Return the pause after this number of failures; ``error`` is that of the last one."""
        if isinstance(error, AuthenticationError):
            return self._max_s  # frequent attempts with wrong credentials may lock the account
        return self._backoff.seconds(failures)

    def note_failure(self, link: BrokerLink, failures: int, error: KafkaError | None) -> None:
        """Delay the next attempt by the backoff."""
        link.failures = failures
        link.last_error = error
        link.retry_at = asyncio.get_running_loop().time() + self.seconds(error, failures)

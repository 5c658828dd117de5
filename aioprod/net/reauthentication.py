"""Authenticates on a new connection, and again before the session expires (KIP-368)."""

from __future__ import annotations

import asyncio
import random

from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.net.authentication import authenticate, new_mechanism
from aioprod.net.bounds import MAX_SESSION_MS, MIN_SESSION_MS, bounded
from aioprod.net.connection import Connection
from aioprod.net.failures import unforeseen
from aioprod.protocol.sasl.mechanism import ClientMechanism
from aioprod.running_loop import start_task

log: Logger = get_logger(__name__)

# Fractions of the session's lifetime after which to authenticate again: late enough to be rare,
# early enough for a slow token provider, random so that clients do not do it at the same moment.
_EARLIEST, _LATEST = 0.85, 0.95


class Reauthentication:
    """Renews the session of a connection while it is used or needed. Closes a connection that was
    idle for a whole session.

    Args:
        rng: source of jitter.
        host: the host that the client connects to.

    Attributes:
        due: loop time of the next authentication; 0 if the session does not expire.
        task: the current or last login.
    """

    def __init__(self, config: ClientConfig, rng: random.Random, host: str) -> None:
        self._config = config
        self._host = host
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.task: asyncio.Task[None] | None = None
        self.due: float = 0.0
        self._ends_at = 0.0
        self._used_until = 0.0

    async def log_in(self, connection: Connection) -> None:
        """Authenticate on a new connection, and schedule the renewal of its session.

        Raises:
            AuthenticationError: if the broker, or the token provider, refuses the credentials.
            KafkaError: if the connection is closed, or no Kerberos server responds.
        """
        mechanism = await new_mechanism(self._config, self._host)
        lifetime_ms = await authenticate(connection, mechanism, self._config.request_timeout_ms)
        self.schedule(connection, lifetime_ms)

    def schedule(self, connection: Connection, lifetime_ms: int) -> None:
        """Schedule the renewal of a connection's session before it expires.

        Requests are deferred during the authentication, and sent afterwards in their order.

        Args:
            lifetime_ms: lifetime of the session that begins now, in milliseconds, which is clamped
                to ``MIN_SESSION_MS`` and ``MAX_SESSION_MS``; 0 if it does not expire.
        """
        if lifetime_ms <= 0:
            return
        now = self._loop.time()
        lifetime_s = bounded(lifetime_ms, MIN_SESSION_MS, MAX_SESSION_MS)
        self._ends_at = now + lifetime_s
        self._used_until = connection.idle.used_at
        self.due = now + lifetime_s * self._rng.uniform(_EARLIEST, _LATEST)
        self._timer = self._loop.call_at(self.due, self._begin, connection)

    def cancel(self) -> None:
        """Stop, as the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None and self.task is not asyncio.current_task(self._loop):
            self.task.cancel()

    async def ended(self) -> None:
        """Wait until the task has ended, for a second at most."""
        if self.task is not None:
            await asyncio.wait([self.task], timeout=1)

    def _begin(self, connection: Connection) -> None:
        idle = connection.idle
        unused = idle.used_at <= self._used_until and not connection.in_flight
        if unused and not idle.is_needed():
            connection.abort(
                BrokerConnectionError(
                    f"{connection.address}: idle for a whole session "
                    "(connections.max.reauth.ms of the broker)"
                )
            )
            return
        self.task = start_task(
            self._renew(connection), name=f"aioprod-reauthenticate-{connection.address}"
        )

    async def _renew(self, connection: Connection) -> None:
        error: KafkaError | None = BrokerConnectionError(
            f"{connection.address}: the login to renew the session was interrupted"
        )
        try:
            mechanism = await self._prepare(connection.address)
            connection.defer()
            await connection.all_replied()
            lifetime_ms = await authenticate(connection, mechanism, self._config.request_timeout_ms)
            error = None
        except Exception as failure:
            error = unforeseen(connection.address, failure)
        finally:
            # Even if this task was cancelled from outside: deferred requests must not wait forever.
            if error is not None:
                connection.abort(error)
        if error is None:
            self.schedule(connection, lifetime_ms)
            connection.resume()

    async def _prepare(self, address: str) -> ClientMechanism:
        """Prepare the login while requests are still sent. Failures of the token provider or the
        Kerberos server are retried until the session expires.
        """
        pause = self._config.reconnect_backoff_max_ms / 1000
        failures = 0
        while True:
            try:
                return await new_mechanism(self._config, self._host)
            except (AuthenticationError, BrokerConnectionError) as error:
                failures += 1
                if self._loop.time() + pause >= self._ends_at:
                    raise
                if failures == 1:
                    who = self._config.client_id
                    text = "%s: %s: %s; retrying until the session expires"
                    log.warning(text, who, address, error)
            await asyncio.sleep(pause)

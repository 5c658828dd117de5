"""Authenticates again on a live connection, before the broker ends the session (KIP-368)."""

from __future__ import annotations

import asyncio
import random

from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.logs import get_logger
from aioprod.net.authentication import authenticate, new_mechanism
from aioprod.net.bounds import MAX_SESSION_MS, MIN_SESSION_MS, bounded
from aioprod.net.connection import Connection
from aioprod.net.failures import unforeseen
from aioprod.protocol.sasl.mechanism import ClientMechanism

log = get_logger(__name__)

# When to log in, as parts of the session's lifetime: late enough to be rare, early enough for a
# slow token provider, and not at the same moment for all clients.
_EARLIEST, _LATEST = 0.85, 0.95


class Reauthentication:
    """Renews the session of one connection while it is used or needed; closes the connection if it
    was idle for a whole session.

    Args:
        rng: source of jitter.
        host: to which the client connects.

    Attributes:
        due: loop time of the next login; 0 if the session does not expire.
        task: the current or last login.
    """

    def __init__(self, config: ClientConfig, rng: random.Random, host: str) -> None:
        self._config = config
        self._host = host
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.task: asyncio.Task[None] | None = None
        self.due = 0.0
        self._ends_at = 0.0
        self._used_until = 0.0

    def schedule(self, connection: Connection, lifetime_ms: int) -> None:
        """Renew the session of a connection before it ends.

        Requests that are sent during the login are deferred, and sent afterwards in their order.

        Args:
            lifetime_ms: of the session that begins now, in milliseconds; used within the bounds
                ``MIN_SESSION_MS`` and ``MAX_SESSION_MS``. 0: it does not expire.
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
        """Stop: the connection is over."""
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
        self.task = self._loop.create_task(
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
            # If this task was cancelled from outside, too: deferred requests must not wait forever.
            if error is not None:
                connection.abort(error)
        if error is None:
            self.schedule(connection, lifetime_ms)
            connection.resume()

    async def _prepare(self, address: str) -> ClientMechanism:
        """Prepare the login while requests are still sent. A token provider or a Kerberos server
        that fails is asked again until the session ends.
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
                    log.warning("%s: %s; retrying until the session ends", address, error)
            await asyncio.sleep(pause)

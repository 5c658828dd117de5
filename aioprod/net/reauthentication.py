"""Logging in again on a live connection, before the broker ends the session (KIP-368)."""

from __future__ import annotations

import asyncio
import logging
import random

from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.net.authentication import authenticate, new_mechanism
from aioprod.net.bounds import MAX_SESSION_MS, MIN_SESSION_MS, bounded
from aioprod.net.connection import Connection
from aioprod.net.failures import unforeseen
from aioprod.protocol.sasl.mechanism import ClientMechanism

log = logging.getLogger(__name__)

# When in the session, as parts of it: late enough to be rare, early enough for a slow token
# provider, and not all clients at once.
_EARLIEST, _LATEST = 0.85, 0.95


class Reauthentication:
    """Renews the session of one connection for as long as it is used; one that was idle for a whole
    session is closed.

    Args:
        connection: authenticated; requests sent meanwhile are held and go out afterwards, in their
            order.
        rng: chooses the moment.

    Attributes:
        due: loop time of the next login.
        task: the login that is under way or was the last.
    """

    def __init__(self, connection: Connection, config: ClientConfig, rng: random.Random) -> None:
        self._connection = connection
        self._config = config
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.due = 0.0
        self._ends_at = 0.0
        self._used_until = 0.0

    def schedule(self, lifetime_ms: int) -> None:
        """A session of this length begins now; it is taken as no shorter and no longer than the
        bounds allow.
        """
        now = self._loop.time()
        lifetime_s = bounded(lifetime_ms, MIN_SESSION_MS, MAX_SESSION_MS)
        self._ends_at = now + lifetime_s
        self._used_until = self._connection.last_used
        self.due = now + lifetime_s * self._rng.uniform(_EARLIEST, _LATEST)
        self._timer = self._loop.call_at(self.due, self._begin)

    def cancel(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
        if self.task is not None and self.task is not asyncio.current_task(self._loop):
            self.task.cancel()

    async def ended(self) -> None:
        """Wait until nothing runs any more."""
        if self.task is not None:
            await asyncio.wait([self.task], timeout=1)

    def _begin(self) -> None:
        connection = self._connection
        if connection.last_used <= self._used_until and not connection.in_flight:
            connection.abort(
                BrokerConnectionError(
                    f"{connection.address}: idle for a whole session "
                    "(connections.max.reauth.ms of the broker)"
                )
            )
            return
        self.task = self._loop.create_task(
            self._renew(), name=f"aioprod-reauthenticate-{connection.address}"
        )

    async def _renew(self) -> None:
        connection = self._connection
        error: KafkaError | None = BrokerConnectionError(
            f"{connection.address}: authenticating again was interrupted"
        )
        try:
            mechanism = await self._prepare()
            connection.hold()
            await connection.all_answered()
            lifetime_ms = await authenticate(connection, mechanism, self._config.request_timeout_ms)
            error = None
        except Exception as failure:
            error = unforeseen(connection.address, failure)
        finally:
            # Cancelled from outside, too: nobody may wait for what is held and never sent.
            if error is not None:
                connection.abort(error)
        if error is None:
            if lifetime_ms > 0:
                self.schedule(lifetime_ms)
            connection.release()

    async def _prepare(self) -> ClientMechanism:
        """Get what it takes while requests still go out; a token provider that fails is asked again
        while the session lasts.
        """
        pause = self._config.reconnect_backoff_max_ms / 1000
        failures = 0
        while True:
            try:
                return await new_mechanism(self._config)
            except AuthenticationError as error:
                failures += 1
                if self._loop.time() + pause >= self._ends_at:
                    raise
                if failures == 1:
                    log.warning(
                        "%s: %s; asking again until the session ends",
                        self._connection.address,
                        error,
                    )
            await asyncio.sleep(pause)

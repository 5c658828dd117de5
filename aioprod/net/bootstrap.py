"""Connects to the bootstrap servers. At most one connection is open at a time."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from aioprod.config.addresses import split_address
from aioprod.config.client import ClientConfig
from aioprod.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioprod.net.broker_link import BrokerLink, ReconnectBackoff
from aioprod.net.connection import Connection
from aioprod.net.handshake import connect
from aioprod.net.versions import AcceptedVersions

#: Stands for the node id of a bootstrap server, which is unknown.
BOOTSTRAP_NODE_ID = -1

ConnectionCallback = Callable[[int, str, bool, KafkaError | None], None]
Attempt = Callable[[], Coroutine[Any, Any, Connection]]
"""Connects to one address."""


class BootstrapServers:
    """Connects to the bootstrap servers, and keeps one connection open.

    Args:
        config: addresses, timeouts and credentials.
        rng: source of the random order of addresses.
        backoff: the pauses between attempts at one address.
        on_connection, on_silence, accepted: see :class:`aioprod.net.brokers.Brokers`.

    Attributes:
        connection: the open connection, if any.
    """

    def __init__(
        self,
        config: ClientConfig,
        rng: random.Random,
        backoff: ReconnectBackoff,
        on_connection: ConnectionCallback,
        on_silence: Callable[[], object],
        accepted: AcceptedVersions,
    ) -> None:
        self.connection: Connection | None = None
        self._config = config
        self._rng = rng
        self._backoff = backoff
        self._on_connection = on_connection
        self._on_silence = on_silence
        self._accepted = accepted
        self._links: dict[tuple[str, int], BrokerLink] = {}
        self._refusal: AuthenticationError | None = None
        self._refused_until = 0.0
        self._closed = False

    def open(self) -> None:
        """Allow connections. Called at the start, and again after :meth:`end`."""
        self._closed = False

    @property
    def refusal(self) -> AuthenticationError | None:
        """Error if all servers refuse this client; None once the next attempt is due."""
        return self._refusal if asyncio.get_running_loop().time() < self._refused_until else None

    def refused(self, error: AuthenticationError) -> None:
        """Make no attempt until the backoff has passed, as no server accepts this client."""
        self._refusal = error
        pause = self._backoff.seconds(error, 1)
        self._refused_until = asyncio.get_running_loop().time() + pause

    async def attempts(self) -> list[Attempt]:
        """Return a function for each address that connects to it. The order is random, but
        addresses whose last connection failed or ended come last.
        """
        addresses = await bootstrap_addresses(self._config)
        self._rng.shuffle(addresses)
        links = self._links
        addresses.sort(key=lambda each: links[each].failures if each in links else 0)
        return [partial(self._connect, host, port) for host, port in addresses]

    async def _connect(self, host: str, port: int) -> Connection:
        link = self._links.setdefault((host, port), BrokerLink())
        await asyncio.sleep(max(0.0, link.retry_at - asyncio.get_running_loop().time()))
        try:
            connection = await connect(
                host,
                port,
                self._config,
                self._rng,
                accepted=self._accepted,
                failures=link.failures,
                on_closed=partial(self._connection_closed, link),
                on_silence=partial(self._connection_silent, link),
            )
        except KafkaError as error:
            self._backoff.note_failure(link, link.failures + 1, error)
            raise
        link.failures = 0
        if self._closed:
            await connection.close()
            raise BrokerConnectionError("the client is closed")
        if (old := self.connection) is not None:
            if not old.silent:
                await connection.close()
                return old
            old.abort(
                BrokerConnectionError(f"{old.address}: silent, and {connection.address} answers")
            )
        self.connection = link.connection = connection
        connection.close_when_idle(self._config.connections_max_idle_ms)
        self._on_connection(BOOTSTRAP_NODE_ID, connection.address, True, None)
        return connection

    def _connection_closed(self, link: BrokerLink, connection: Connection) -> None:
        if link.connection is not connection:
            return  # its handshake failed, or another connection was open already
        self.connection = link.connection = None
        self._backoff.note_failure(link, max(link.failures, 1), connection.error)
        self._on_connection(BOOTSTRAP_NODE_ID, connection.address, False, connection.error)

    def _connection_silent(self, link: BrokerLink) -> None:
        if link.connection is not None:
            self._on_silence()

    def abort(self, reason: str) -> None:
        """Close the connection at once."""
        if self.connection is not None:
            self.connection.abort(BrokerConnectionError(f"{self.connection.address}: {reason}"))

    async def close_unused(self) -> None:
        """Close the connection unless a request is in flight."""
        if self.connection is not None and not self.connection.in_flight:
            await self.connection.close()

    def end(self) -> None:
        """Close the connection at once, and allow no further ones."""
        self._closed = True
        self.abort("closed by this client")


async def bootstrap_addresses(config: ClientConfig) -> list[tuple[str, int]]:
    """Return hosts and ports of the bootstrap servers.

    With ``client_dns_lookup="resolve_canonical_bootstrap_servers_only"``, a host name is
    replaced by the canonical names of its addresses.
    """
    given = [split_address(address) for address in config.bootstrap_servers]
    if config.client_dns_lookup == "use_all_dns_ips":
        return given  # connecting tries all addresses of a host name
    found: dict[tuple[str, int], None] = {}
    for host, port in given:
        for name in await _canonical_names(host, port):
            found[name, port] = None
    return list(found)


async def _canonical_names(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [
            (await loop.getnameinfo((str(address[0]), port), socket.NI_NUMERICSERV))[0]
            for *_, address in addresses
        ]
    except Exception:
        return [host]  # connecting to it raises an error with the reason

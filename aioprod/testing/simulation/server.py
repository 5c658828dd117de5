"""A listening port in the simulated network."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Callable

from aioprod.testing.simulation.transports import SimulatedTransport


class SimulatedSocket:
    """What remains of a socket where there is none: its address. Its family is none that a real
    socket could have.
    """

    family = socket.AF_UNSPEC
    type = socket.SOCK_STREAM

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """Host and port."""
        return self._address


class SimulatedServer(asyncio.AbstractServer):
    """What ``create_server`` of a simulated loop returns.

    Attributes:
        context: of whoever made it: what it starts has nothing of its clients' context.
        connections: the transports of those who are connected.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        address: tuple[str, int],
        tls: ssl.SSLContext | None,
        on_close: Callable[[SimulatedServer], None],
    ) -> None:
        self.protocol_factory = protocol_factory
        self.address = address
        self.tls = tls
        self.context = contextvars.copy_context()
        self.connections: dict[SimulatedTransport, None] = {}
        self._loop = loop
        self._on_close = on_close
        self._serving = False
        self._open = True
        self._waiters: list[asyncio.Future[None]] = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        """One that knows its address, until the server is closed."""
        return (SimulatedSocket(self.address),) if self._open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that made it."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it takes connections."""
        return self._serving

    async def start_serving(self) -> None:
        """Take connections."""
        self.begin()

    def begin(self) -> None:
        """Take connections."""
        self._serving = self._open

    async def serve_forever(self) -> None:
        """Take connections until this is cancelled."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if not self._open:
            raise RuntimeError(f"server {self!r} is closed")
        self.begin()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def close(self) -> None:
        """Take no more connections; those that there are go on."""
        if self._open:
            self._open = self._serving = False
            self._on_close(self)
            if self._forever is not None and not self._forever.done():
                self._forever.cancel()
            self._wake()

    def close_clients(self) -> None:
        """Close all connections, when what is to be sent is sent."""
        for transport in list(self.connections):
            transport.close()

    def abort_clients(self) -> None:
        """Close all connections at once."""
        for transport in list(self.connections):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until it is closed and its last connection is over."""
        if self._open or self.connections:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def disconnected(self, transport: SimulatedTransport) -> None:
        """A connection is over."""
        self.connections.pop(transport, None)
        self._wake()

    def _wake(self) -> None:
        if not self._open and not self.connections:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

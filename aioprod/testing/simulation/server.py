"""A listening port in the simulated network."""

from __future__ import annotations

import asyncio
import contextvars
import socket
import ssl
from collections.abc import Callable

from aioprod.testing.simulation.transports import SimulatedTransport


class SimulatedSocket:
    """The address of a server, as ``server.sockets`` returns it. No real socket has its family."""

    family = socket.AF_UNSPEC
    type = socket.SOCK_STREAM

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """Return host and port."""
        return self._address


class SimulatedServer(asyncio.AbstractServer):
    """The server that ``create_server`` of a simulated loop returns.

    Attributes:
        context: the context in which the server was created and in which it handles connections.
        connections: the transports of all open connections.
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
        self.context: contextvars.Context = contextvars.copy_context()
        self.connections: dict[SimulatedTransport, None] = {}
        self._loop = loop
        self._on_close = on_close
        self._serving = False
        self._open = True
        self._waiters: list[asyncio.Future[None]] = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[SimulatedSocket, ...]:
        """A socket-like object with the address; empty once the server is closed."""
        return (SimulatedSocket(self.address),) if self._open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether the server accepts connections."""
        return self._serving

    async def start_serving(self) -> None:
        """Accept connections."""
        self.listen()

    def listen(self) -> None:
        """Accept connections."""
        self._serving = self._open

    async def serve_forever(self) -> None:
        """Accept connections until this call is cancelled."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if not self._open:
            raise RuntimeError(f"server {self!r} is closed")
        self.listen()
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
        """Stop listening; open connections stay open."""
        if self._open:
            self._open = self._serving = False
            self._on_close(self)
            if self._forever is not None and not self._forever.done():
                self._forever.cancel()
            self._wake_waiters()

    def close_clients(self) -> None:
        """Close all connections once their buffered data is sent."""
        for transport in list(self.connections):
            transport.close()

    def abort_clients(self) -> None:
        """Close all connections immediately."""
        for transport in list(self.connections):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server and all of its connections are closed."""
        if self._open or self.connections:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def remove(self, transport: SimulatedTransport) -> None:
        """Remove a closed connection."""
        self.connections.pop(transport, None)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        if not self._open and not self.connections:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

"""The asyncio transport of one end of a simulated connection."""

from __future__ import annotations

import asyncio
import errno
import ssl
from asyncio import sslproto
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any

from aioprod.testing.simulation.pipes import ControlPacket, Pipe, PipeEnd

_HIGH_WATER_BYTES = 64 * 1024  # asyncio's default


class SimulatedTransport(asyncio.Transport, PipeEnd):
    """One end of a connection, as a protocol sees it.

    Attributes:
        context: the context in which the protocol is called; separate from the other end's.
        lost: the connection is closed; ``connection_lost`` was called or is scheduled.
        on_connect: called when a connection arrives at the server.
        on_lost: called when the connection is closed.
    """

    _start_tls_compatible = True  # asyncio requires it

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outgoing: Pipe,
        incoming: Pipe,
        extra: dict[str, Any],
        context: Context | None = None,
    ) -> None:
        super().__init__(extra)
        self.context: Context = copy_context() if context is None else context.copy()
        self.lost: bool = False
        self.on_connect: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._loop = loop
        self._outgoing = outgoing
        self._incoming = incoming
        self._paused = True
        self._closing = self._eof_written = self._full = False
        self._protocol: Any = asyncio.Protocol()
        self._fills_buffers = False
        self.set_write_buffer_limits()
        outgoing.sender = incoming.receiver = self

    def take_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Start a protocol on this connection.

        Raises:
            ConnectionResetError: if the connection is closed already.
        """
        if self.lost:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self.resume_reading()

    # -- reading -----------------------------------------------------------------------------------

    @property
    def accepts_data(self) -> bool:
        """True if data may be delivered now."""
        return not (self._paused or self._closing)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Deliver further data to another protocol."""
        self._protocol = protocol
        self._fills_buffers = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that data is delivered to."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_reading(self) -> bool:
        """True if data may be delivered now."""
        return self.accepts_data

    def pause_reading(self) -> None:
        """Stop delivering data."""
        self._paused = True

    def resume_reading(self) -> None:
        """Deliver data again."""
        if self._paused and not self._closing:
            self._paused = False
            self._incoming.schedule_delivery()

    def data_received(self, data: bytes) -> None:
        """Deliver data to the protocol; close the connection if it raises."""
        try:
            if self._fills_buffers:
                self._fill_buffers(data)
            else:
                self._protocol.data_received(data)
        except Exception as error:
            self._fail(error)

    def _fill_buffers(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._closing:
            if self._paused:
                self._incoming.put_back(bytes(rest))
                return
            # Release the buffer before the next call, as the protocol may resize it.
            with memoryview(self._protocol.get_buffer(len(rest))).cast("B") as buffer:
                taken = min(len(buffer), len(rest))
                buffer[:taken] = rest[:taken]
            self._protocol.buffer_updated(taken)
            rest = rest[taken:]

    def control_packet_received(self, packet: ControlPacket) -> None:
        """Handle a new connection, the end of the stream, or a reset."""
        if self.lost:
            return
        if packet is ControlPacket.RST:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif packet is ControlPacket.FIN:
            self._fin_received()
        elif self.on_connect is not None:
            self.on_connect()

    def _fin_received(self) -> None:
        try:
            stays_open = self._protocol.eof_received()
        except Exception as error:
            self._fail(error)
            return
        if not stays_open:
            self.close()

    def _fail(self, error: Exception) -> None:
        self._loop.call_exception_handler(
            {
                "message": "Fatal error: protocol.data_received() call failed.",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._force_close(error)

    def _force_close(self, error: BaseException | None) -> None:  # called by asyncio's TLS
        self._outgoing.reset()
        self._lose(error)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data; buffer the part that the connection does not accept yet."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        self._outgoing.send(bytes(data))
        if not self._full and self._outgoing.unsent_bytes > self._high_water:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces in one write."""
        self.write(b"".join(list_of_data))

    def window_updated(self) -> None:
        """Resume the protocol, or close, once the buffer is small enough or empty."""
        unsent = self._outgoing.unsent_bytes
        if self._full and unsent <= self._low_water and not self.lost:
            self._full = False
            self._protocol.resume_writing()
        if not unsent and (self._closing or self._eof_written):
            self._outgoing.send_fin()
            if self._closing:
                self._lose(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits in bytes, as in asyncio."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the connection has not accepted yet."""
        return self._outgoing.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the lower and the upper limit in bytes."""
        return self._low_water, self._high_water

    def can_write_eof(self) -> bool:
        """Return True: a connection can be closed in one direction."""
        return True

    def write_eof(self) -> None:
        """End the outgoing stream; continue reading."""
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self.window_updated()

    # -- the end -----------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._closing

    def close(self) -> None:
        """Close once all buffered data is sent."""
        if not self._closing:
            self._closing = True
            self.window_updated()

    def refuse(self) -> None:
        """Close immediately with a reset."""
        self._force_close(None)

    def abort(self) -> None:
        """Close immediately; drop buffered data."""
        if not self.lost:
            self._outgoing.drop_unsent()
            self._outgoing.send_fin()
            self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self.lost:
            return
        self.lost = self._closing = True
        self._outgoing.drop_unsent()
        self._loop.call_soon(self._connection_lost, error, context=self.context)

    def _connection_lost(self, error: BaseException | None) -> None:
        self._incoming.schedule_delivery()
        if self.on_lost is not None:
            self.on_lost()
        self._protocol.connection_lost(error)


def make_tls_protocol(
    loop: asyncio.AbstractEventLoop,
    protocol: asyncio.BaseProtocol,
    tls: ssl.SSLContext,
    ready: asyncio.Future[None] | None,
    server_hostname: str | None,
) -> sslproto.SSLProtocol:
    """Return a protocol that adds asyncio's TLS to another one; the server's side if there is no
    host name.
    """
    return sslproto.SSLProtocol(
        loop,
        protocol,
        tls,
        ready,  # type: ignore[arg-type]
        server_side=server_hostname is None,
        server_hostname=server_hostname,
    )

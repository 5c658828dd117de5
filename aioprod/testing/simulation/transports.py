"""One end of a connection in memory, as asyncio's protocols know it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any

from aioprod.testing.simulation.pipes import End, Mark, Pipe

_HIGH_WATER_BYTES = 64 * 1024  # asyncio's own


class SimulatedTransport(asyncio.Transport, End):
    """One end of a connection, as a protocol sees it.

    Attributes:
        context: in which the protocol is called; it has nothing of the other end's.
        lost: the protocol has been told that the connection is over, or is about to be.
        on_hello: called when the connection arrives at the end that listens.
        on_lost: called when the connection is over.
    """

    _start_tls_compatible = True  # asyncio looks for it

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        outgoing: Pipe,
        incoming: Pipe,
        extra: dict[str, Any],
        context: Context | None = None,
    ) -> None:
        super().__init__(extra)
        self.context = copy_context() if context is None else context.copy()
        self.lost = False
        self.on_hello: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self._loop = loop
        self._outgoing = outgoing
        self._incoming = incoming
        self._paused = True
        self._closing = self._ended = self._full = False
        self._protocol: Any = asyncio.Protocol()
        self._fills_buffers = False
        self.set_write_buffer_limits()
        outgoing.sender = incoming.receiver = self

    def take_over(self, protocol: asyncio.BaseProtocol) -> None:
        """Begin: what arrives is the protocol's from now on. Raises ConnectionResetError where the
        connection is over already.
        """
        if self.lost:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self.resume_reading()

    # -- reading -----------------------------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """Whether bytes may arrive now."""
        return not (self._paused or self._closing)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand what arrives to another protocol from now on."""
        self._protocol = protocol
        self._fills_buffers = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who gets what arrives."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_reading(self) -> bool:
        """Whether bytes may arrive now."""
        return self.reads

    def pause_reading(self) -> None:
        """Let bytes wait on their way."""
        self._paused = True

    def resume_reading(self) -> None:
        """Take bytes again."""
        if self._paused and not self._closing:
            self._paused = False
            self._incoming.look()

    def data_arrived(self, data: bytes) -> None:
        """Hand bytes to the protocol; where it fails, the connection is over."""
        try:
            if self._fills_buffers:
                self._fill_buffers(data)
            else:
                self._protocol.data_received(data)
        except Exception as error:
            self._fail(error)

    def _fill_buffers(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # Released before the next call: a protocol may resize what it has lent.
            with memoryview(self._protocol.get_buffer(len(rest))).cast("B") as buffer:
                taken = min(len(buffer), len(rest))
                buffer[:taken] = rest[:taken]
            self._protocol.buffer_updated(taken)
            rest = rest[taken:]

    def mark_arrived(self, mark: Mark) -> None:
        """The other end has connected or closed, or the connection was reset."""
        if self.lost:
            return
        if mark is Mark.RESET:
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        elif mark is Mark.END:
            self._end_arrived()
        elif self.on_hello is not None:
            self.on_hello()

    def _end_arrived(self) -> None:
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

    def _force_close(self, error: BaseException | None) -> None:  # asyncio's TLS calls it
        self._outgoing.reset()
        self._lose(error)

    # -- writing -----------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; what the other end is slow to take is kept."""
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"data argument must be a bytes-like object, not {type(data).__name__!r}"
            )
        if self._ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        self._outgoing.send(bytes(data))
        if not self._full and self._outgoing.unsent_bytes > self._high_water:
            self._full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send several pieces as one."""
        self.write(b"".join(list_of_data))

    def look(self) -> None:
        """Tell the protocol, or end, where all or most is sent now."""
        unsent = self._outgoing.unsent_bytes
        if self._full and unsent <= self._low_water and not self.lost:
            self._full = False
            self._protocol.resume_writing()
        if not unsent and (self._closing or self._ended):
            self._outgoing.end()
            if self._closing:
                self._lose(None)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As in asyncio."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_water, self._low_water = high, low

    def get_write_buffer_size(self) -> int:
        """Bytes that the connection has not taken yet."""
        return self._outgoing.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """As in asyncio."""
        return self._low_water, self._high_water

    def can_write_eof(self) -> bool:
        """A connection can be closed in one direction."""
        return True

    def write_eof(self) -> None:
        """Send the end, and go on reading."""
        if not self._closing and not self._ended:
            self._ended = True
            self.look()

    # -- the end -----------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def close(self) -> None:
        """Close when everything is sent."""
        if not self._closing:
            self._closing = True
            self.look()

    def refuse(self) -> None:
        """Close at once with a reset."""
        self._force_close(None)

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""
        if not self.lost:
            self._outgoing.drop_unsent()
            self._outgoing.end()
            self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self.lost:
            return
        self.lost = self._closing = True
        self._outgoing.drop_unsent()
        self._loop.call_soon(self._tell_lost, error, context=self.context)

    def _tell_lost(self, error: BaseException | None) -> None:
        self._incoming.look()
        if self.on_lost is not None:
            self.on_lost()
        self._protocol.connection_lost(error)

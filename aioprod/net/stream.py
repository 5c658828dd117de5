"""The socket of a connection: reads frames and writes bytes."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from aioprod.protocol.frame_reader import FrameReader
from aioprod.protocol.primitives import BytesLike
from aioprod.running_loop import start_task

_CLOSE_TIMEOUT_S = 1.0
_MAX_UNSENT_BYTES = 65_536  # the default of asyncio's transports
# Small requests are joined to one buffer: from Python 3.12 on, writelines() calls sendmsg(), which
# takes 2 us longer.
_MOST_JOINED = 8
_JOINED_BYTES = 16_384
# asyncio's transports copy the buffers of a request into one until Python 3.11. Without the copy a
# record of 1,000 bytes takes 0.93 to 0.96 of the CPU time.
_COPY = sys.version_info < (3, 12) and hasattr(os, "writev")
_MOST_VECTORS = 1_024  # systems accept this number or more


class Stream(asyncio.BufferedProtocol):
    """An asyncio protocol. It is a buffered one, so large replies are received in place, without a
    copy.

    Args:
        max_frame_bytes: the largest reply to accept.
        on_frame: called with each reply.
        on_end: called when the stream has ended, with the reason: None for its regular end,
            OSError, or any error that ``on_frame`` raises. May be called several times.

    Attributes:
        blocked_since: loop time from which on a task has waited for the socket to accept more
            bytes, or None.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        max_frame_bytes: int,
        on_frame: Callable[[BytesLike], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self.blocked_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._frames = FrameReader(max_frame_bytes)
        self._on_frame = on_frame
        self._on_end = on_end
        self._writable = asyncio.Event()
        self._writable.set()
        self._max_unsent_bytes = _MAX_UNSENT_BYTES
        self._lost = asyncio.Event()
        self._closer: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """Connect to the first address of ``host`` that accepts the connection.

        Raises:
            OSError: if no address accepts it, or the TLS handshake fails.
        """
        await self._loop.create_connection(lambda: self, host, port, ssl=tls)
        # Not earlier: uvloop does not report the end of a connection whose opening was cancelled.
        self._closer = start_task(self._until_lost(), name="aioprod-connection")
        self._closer.add_done_callback(self._close_with_loop)

    async def _until_lost(self) -> None:
        await self._lost.wait()

    def _close_with_loop(self, closer: asyncio.Task[None]) -> None:
        """Close the socket when all tasks are cancelled, as ``asyncio.run`` does at its end: in a
        closed loop, the transport would leave it open. Unlike code in the task, a callback also
        runs if the task is cancelled before it starts.
        """
        if closer.cancelled():
            self._on_end(ConnectionAbortedError("the connection's task was cancelled"))

    # -- called by the transport -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self.transport = cast("asyncio.Transport", transport)
        writes = getattr(self.transport.write, "__module__", "")
        self._copies = _COPY and writes == "asyncio.selector_events"

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for the next bytes."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Pass complete frames to ``on_frame``."""
        try:
            single = self._frames.single(nbytes)
            if single is not None:  # as usual after a small request
                self._on_frame(single)
                return
            for frame in self._frames.received(nbytes):
                self._on_frame(frame)
        except Exception as error:
            self._on_end(error)

    def eof_received(self) -> None:
        """Report that the peer has ended the stream."""
        self._on_end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the socket is closed."""
        self._frames.close()
        self._lost.set()
        self._writable.set()
        self._on_end(exc)

    def pause_writing(self) -> None:
        """Block writers, as the transport's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writers continue."""
        self._writable.set()

    # -- called by the connection ------------------------------------------------------------------

    def accept(self, max_frame_bytes: int) -> None:
        """Accept replies of up to this many bytes from now on."""
        self._frames.max_frame_bytes = max_frame_bytes

    def info(self, name: str) -> Any:
        """Return ``asyncio.BaseTransport.get_extra_info(name)``."""
        return self.transport.get_extra_info(name)

    @property
    def encrypted(self) -> bool:
        """True if the stream uses TLS."""
        return self.info("sslcontext") is not None

    @property
    def closing(self) -> bool:
        """True if the socket is closed or being closed."""
        return self.transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that are buffered for the socket."""
        return self.transport.get_write_buffer_size()

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write bytes. They are buffered while the socket accepts no more."""
        if len(buffers) <= _MOST_JOINED and sum(map(len, buffers)) <= _JOINED_BYTES:
            self.transport.write(b"".join(buffers))
            return
        if self._copies and not self.unsent_bytes:
            buffers = _unwritten(buffers, _written(self.info("socket").fileno(), buffers))
        if buffers:
            self.transport.writelines(buffers)
        if self._writable.is_set() and self.unsent_bytes > self._max_unsent_bytes:
            # writelines() does not pause writers in Python 3.12 before 3.12.9 and in 3.13 before
            # 3.13.2 (gh-127655). Setting a limit does.
            self.transport.set_write_buffer_limits(self._max_unsent_bytes)

    async def writable(self) -> None:
        """Wait until the socket accepts more bytes, or is closed."""
        self.blocked_since = self._loop.time()
        try:
            if self.closing:
                await asyncio.sleep(0)  # the transport reports it in the next turn of the loop
            await self._writable.wait()
        finally:
            self.blocked_since = None

    async def flush(self) -> None:
        """Wait until all buffered bytes are written, or the socket is closed."""
        self._max_unsent_bytes = 0
        self.transport.set_write_buffer_limits(0)
        await self._writable.wait()

    def abort(self) -> None:
        """Close the socket. Buffered bytes are lost."""
        self.transport.abort()

    async def closed(self) -> None:
        """Wait until the socket is closed and its task has ended, for at most a second."""
        if self._closer is not None:
            await asyncio.wait([self._closer], timeout=_CLOSE_TIMEOUT_S)


def _written(fileno: int, buffers: Sequence[bytes | memoryview]) -> int:
    """Write as many bytes as the socket accepts at once, and return how many. An error is left to
    the transport, which gets the same one.
    """
    try:
        return os.writev(fileno, buffers[:_MOST_VECTORS])
    except OSError:
        return 0


def _unwritten(buffers: Sequence[bytes | memoryview], written: int) -> Sequence[bytes | memoryview]:
    """Return the bytes after the first ``written`` ones."""
    for index, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[index + 1 :]]
        written -= len(buffer)
    return []

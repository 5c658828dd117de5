"""Asyncio's streams, and a way past their buffer for large replies."""

from __future__ import annotations

import asyncio
import ssl

_READ_LIMIT = 1024 * 1024
_SMALL_BYTES = 64 * 1024
# Room for so much of a reply is made at once, and for the rest as it comes: four bytes must not
# cost the client half a gigabyte.
_PORTION_BYTES = 64 * 1024 * 1024


class ReplyProtocol(asyncio.StreamReaderProtocol, asyncio.BufferedProtocol):
    """Feeds a StreamReader; what belongs to a reply whose size is known the socket writes to where
    it will be read (:meth:`fill`).

    A reply of 1 MiB would else be copied from the socket's pieces to the stream's buffer, which
    grows again for each, and from there once more.
    """

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self._any = memoryview(bytearray(_SMALL_BYTES))
        self._rest: memoryview | None = None  # of what is being filled
        self._filled: asyncio.Future[None] = loop.create_future()
        self._ended: Exception | None = None

    async def fill(self, rest: memoryview) -> None:
        """Wait until the next bytes have filled ``rest``; for whoever has read all that the
        StreamReader had.

        Raises:
            IncompleteReadError: the stream has ended before. OSError: the connection is lost.
        """
        if self._ended is not None:
            raise self._ended
        self._rest = rest
        self._filled = asyncio.get_running_loop().create_future()
        try:
            await self._filled
        finally:
            self._rest = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._any if self._rest is None else self._rest

    def buffer_updated(self, nbytes: int) -> None:
        if self._rest is None:
            super().data_received(self._any[:nbytes])  # type: ignore[arg-type]  # it is copied there
        else:
            self._took(nbytes)

    def data_received(self, data: bytes) -> None:
        """uvloop takes every ``asyncio.Protocol``, which streams need, for one that does not lend
        buffers.
        """
        if self._rest is None:
            super().data_received(data)
            return
        count = min(len(data), len(self._rest))
        self._rest[:count] = data[:count]
        self._took(count)
        if count < len(data):
            super().data_received(data[count:])

    def _took(self, count: int) -> None:
        assert self._rest is not None
        rest = self._rest[count:]
        self._rest = rest or None
        if not rest and not self._filled.done():
            self._filled.set_result(None)

    def eof_received(self) -> bool | None:
        self._end(asyncio.IncompleteReadError(b"", None))
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or asyncio.IncompleteReadError(b"", None))
        super().connection_lost(exc)

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        if self._rest is not None and not self._filled.done():
            self._filled.set_exception(error)


class ReplyReader(asyncio.StreamReader):
    """A StreamReader of a connection that has a :class:`ReplyProtocol`."""

    protocol: ReplyProtocol


async def open_stream(
    host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[ReplyReader, asyncio.StreamWriter]:
    """As ``asyncio.open_connection``."""
    loop = asyncio.get_running_loop()
    reader = ReplyReader(limit=_READ_LIMIT, loop=loop)
    protocol = reader.protocol = ReplyProtocol(reader, loop)
    transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=tls)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def read_rest(reader: asyncio.StreamReader, start: bytes, size: int) -> bytes | bytearray:
    """A reply of so many bytes that begins with ``start``; a bytearray where it is large.

    Raises:
        IncompleteReadError: the stream has ended before. OSError: the connection is lost.
    """
    if size - len(start) <= _SMALL_BYTES or not isinstance(reader, ReplyReader):
        return start + await reader.readexactly(size - len(start))
    start += await reader.read(size - len(start))
    reply = bytearray(min(size, _PORTION_BYTES))
    reply[: len(start)] = start
    begun = len(start)
    while True:
        if begun < len(reply):
            await reader.protocol.fill(memoryview(reply)[begun:])
        if len(reply) == size:
            return reply
        reply += await reader.read(size - len(reply))  # what has come to the StreamReader since
        begun = len(reply)
        reply.extend(bytes(min(size - begun, _PORTION_BYTES)))

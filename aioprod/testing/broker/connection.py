"""A client's connection: splits bytes into frames, handles them as requests, and sends responses in
the order of the requests.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple, cast

from aioprod.errors import ProtocolError, UnsupportedVersionError
from aioprod.logs import get_logger
from aioprod.protocol.certificates import subject_of
from aioprod.protocol.frame_reader import FrameReader
from aioprod.running_loop import start_task
from aioprod.testing.broker.access.client_access import Peer
from aioprod.testing.broker.actions import Answer, DropConnection, Pieces, ResetConnection

_log = get_logger(__name__)

MAX_FRAME_BYTES = 104_857_600  # broker setting socket.request.max.bytes
_MAX_QUEUED_FRAMES = 64
_MAX_QUEUED_BYTES = 16 << 20
_LINGER_FOR_NO_TIME = struct.pack("ii", 1, 0)


class ConnectionHandler(ABC):
    """The part of the broker that connections need."""

    @abstractmethod
    async def answer(self, frame: bytes, disconnected: asyncio.Future[None], peer: Peer) -> Answer:
        """Return the response to a request of ``peer``, or None to send none; raise ProtocolError
        or DropConnection to end the connection.
        """

    @abstractmethod
    def opened(self, connection: Connection) -> None:
        """Called when a connection begins."""

    @abstractmethod
    def closed(self, connection: Connection) -> None:
        """Called when a connection and its task have ended."""


class Lifetime(NamedTuple):
    """The limits after which the broker ends a connection.

    Attributes:
        idle_s: after this time without a request, the next one resets the connection.
        lifetime_s: after this time the connection is closed.
    """

    idle_s: float | None = None
    lifetime_s: float | None = None


_ENDLESS = Lifetime()


class Connection(asyncio.BufferedProtocol):
    """Reads ahead within limits, and handles one request after another.

    As in a real broker, the requests that a client sent before it disconnected are handled: a
    producer with acks=0 sends and closes.
    """

    def __init__(self, handler: ConnectionHandler, lifetime: Lifetime = _ENDLESS) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._handler = handler
        self._lifetime = lifetime
        self._used_at = loop.time()
        self._end_timer: asyncio.Handle | None = None
        self._reader = FrameReader(MAX_FRAME_BYTES)
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._arrival = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._disconnected: asyncio.Future[None] = loop.create_future()
        self._peer: Peer
        self._transport: asyncio.Transport
        self._task: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to handle requests."""
        self._transport = cast("asyncio.Transport", transport)
        self._peer = _peer_of(self._transport)
        self._task = start_task(self._serve(), name="broker-connection")
        self._task.add_done_callback(self._served)
        if self._lifetime.lifetime_s is not None:
            self._end_timer = self._loop.call_later(self._lifetime.lifetime_s, self.finish)
        self._handler.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for the next bytes."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Queue complete requests."""
        idle_s, now = self._lifetime.idle_s, self._loop.time()
        if idle_s is not None and now - self._used_at > idle_s:
            self._reset()
            self._task.cancel()
            return
        self._used_at = now
        try:
            for frame in self._reader.received(nbytes):
                self._frames.append(bytes(frame))
                self._queued_bytes += len(frame)
        except ProtocolError as error:
            self._refuse(error)
            return
        if self._is_crowded():
            self._transport.pause_reading()
        self._arrival.set()

    def eof_received(self) -> bool:
        """Handle the requests that arrived before the end of the stream."""
        self._end()
        # TLS has no half-closed connections.
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Exception | None) -> None:
        """Handle the requests that arrived, without responses."""
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end()
        self._writable.set()

    def pause_writing(self) -> None:
        """Stop handling requests while the client does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue after :meth:`pause_writing`."""
        self._writable.set()

    def abort(self) -> asyncio.Task[None]:
        """Close at once and return the task, which then ends."""
        self._transport.abort()
        self._task.cancel()
        return self._task

    def _reset(self) -> None:
        """Close at once so that the client's next read or write fails (TCP's RST)."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_FOR_NO_TIME)
        self._transport.abort()

    def finish(self) -> None:
        """Handle the requests that arrived, then close."""
        self._end()

    def _end(self) -> None:
        if not self._disconnected.done():
            self._disconnected.set_result(None)
        self._arrival.set()

    def _is_crowded(self) -> bool:
        return len(self._frames) > _MAX_QUEUED_FRAMES or self._queued_bytes > _MAX_QUEUED_BYTES

    def _refuse(self, reason: object) -> None:
        _log.warning(
            "closing the connection from %s: %s", self._transport.get_extra_info("peername"), reason
        )
        self._frames.clear()
        self._end()
        self._transport.abort()

    async def _serve(self) -> None:
        try:
            while not (self._disconnected.done() and not self._frames):
                if self._frames:
                    await self._handle_one()
                else:
                    self._arrival.clear()
                    await self._arrival.wait()
        except ResetConnection:
            self._reset()
        except DropConnection:
            pass
        except (ProtocolError, UnsupportedVersionError) as error:
            self._refuse(error)
        except Exception:
            _log.exception(
                "unexpected error in a request from %s; closing the connection",
                self._transport.get_extra_info("peername"),
            )

    def _served(self, task: asyncio.Task[None]) -> None:
        """Close the connection, even if the task was cancelled before it started."""
        self._transport.close()
        self._handler.closed(self)

    async def _handle_one(self) -> None:
        was_crowded = self._is_crowded()
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame)
        if was_crowded and not self._is_crowded() and not self._transport.is_closing():
            self._transport.resume_reading()
        answer = await self._handler.answer(frame, self._disconnected, self._peer)
        if isinstance(answer, Pieces):
            await self._send_pieces(answer)
        elif answer is not None and not self._transport.is_closing():
            self._transport.write(answer)
            await self._writable.wait()

    async def _send_pieces(self, answer: Pieces) -> None:
        for part in answer.parts:
            if self._transport.is_closing():
                return
            self._transport.write(part)
            await self._writable.wait()
            # Let a client on this loop read each piece: in one iteration, the loop finds its socket
            # readable, and in the next it reads.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        if answer.hang_up:
            raise DropConnection


def _peer_of(transport: asyncio.Transport) -> Peer:
    address = transport.get_extra_info("peername")
    tls = transport.get_extra_info("ssl_object")
    certificate = None if tls is None else tls.getpeercert(binary_form=True)
    return Peer(
        str(address[0]) if address else "", None if certificate is None else subject_of(certificate)
    )

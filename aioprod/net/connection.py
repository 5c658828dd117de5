"""One connection to one broker.

Requests are numbered and answered in order; whoever sends gets a future. The connection is over at
the first sign of trouble (end of stream, bytes that make no sense, a reply that does not come in
time): every request still in flight then fails, and the connection is never used again.

Requests can be kept back for a while (``hold``): that is how a client proves again who it is
(KIP-368) without losing or overtaking one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

from aioprod.errors import (
    BrokerConnectionError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aioprod.net.bounds import (
    MAX_REPLY_BYTES,
    MAX_REPLY_BYTES_BEFORE_LOGIN,
    MAX_THROTTLE_MS,
    bounded,
)
from aioprod.net.failures import (
    address_of,
    check_address,
    closed_by_broker,
    connection_failure,
    impossible_reply,
    is_tls_alert,
)
from aioprod.net.reply_protocol import open_stream, read_rest
from aioprod.net.silence import SilenceWatch
from aioprod.protocol.framing import decode_response, encode_request
from aioprod.protocol.message import Message, Request
from aioprod.protocol.primitives import BytesLike

# Replies of no more than this many bytes are small, as those to Produce are.
_CHUNK_BYTES = 4096
_SIZE = struct.Struct(">i")
_NEVER = float("inf")
_CLOSE_LIMIT_S = 1.0

ResponseT = TypeVar("ResponseT", bound=Message)
Decoder = Callable[[type[Request[Any]], int, BytesLike], tuple[int, Message]]
"""Reads a reply as :func:`aioprod.protocol.framing.decode_response` does."""


@dataclass(slots=True)
class _InFlight:
    correlation_id: int
    request_type: type[Request[Any]]
    version: int
    decode: Decoder
    future: asyncio.Future[Message]
    wait_s: float
    sent_at: float = 0.0
    expires_at: float = 0.0


class Companion(Protocol):
    """Something that lives as long as a connection and is told of its end."""

    def cancel(self) -> None:
        """The connection is over."""

    async def ended(self) -> None:
        """Wait until nothing of it runs any more."""


class Connection:
    """A live connection; made by :func:`aioprod.net.handshake.connect`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        address: str,
        client_id: str,
        request_timeout_ms: int,
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.on_closed: Callable[[Connection], None] | None = None
        self.on_silence: Callable[[], None] = lambda: None
        self.companion: Companion | None = None
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._reader = reader
        self._writer = writer
        self._transport = writer.transport
        self._in_flight: deque[_InFlight] = deque()
        self._heard_at = 0.0
        self._stuck_since: float | None = None
        self._silence = SilenceWatch(self._waiting_since, lambda: self.on_silence())
        # What is kept back: encoded requests in their order, and who waits for the reply (nobody
        # where acks=0). None: nothing is.
        self._held: deque[tuple[Sequence[bytes], _InFlight | None]] | None = None
        self._held_bytes = 0
        self._wrote_unanswered = False
        self._released = asyncio.Event()
        self._all_answered: asyncio.Future[None] | None = None
        self._replies = 0
        self._encrypted = writer.get_extra_info("sslcontext") is not None
        self._reply_limit = MAX_REPLY_BYTES_BEFORE_LOGIN
        self.throttled_until = (
            0.0  # loop time; until then the broker wants no more requests (KIP-219)
        )
        self._next_correlation_id = 0
        self._error: KafkaError | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        # One timer for all requests, as nearly none of them ever needs it. It rings no later than
        # the first of them expires.
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._expiry_rings_at = _NEVER
        self._reading = self._loop.create_task(self._read_replies(), name=f"aioprod-read-{address}")

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        request_timeout_ms: int,
        setup_timeout_ms: float,
        tls: ssl.SSLContext | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Connection:
        """Connect a socket, trying all addresses of the host, and encrypt it where ``tls`` is
        given.

        Raises:
            BrokerConnectionError: refused, no such host or port, not connected within
                ``setup_timeout_ms``, or no TLS on that port.
            AuthenticationError: the broker's certificate fails its check.
        """
        address = address_of(host, port)
        check_address(host, port)
        try:
            async with asyncio.timeout(setup_timeout_ms / 1000):
                reader, writer = await open_stream(host, port, tls)
        except TimeoutError:
            raise BrokerConnectionError(
                f"{address}: no connection within "
                f"socket_connection_setup_timeout_ms={setup_timeout_ms:.0f}"
            ) from None
        except OSError as error:
            raise connection_failure(address, error, tls=tls is not None) from error
        sock = writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in (
                (socket.SO_SNDBUF, send_buffer_bytes),
                (socket.SO_RCVBUF, receive_buffer_bytes),
            ):
                if size > 0:
                    sock.setsockopt(socket.SOL_SOCKET, option, size)
        return cls(
            reader,
            writer,
            address=address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
        )

    @property
    def error(self) -> KafkaError | None:
        """Why the connection is over; None while it lives."""
        return self._error

    @property
    def closed(self) -> bool:
        return self._error is not None

    @property
    def silent(self) -> bool:
        """Whether the broker owes an answer and has said nothing for a second."""
        return self._error is None and self._silence.silent

    @property
    def waited_s(self) -> float:
        """Seconds since when the broker owes an answer and has said nothing."""
        return self._silence.waited_s

    @property
    def in_flight(self) -> int:
        """Requests that wait for a reply, or to be sent."""
        return len(self._in_flight) + (len(self._held) if self._held is not None else 0)

    @property
    def holding(self) -> bool:
        """Whether requests are kept back now."""
        return self._held is not None

    def pick_version(self, request_type: type[Request[Any]], newest: int | None = None) -> int:
        """The newest version of a request that both sides know.

        Args:
            newest: a lower limit than the client's own newest, if any.

        Raises:
            UnsupportedVersionError: there is none.
        """
        low, high = self.versions.get(request_type.API_KEY, (0, -1))
        limit = (
            request_type.MAX_VERSION if newest is None else min(newest, request_type.MAX_VERSION)
        )
        version = min(high, limit)
        if version < max(low, request_type.MIN_VERSION):
            raise UnsupportedVersionError(
                f"{self.address} has {request_type.__name__} versions {low} to {high}, this "
                f"client {request_type.MIN_VERSION} to {limit}"
            )
        return version

    def next_correlation_id(self) -> int:
        number = self._next_correlation_id
        self._next_correlation_id = (number + 1) & 0x7FFFFFFF
        return number

    async def request(
        self,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        past_hold: bool = False,
    ) -> ResponseT:
        """Send a request and wait for its reply; ``past_hold`` sends it also where others are kept
        back.

        Waits at most ``timeout_ms``, or else ``request_timeout_ms``, until a throttled request may
        be sent, and as long for the reply.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: the connection is over.
            RequestTimedOutError: the broker's throttling lasts longer; the connection lives on.
            UnsupportedVersionError: the broker has no version of this request that we know.
        """
        kind = type(message)
        if not past_hold:
            await self._throttled(kind.__name__, timeout_ms or self.request_timeout_ms)
        if version is None:
            version = self.pick_version(kind)
        correlation_id = self.next_correlation_id()
        frame = encode_request(message, version, correlation_id, self.client_id)
        future = self.send([frame], kind, version, correlation_id, timeout_ms, past_hold)
        return cast(ResponseT, await future)

    async def _throttled(self, name: str, limit_ms: float) -> None:
        """Wait until the broker wants requests again (KIP-219)."""
        pause = self.throttled_until - self._loop.time()
        if pause > 0:
            await asyncio.sleep(min(pause, limit_ms / 1000))
        if pause * 1000 > limit_ms:
            raise RequestTimedOutError(
                f"{self.address}: {name} not sent within request_timeout_ms={limit_ms:.0f}: "
                "the broker throttles this client for another "
                f"{pause * 1000 - limit_ms:.0f} ms (throttle_time_ms)"
            )

    def trust(self) -> None:
        """The login is complete: from now on large replies are taken, too."""
        self._reply_limit = MAX_REPLY_BYTES

    def send(
        self,
        buffers: Sequence[bytes],
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        timeout_ms: float | None = None,
        past_hold: bool = False,
        decode: Decoder = decode_response,
    ) -> asyncio.Future[Message]:
        """Write an encoded request; the future gets the reply, as ``decode`` reads it. Never waits:
        callers bound what they have in flight.
        """
        future: asyncio.Future[Message] = self._loop.create_future()
        if self._error is not None:
            future.set_exception(self._error)
            return future
        waiting = _InFlight(
            correlation_id,
            request_type,
            version,
            decode,
            future,
            (timeout_ms or self.request_timeout_ms) / 1000,
        )
        if self._held is not None and not past_hold:
            self._keep_back(buffers, waiting)
        else:
            self._write_now(buffers, waiting)
        return future

    def _keep_back(self, buffers: Sequence[bytes], waiting: _InFlight | None) -> None:
        assert self._held is not None
        self._held.append((buffers, waiting))
        self._held_bytes += sum(map(len, buffers))

    def _write_now(self, buffers: Sequence[bytes], waiting: _InFlight | None) -> None:
        now = self._loop.time()
        if waiting is not None:
            waiting.sent_at = now
            waiting.expires_at = now + waiting.wait_s
            if waiting.expires_at < self._expiry_rings_at:
                self._look_at(waiting.expires_at)
            self._in_flight.append(waiting)
            self._silence.begin()
        if self._transport.is_closing():
            # The socket is gone and the reading task has not had its turn yet. From Python 3.12 on
            # writing would raise.
            self.abort(closed_by_broker(self.address, self._replies, tls=self._encrypted))
            return
        self.last_used = now
        self._transport.writelines(buffers)

    def hold(self) -> None:
        """Keep back, in their order, what is sent from now on, until :meth:`release`."""
        if self._held is None and self._error is None:
            self._held = deque()
            self._released.clear()

    def release(self) -> None:
        """Send what was kept back, and from now on everything at once."""
        held, self._held, self._held_bytes = self._held, None, 0
        self._released.set()
        for buffers, waiting in held or ():
            if self._error is None:
                self._write_now(buffers, waiting)
            elif waiting is not None:
                self._fail(waiting, self._error)

    async def all_answered(self) -> None:
        """Wait until nothing is in flight; for one waiter at a time.

        Raises:
            KafkaError: the connection is over.
        """
        if self._error is not None:
            raise self._error
        if self._in_flight:
            self._all_answered = self._loop.create_future()
            await self._all_answered

    @property
    def unsent_bytes(self) -> int:
        """What the socket did not take yet, and what is kept back."""
        return self._transport.get_write_buffer_size() + self._held_bytes

    async def drained(self) -> None:
        """Wait until the socket takes more; ends too when the connection does."""
        if self._held is not None:
            await self._released.wait()
        self._stuck_since = self._loop.time()
        self._silence.begin()
        try:
            with contextlib.suppress(OSError):
                await self._writer.drain()
        finally:
            self._stuck_since = None

    def write(self, buffers: Sequence[bytes]) -> None:
        """Write an encoded request that gets no reply (acks=0)."""
        self._wrote_unanswered = True
        if self._held is not None:
            self._keep_back(buffers, None)
        else:
            self._write_now(buffers, None)

    def _waiting_since(self) -> float | None:
        if self._in_flight:
            return max(self._in_flight[0].sent_at, self._heard_at)
        return self._stuck_since

    def _look_at(self, moment: float) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._expiry_rings_at = moment
        self._expiry_timer = self._loop.call_at(moment, self._look_for_expired)

    def _look_for_expired(self) -> None:
        due, self._expiry_rings_at, self._expiry_timer = self._expiry_rings_at, _NEVER, None
        first = min(self._in_flight, key=lambda waiting: waiting.expires_at, default=None)
        if first is None:
            return
        if first.expires_at > due:
            self._look_at(first.expires_at)
            return
        name, limit_ms = first.request_type.__name__, first.wait_s * 1000
        self.abort(
            RequestTimedOutError(
                f"{self.address}: no reply to {name} within request_timeout_ms={limit_ms:.0f}"
            )
        )

    def close_when_idle(self, idle_ms: int) -> None:
        """End the connection once nothing was sent or received for ``idle_ms``."""
        due = self.last_used + idle_ms / 1000
        if self._loop.time() >= due and not self.in_flight and not self.unsent_bytes:
            self.abort(
                BrokerConnectionError(f"{self.address}: idle for connections_max_idle_ms={idle_ms}")
            )
        elif not self.closed:
            self._idle_timer = self._loop.call_at(
                max(due, self._loop.time() + 0.001), self.close_when_idle, idle_ms
            )

    async def _read_replies(self) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError):
                await self._take_replies()
            self.abort(closed_by_broker(self.address, self._replies, tls=self._encrypted))
        except OSError as error:
            self.abort(
                connection_failure(self.address, error, tls=self._encrypted, replies=self._replies)
            )
        except Exception as error:
            self.abort(
                error
                if isinstance(error, KafkaError)
                else ProtocolError(f"{self.address}: {type(error).__name__} at a reply: {error}")
            )
        finally:
            # Also when this task was cancelled from outside: nobody may wait for replies that no
            # one reads.
            self.abort(BrokerConnectionError(f"{self.address}: connection closed"))

    async def _take_replies(self) -> None:
        """Take one reply after the other until the stream ends."""
        reader = self._reader
        size = 0
        frame: BytesLike
        # Small replies are taken as many at once as there are. After a large one only a size is,
        # lest the next large one be put together from parts.
        while data := await reader.read(_CHUNK_BYTES if size <= _CHUNK_BYTES else 4):
            at, end = 0, len(data)
            while at < end:
                if end - at < 4:
                    data, at, end = data[at:] + await reader.readexactly(4 - end + at), 0, 4
                (size,) = _SIZE.unpack_from(data, at)
                if not 4 <= size <= self._reply_limit or (not self._replies and is_tls_alert(size)):
                    raise impossible_reply(self.address, size, self._replies, self._reply_limit)
                frame = data[at + 4 : at + 4 + size]
                if len(frame) < size:
                    frame = await read_rest(reader, frame, size)
                at += 4 + size
                self._accept(frame)
                self._replies += 1

    def _accept(self, frame: BytesLike) -> None:
        if not self._in_flight:
            raise ProtocolError(f"{self.address}: a reply that nobody asked for")
        waiting = self._in_flight[0]
        correlation_id, reply = waiting.decode(waiting.request_type, waiting.version, frame)
        if correlation_id != waiting.correlation_id:
            raise ProtocolError(
                f"{self.address}: reply {correlation_id} where {waiting.correlation_id} was due"
            )
        self._in_flight.popleft()
        self.last_used = self._heard_at = self._loop.time()
        throttle_ms: int = getattr(reply, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until = max(
                self.throttled_until, self.last_used + bounded(throttle_ms, 0, MAX_THROTTLE_MS)
            )
        if not waiting.future.done():
            waiting.future.set_result(reply)
        if self._all_answered is not None and not self._in_flight:
            _settle(self._all_answered)
            self._all_answered = None

    def abort(self, error: KafkaError) -> None:
        """End the connection at once; what is in flight fails with ``error``."""
        if self._error is not None:
            return
        self._error = error
        self._transport.abort()
        self._silence.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        if asyncio.current_task(self._loop) is not self._reading:
            self._reading.cancel()
        if self.companion is not None:
            self.companion.cancel()
        failed, self._in_flight = self._in_flight, deque()
        for waiting in failed:
            self._fail(waiting, error)
        self.release()
        if self._all_answered is not None:
            _settle(self._all_answered, error)
        if self.on_closed is not None:
            self.on_closed(self)

    def _fail(self, waiting: _InFlight, error: KafkaError) -> None:
        if not waiting.future.done():
            waiting.future.set_exception(error)
            # Whoever sent it may be gone; that is no news worth a log line.
            waiting.future.exception()

    async def close(self) -> None:
        """Close and wait until the socket is gone. What gets no reply (acks=0) is sent before,
        within a second.
        """
        if self._wrote_unanswered and self.unsent_bytes and self._error is None:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(_CLOSE_LIMIT_S):
                    await self._send_rest()
        self.abort(BrokerConnectionError(f"{self.address}: closed by this client"))
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await asyncio.wait([self._reading], timeout=_CLOSE_LIMIT_S)
            if self.companion is not None:
                await self.companion.ended()

    async def _send_rest(self) -> None:
        if self._held is not None:
            await self._released.wait()
        self._transport.set_write_buffer_limits(0)
        await self._writer.drain()


def _settle(future: asyncio.Future[None], error: KafkaError | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

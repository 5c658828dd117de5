"""One connection to one broker.

Requests are numbered and answered in order; each ``send`` returns a future for its reply. The
connection ends at the first problem (end of the stream, bytes that are not valid, a reply that does
not arrive in time): every request in flight then fails, and the connection is never used again.

Requests can be deferred for a while (``defer``): a client uses this to authenticate again
(KIP-368) without losing or reordering any.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from aioprod.errors import (
    BrokerConnectionError,
    KafkaError,
    RequestTimedOutError,
)
from aioprod.net.bounds import MAX_REPLY_BYTES, MAX_REPLY_BYTES_BEFORE_LOGIN
from aioprod.net.failures import (
    address_of,
    check_address,
    closed_by_broker,
    connection_failure,
    no_common_version,
    stream_failure,
)
from aioprod.net.idle import IdleTimer
from aioprod.net.pending_requests import (
    DeferredRequests,
    FutureReply,
    PendingRequest,
    PendingRequests,
    ReplyHandler,
)
from aioprod.net.stream import Stream
from aioprod.net.throttle import Throttle
from aioprod.protocol.framing import decode_response, encode_request
from aioprod.protocol.in_flight import Decoder, InFlightRequest
from aioprod.protocol.message import Message, Request
from aioprod.protocol.primitives import BytesLike

_FLUSH_TIMEOUT_S = 1.0

ResponseT = TypeVar("ResponseT", bound=Message)


class ConnectionTask(Protocol):
    """A task that lives as long as a connection."""

    def cancel(self) -> None:
        """Stop: the connection is over."""

    async def ended(self) -> None:
        """Wait until the task has ended."""


class Connection:
    """A live connection; made by :func:`aioprod.net.handshake.connect`.

    Args:
        address: for errors and the log.
        client_id, request_timeout_ms: settings of the client.
        reauthentication: renews the session; cancelled when the connection is over.
        on_closed: called when the connection is over.
        on_silence: called each second while a reply is due and the broker sends nothing.

    Attributes:
        versions: the lowest and highest version of each API key that the broker supports.
        finalized_features: the cluster's features, with their levels.
        idle: when the connection was used last, and whether it must stay open.
    """

    def __init__(
        self,
        *,
        address: str,
        client_id: str,
        request_timeout_ms: int,
        reauthentication: ConnectionTask | None = None,
        on_closed: Callable[[Connection], None] = lambda _: None,
        on_silence: Callable[[], object] = lambda: None,
    ) -> None:
        self.address = address
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.versions: dict[int, tuple[int, int]] = {}
        self.finalized_features: dict[str, int] = {}
        self.reauthentication = reauthentication
        self._on_closed = on_closed
        self._error: KafkaError | None = None
        self._loop = asyncio.get_running_loop()
        self._stream = stream = Stream(
            MAX_REPLY_BYTES_BEFORE_LOGIN, self._reply_received, self._stream_ended
        )
        self._pending = PendingRequests(self._timed_out, on_silence, lambda: stream.blocked_since)
        self._deferred = DeferredRequests()
        self._throttle = Throttle()
        self.idle = IdleTimer(lambda: bool(self.in_flight or self.unsent_bytes), self._close_idle)
        self._wrote_unanswered = False

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
        reauthentication: ConnectionTask | None = None,
        on_closed: Callable[[Connection], None] = lambda _: None,
        on_silence: Callable[[], object] = lambda: None,
    ) -> Connection:
        """Connect a socket, trying all addresses of the host, and encrypt it if ``tls`` is given.

        Raises:
            BrokerConnectionError: if the connection is refused, the host or port does not exist or
                does not use TLS, or ``setup_timeout_ms`` have passed.
            AuthenticationError: if the broker's certificate is not valid.
        """
        address = address_of(host, port)
        check_address(host, port)
        connection = cls(
            address=address,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            reauthentication=reauthentication,
            on_closed=on_closed,
            on_silence=on_silence,
        )
        try:
            async with asyncio.timeout(setup_timeout_ms / 1000):
                await connection._stream.open(host, port, tls)
        except TimeoutError:
            raise BrokerConnectionError(
                f"{address}: no connection within "
                f"socket_connection_setup_timeout_ms={setup_timeout_ms:.0f}"
            ) from None
        except OSError as error:
            raise connection_failure(address, error, tls=tls is not None) from error
        try:
            connection._set_options(send_buffer_bytes, receive_buffer_bytes)
        except OSError as error:
            # As macOS does if the connection was reset.
            failure = connection_failure(address, error, tls=tls is not None, replies=0)
            connection.abort(failure)
            raise failure from error
        return connection

    def _set_options(self, send_buffer_bytes: int, receive_buffer_bytes: int) -> None:
        sock = self._stream.info("socket")
        if sock is None:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_SNDBUF, send_buffer_bytes),
            (socket.SO_RCVBUF, receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    # -- state -------------------------------------------------------------------------------------

    @property
    def error(self) -> KafkaError | None:
        """Why the connection is over; None while it lives."""
        return self._error

    @property
    def closed(self) -> bool:
        """Whether the connection is over."""
        return self._error is not None

    @property
    def silent(self) -> bool:
        """Whether a reply is due and the broker has sent nothing for a second."""
        return self._error is None and self._pending.silent

    @property
    def waited_s(self) -> float:
        """Seconds for which a reply has been due and the broker has sent nothing."""
        return self._pending.waited_s

    @property
    def replied_at(self) -> float:
        """Loop time of the last reply; 0 if there is none."""
        return self._pending.replied_at

    @property
    def in_flight(self) -> int:
        """Requests that wait for a reply, or to be sent."""
        return len(self._pending) + len(self._deferred)

    @property
    def deferring(self) -> bool:
        """True while requests are deferred."""
        return self._deferred.active

    @property
    def throttled_until(self) -> float:
        """Loop time until which the broker wants no more requests (KIP-219)."""
        return self._throttle.until

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not taken yet, or that are deferred."""
        return self._stream.unsent_bytes + self._deferred.size_bytes

    def pick_version(self, request_type: type[Request[Any]], newest: int | None = None) -> int:
        """Return the newest version of a request that both sides support.

        Args:
            newest: a lower limit than the client's own newest, if any.

        Raises:
            UnsupportedVersionError: if there is no such version.
        """
        theirs = self.versions.get(request_type.API_KEY)
        limit = (
            request_type.MAX_VERSION if newest is None else min(newest, request_type.MAX_VERSION)
        )
        if theirs is None or min(theirs[1], limit) < max(theirs[0], request_type.MIN_VERSION):
            raise no_common_version(self.address, request_type, theirs, limit)
        return min(theirs[1], limit)

    def trust(self) -> None:
        """Accept large replies, too: the login is complete."""
        self._stream.accept(MAX_REPLY_BYTES)

    # -- requests ----------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """Return an id for a request that will be sent."""
        return self._pending.next_correlation_id()

    async def request(
        self,
        message: Request[ResponseT],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        at_once: bool = False,
    ) -> ResponseT:
        """Send a request and wait for its reply.

        Waits until a throttled request may be sent, and then for the reply; each for at most
        ``timeout_ms``, by default ``request_timeout_ms``.

        Args:
            version: by default the newest that both sides support.
            at_once: True to send the request also while others are deferred or throttled.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: if the connection is over.
            RequestTimedOutError: if the broker throttles for longer; the connection stays open.
            UnsupportedVersionError: if the broker supports no version that the client does.
        """
        kind = type(message)
        if not at_once:
            await self._throttle.wait(
                kind.__name__, self.address, timeout_ms or self.request_timeout_ms
            )
        version = self.pick_version(kind) if version is None else version
        correlation_id = self.next_correlation_id()
        frame = encode_request(message, version, correlation_id, self.client_id)
        future = self.send([frame], kind, version, correlation_id, timeout_ms, at_once)
        del frame  # it may have a secret, and errors pass through here
        return cast("ResponseT", await future)

    def send(
        self,
        buffers: Sequence[bytes | memoryview],
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        timeout_ms: float | None = None,
        at_once: bool = False,
        decode: Decoder = decode_response,
    ) -> asyncio.Future[Message]:
        """Write an encoded request, and return a future for its reply, as ``decode`` returns it.

        Never waits: callers limit what they have in flight.
        """
        reply = FutureReply(self._loop.create_future())
        self.post(
            buffers, request_type, version, correlation_id, reply, timeout_ms, at_once, decode
        )
        return reply.future

    def post(
        self,
        buffers: Sequence[bytes | memoryview],
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        handler: ReplyHandler,
        timeout_ms: float | None = None,
        at_once: bool = False,
        decode: Decoder = decode_response,
    ) -> None:
        """Write an encoded request; ``handler`` gets its reply, as ``decode`` returns it."""
        if self._error is not None:
            handler.failed(self._error)
            return
        request: PendingRequest = InFlightRequest(
            correlation_id,
            request_type,
            version,
            decode,
            handler,
            (timeout_ms or self.request_timeout_ms) / 1000,
        )
        if self._deferred.active and not at_once:
            self._deferred.append(buffers, request)
        else:
            self._write(buffers, request)

    def write(self, buffers: Sequence[bytes | memoryview]) -> None:
        """Write an encoded request that gets no reply (acks=0)."""
        self._wrote_unanswered = True
        if self._deferred.active:
            self._deferred.append(buffers, None)
        else:
            self._write(buffers, None)

    def _write(self, buffers: Sequence[bytes | memoryview], request: PendingRequest | None) -> None:
        now = self._loop.time()
        if self._stream.closing:
            # The transport has not reported it yet. From Python 3.12 on, writing would raise.
            if request is not None:
                self._pending.sent(request, now)
            self._stream_ended(None)
            return
        self._stream.write(buffers)
        self.idle.used_at = now
        if request is not None:
            self._pending.sent(request, now)

    def defer(self) -> None:
        """Defer, in their order, the requests that are sent from now on, until :meth:`resume`."""
        if self._error is None:
            self._deferred.defer()

    def resume(self) -> None:
        """Send the requests that were deferred, and from now on each at once."""
        for buffers, request in self._deferred.release():
            if self._error is None:
                self._write(buffers, request)
            elif request is not None:
                request.waiter.failed(self._error)

    async def all_replied(self) -> None:
        """Wait until no request is in flight; for one task at a time.

        Raises:
            KafkaError: if the connection is over.
        """
        if self._error is not None:
            raise self._error
        await self._pending.all_replied()

    async def drained(self) -> None:
        """Wait until the socket takes more bytes, or the connection is over."""
        await self._deferred.released()
        self._pending.watch_blocked()
        await self._stream.writable()

    # -- events ------------------------------------------------------------------------------------

    def _reply_received(self, frame: BytesLike) -> None:
        if self._error is not None:
            return  # the reply before, in the same bytes, has ended the connection
        now = self._loop.time()
        handler, reply = self._pending.reply_received(frame, now)
        self.idle.used_at = now
        throttle_time_ms: int = getattr(reply, "throttle_time_ms", 0)
        if throttle_time_ms > 0:
            self._throttle.extend(throttle_time_ms, now)
        handler.replied(reply, now)

    def _stream_ended(self, reason: Exception | None) -> None:
        if self._error is None:
            tls, replied = self._stream.encrypted, self._pending.replied
            error: KafkaError = (
                closed_by_broker(self.address, replied, tls=tls)
                if reason is None
                else stream_failure(self.address, reason, tls=tls, replied=replied)
            )
            if isinstance(error, BrokerConnectionError):
                error.was_open = reason is None or isinstance(reason, ConnectionError)
            self.abort(error)

    def _timed_out(self, request: PendingRequest) -> None:
        name, limit_ms = request.request_type.__name__, request.timeout_s * 1000
        self.abort(
            RequestTimedOutError(
                f"{self.address}: no reply to {name} within request_timeout_ms={limit_ms:.0f}"
            )
        )

    # -- the end -----------------------------------------------------------------------------------

    def close_when_idle(self, idle_ms: int) -> None:
        """Close the connection once nothing was sent or received for ``idle_ms``."""
        if self._error is None:
            self.idle.start(idle_ms)

    def _close_idle(self, idle_ms: int) -> None:
        self.abort(
            BrokerConnectionError(f"{self.address}: idle for connections_max_idle_ms={idle_ms}")
        )

    def abort(self, error: KafkaError) -> None:
        """Close the connection at once; requests in flight fail with ``error``."""
        if self._error is not None:
            return
        self._error = error
        self._stream.abort()
        self.idle.stop()
        if self.reauthentication is not None:
            self.reauthentication.cancel()
        self._pending.fail(error)
        self.resume()
        self._on_closed(self)

    async def close(self) -> None:
        """Close the connection and wait until the socket is closed, for a second at most.

        Requests that get no reply (acks=0) are sent before, for at most a second if not cancelled.
        """
        try:
            if self._wrote_unanswered and self.unsent_bytes and self._error is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_FLUSH_TIMEOUT_S):
                        await self._deferred.released()
                        await self._stream.flush()
        finally:
            self.abort(BrokerConnectionError(f"{self.address}: closed by this client"))
        await self._stream.closed()
        if self.reauthentication is not None:
            await self.reauthentication.ended()

"""One connection to one broker.

Requests are numbered and replied to in order; each ``send`` returns a future for its reply. The
connection is closed at the first problem (end of the stream, invalid bytes, a reply timeout). All
requests in flight fail then, and the connection is not used again.

Requests can be deferred (``defer``), so that a client can authenticate again (KIP-368) without
losing or reordering any.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from aioprod.closing import all_in_turn
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
from aioprod.protocol.messages.api_versions import ApiVersionsRequest
from aioprod.protocol.primitives import BytesLike

_FLUSH_TIMEOUT_S = 1.0

ResponseT = TypeVar("ResponseT", bound=Message)


class ConnectionTask(Protocol):
    """A task that runs as long as a connection is open."""

    def cancel(self) -> None:
        """Stop, as the connection is closed."""

    async def ended(self) -> None:
        """Wait until the task has ended."""


class Connection:
    """An open connection, which :func:`aioprod.net.handshake.connect` creates.

    Args:
        address: address of the broker, for errors and logs.
        client_id, request_timeout_ms: settings of the client.
        reauthentication: renews the session; cancelled when the connection is closed.
        on_closed: called when the connection is closed.
        on_silence: called every second while a reply is due and the broker sends nothing.

    Attributes:
        versions: for each API key, the lowest and highest version that the broker supports.
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
        self.idle: IdleTimer = IdleTimer(
            lambda: bool(self.in_flight or self.unsent_bytes), self._close_idle
        )
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
        """Connect a socket, trying all addresses of the host. It uses TLS if ``tls`` is given.

        Raises:
            BrokerConnectionError: if the connection is refused, the host does not exist, the port
                does not use TLS, or ``setup_timeout_ms`` has expired.
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
            # macOS raises it if the connection was reset.
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
        """The reason why the connection was closed; None while it is open."""
        return self._error

    @property
    def closed(self) -> bool:
        """True if the connection is closed."""
        return self._error is not None

    @property
    def silent(self) -> bool:
        """True if a reply is due and the broker has sent nothing for a second."""
        return self._error is None and self._pending.silent

    @property
    def waited_s(self) -> float:
        """Seconds for which a reply has been due while the broker sent nothing."""
        return self._pending.waited_s

    @property
    def replied_at(self) -> float:
        """Loop time of the last reply; 0 if there is none."""
        return self._pending.replied_at

    @property
    def round_trip_s(self) -> float:
        """Seconds that the quickest reply took; 0 if there is none."""
        return self._pending.round_trip_s

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a reply or are deferred."""
        return len(self._pending) + len(self._deferred)

    @property
    def deferring(self) -> bool:
        """True while requests are deferred."""
        return self._deferred.active

    @property
    def throttled_until(self) -> float:
        """Loop time until which the broker throttles this client (KIP-219)."""
        return self._throttle.until

    @property
    def throttled(self) -> bool:
        """True while the broker throttles this client."""
        until = self._throttle.until
        return until > 0.0 and until > self._loop.time()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that are buffered for the socket or deferred."""
        return self._stream.unsent_bytes + self._deferred.size_bytes

    def pick_version(self, request_type: type[Request[Any]], newest: int | None = None) -> int:
        """Return the highest version of a request that both sides support.

        Args:
            newest: highest version to use; None for the highest that the client supports.

        Raises:
            UnsupportedVersionError: if there is no such version.
        """
        theirs = self.versions.get(request_type.API_KEY)
        limit = request_type.MAX_VERSION
        if newest is not None and newest < limit:
            limit = newest
        if theirs is not None:
            version = theirs[1] if theirs[1] < limit else limit
            if version >= theirs[0] and version >= request_type.MIN_VERSION:
                return version
        raise no_common_version(self.address, request_type, theirs, limit)

    def trust(self) -> None:
        """Accept large replies from now on. Called when the login is complete."""
        self._stream.accept(MAX_REPLY_BYTES)

    # -- requests ----------------------------------------------------------------------------------

    def next_correlation_id(self) -> int:
        """Return a correlation id for the next request."""
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

        While the broker throttles this client, the request is delayed. The limit on this delay, and
        again on the wait for the reply, is ``timeout_ms``, by default ``request_timeout_ms``.

        Args:
            version: version of the request; by default the highest that both sides support.
            at_once: send the request even while others are deferred or throttled.

        Raises:
            BrokerConnectionError, RequestTimedOutError, ProtocolError: if the connection is closed.
            RequestTimedOutError: if the broker throttles this client for longer than the limit; the
                connection stays open.
            UnsupportedVersionError: if client and broker have no version in common.
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
        del frame  # it may contain a secret, and tracebacks contain this frame's variables
        return cast("ResponseT", await future)

    def send(
        self,
        buffers: Sequence[bytes | memoryview],
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        timeout_ms: float | None = None,
        at_once: bool = False,
    ) -> asyncio.Future[Message]:
        """Write an encoded request. Return a future, whose result is the reply.

        Never blocks: callers limit their requests in flight.
        """
        reply: FutureReply[Message] = FutureReply(self._loop.create_future())
        self.post(buffers, request_type, version, correlation_id, reply, timeout_ms, at_once)
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
        """Write an encoded request. ``handler`` gets the reply as ``decode`` returns it."""
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
            # The transport has not reported the end yet. From Python 3.12 on, writing would raise.
            if request is not None:
                self._pending.sent(request, now)
            self._stream_ended(None)
            return
        self._stream.write(buffers)
        self.idle.used_at = now
        if request is not None:
            self._pending.sent(request, now)

    def defer(self) -> None:
        """Defer requests from now on, until :meth:`resume` sends them in their order."""
        if self._error is None:
            self._deferred.defer()

    def resume(self) -> None:
        """Send the deferred requests, and defer no further ones."""
        all_in_turn(partial(self._resume, *each) for each in self._deferred.release())

    def _resume(
        self, buffers: Sequence[bytes | memoryview], request: PendingRequest | None
    ) -> None:
        if self._error is None:
            self._write(buffers, request)
        elif request is not None:
            request.waiter.failed(self._error)

    async def all_replied(self) -> None:
        """Wait until no request is in flight. Only one task may wait at a time.

        Raises:
            KafkaError: if the connection is closed.
        """
        if self._error is not None:
            raise self._error
        await self._pending.all_replied()

    async def drained(self) -> None:
        """Wait until the socket accepts more bytes, or the connection is closed."""
        await self._deferred.released()
        self._pending.watch_blocked()
        await self._stream.writable()

    # -- events ------------------------------------------------------------------------------------

    def _reply_received(self, frame: BytesLike) -> None:
        if self._error is not None:
            return  # the previous reply, in the same bytes, has closed the connection
        now = self._loop.time()
        handler, reply = self._pending.reply_received(frame, now)
        try:
            self.idle.used_at = now
            throttle_time_ms: int = getattr(reply, "throttle_time_ms", 0)
            if throttle_time_ms > 0:
                self._throttle.extend(throttle_time_ms, now)
        finally:
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
        asked, limit_ms = request.request_type, request.timeout_s * 1000
        opens = asked.API_KEY == ApiVersionsRequest.API_KEY
        limit = "socket_connection_setup_timeout_ms" if opens else "request_timeout_ms"
        self.abort(
            RequestTimedOutError(
                f"{self.address}: no reply to {asked.__name__} within {limit}={limit_ms:.0f}"
            )
        )

    # -- the end -----------------------------------------------------------------------------------

    def close_when_idle(self, idle_ms: int) -> None:
        """Close the connection once nothing has been sent or received for ``idle_ms``."""
        if self._error is None:
            self.idle.start(idle_ms)

    def _close_idle(self, idle_ms: int) -> None:
        self.abort(
            BrokerConnectionError(f"{self.address}: idle for connections_max_idle_ms={idle_ms}")
        )

    def abort(self, error: KafkaError) -> None:
        """Close the connection at once. Requests in flight fail with ``error``."""
        if self._error is not None:
            return
        self._error = error
        login = self.reauthentication
        all_in_turn(
            (
                self._stream.abort,
                self.idle.stop,
                *(() if login is None else (login.cancel,)),
                partial(self._pending.fail, error),
                self.resume,
                partial(self._on_closed, self),
            )
        )

    async def close(self) -> None:
        """Close the connection and wait until the socket is closed, for a second at most.

        Buffered requests without a reply (acks=0) are sent first, within a second, unless the call
        is cancelled.
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

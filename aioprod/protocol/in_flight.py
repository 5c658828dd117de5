"""Requests in flight on one connection, and how replies are matched to them.

Objects in, objects out: no socket, clock or event loop. A broker replies to the requests of a
connection in their order, so a reply belongs to the first request in flight. The correlation id
only confirms that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from aioprod.errors import ProtocolError
from aioprod.protocol.message import Request
from aioprod.protocol.primitives import BytesLike

WaiterT = TypeVar("WaiterT")
Decoder = Callable[[type[Request[Any]], int, BytesLike], tuple[int, Any]]
"""Returns the correlation id and the contents of a reply; raises the errors of
:func:`aioprod.protocol.framing.decode_response`.
"""


class InFlightRequest(Generic[WaiterT]):
    """A request that waits for its reply.

    Attributes:
        waiter: the object that gets the reply; not used here.
        timeout_s: limit on the wait for the reply, in seconds.
        sent_at, expires_at: times by the caller's clock, in seconds; set when the request is sent.
    """

    __slots__ = (
        "correlation_id",
        "decode",
        "expires_at",
        "request_type",
        "sent_at",
        "timeout_s",
        "version",
        "waiter",
    )

    def __init__(
        self,
        correlation_id: int,
        request_type: type[Request[Any]],
        version: int,
        decode: Decoder,
        waiter: WaiterT,
        timeout_s: float,
    ) -> None:
        self.correlation_id: int = correlation_id
        self.request_type: type[Request[Any]] = request_type
        self.version: int = version
        self.decode: Decoder = decode
        self.waiter: WaiterT = waiter
        self.timeout_s: float = timeout_s
        self.sent_at: float = 0.0
        self.expires_at: float = 0.0


class InFlightRequests(Generic[WaiterT]):
    """The requests without a reply, in the order in which they were sent."""

    __slots__ = ("_next_correlation_id", "_requests")

    def __init__(self) -> None:
        self._next_correlation_id = 0
        self._requests: deque[InFlightRequest[WaiterT]] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def first(self) -> InFlightRequest[WaiterT] | None:
        """The request that the next reply belongs to, if any."""
        return self._requests[0] if self._requests else None

    @property
    def first_to_expire(self) -> InFlightRequest[WaiterT] | None:
        """The request whose timeout expires first, if any."""
        return min(self._requests, key=lambda request: request.expires_at, default=None)

    def next_correlation_id(self) -> int:
        """Return a correlation id for the next request."""
        number = self._next_correlation_id
        self._next_correlation_id = (number + 1) & 0x7FFFFFFF
        return number

    def sent(self, request: InFlightRequest[WaiterT], now: float) -> None:
        """Add a request that is sent now."""
        request.sent_at = now
        request.expires_at = now + request.timeout_s
        self._requests.append(request)

    def receive(self, frame: BytesLike) -> tuple[InFlightRequest[WaiterT], Any]:
        """Remove the first request, and return it with its decoded reply.

        Raises:
            ProtocolError: if no request is in flight, or the frame has another correlation id or is
                not a valid reply.
        """
        if not self._requests:
            raise ProtocolError("received a reply, but no request is in flight")
        request = self._requests[0]
        correlation_id, reply = request.decode(request.request_type, request.version, frame)
        if correlation_id != request.correlation_id:
            raise ProtocolError(
                f"received a reply with correlation id {correlation_id}, expected "
                f"{request.correlation_id}"
            )
        self._requests.popleft()
        return request, reply

    def take_all(self) -> deque[InFlightRequest[WaiterT]]:
        """Remove all requests, and return them."""
        requests, self._requests = self._requests, deque()
        return requests

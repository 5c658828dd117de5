"""The requests of a connection: those in flight, with their timeouts and the silence watch, and
deferred ones.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from aioprod.closing import all_in_turn
from aioprod.earliest_timer import EarliestTimer
from aioprod.errors import KafkaError
from aioprod.net.silence import SilenceWatch
from aioprod.protocol.in_flight import InFlightRequest, InFlightRequests
from aioprod.protocol.message import Message
from aioprod.protocol.primitives import BytesLike

ReplyT = TypeVar("ReplyT", bound=Message)


class ReplyHandler(Protocol):
    """Gets the reply to a request, or the error if the connection is closed."""

    def replied(self, reply: Any, now: float) -> None:
        """Handle a reply that was received at loop time ``now``, as the request's decoder returned
        it. Called while the connection reads: an exception would close it.
        """

    def failed(self, error: KafkaError) -> None:
        """Handle the error. Called while the connection is being closed, so it must only schedule
        further work.
        """


class FutureReply(Generic[ReplyT]):
    """Sets the reply as the result of a future."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[ReplyT]) -> None:
        self.future: asyncio.Future[ReplyT] = future

    def replied(self, reply: ReplyT, now: float) -> None:
        """Set the result."""
        if not self.future.done():
            self.future.set_result(reply)

    def failed(self, error: KafkaError) -> None:
        """Set the exception."""
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # asyncio would log it if no task awaits the future


PendingRequest = InFlightRequest[ReplyHandler]


class PendingRequests(InFlightRequests[ReplyHandler]):
    """The requests in flight of a connection.

    Args:
        on_timeout: called with the first request whose timeout has expired.
        on_silence: called every second while a reply is due and the broker sends nothing.
        blocked_since: returns the loop time from which on the socket has accepted no bytes, or
            None.

    Attributes:
        replied: number of replies received.
        replied_at: loop time of the last one; 0 if there is none.
        round_trip_s: how long the quickest one took; 0 if there is none.
    """

    def __init__(
        self,
        on_timeout: Callable[[PendingRequest], None],
        on_silence: Callable[[], object],
        blocked_since: Callable[[], float | None],
    ) -> None:
        super().__init__()
        self.replied: int = 0
        self._loop = asyncio.get_running_loop()
        self._on_timeout = on_timeout
        self._blocked_since = blocked_since
        self.replied_at: float = 0.0
        self.round_trip_s: float = 0.0
        self._silence = SilenceWatch(self._waiting_since, on_silence)
        # One timer for all requests, as timeouts are rare. It fires at the first timeout or
        # earlier.
        self._timer = EarliestTimer(self._timer_rings)
        self._all_replied: asyncio.Future[None] | None = None

    def sent(self, request: PendingRequest, now: float) -> None:
        """Add a request that is sent now. Its timeout begins."""
        super().sent(request, now)
        if request.expires_at < self._timer.due:
            self._timer.set(request.expires_at)
        self._silence.begin()

    def reply_received(self, frame: BytesLike, now: float) -> tuple[ReplyHandler, Any]:
        """Remove the request that a reply belongs to. Return its handler and the decoded reply.

        Raises:
            ProtocolError: if it belongs to no request, or is invalid.
        """
        request, reply = self.receive(frame)
        took_s = now - request.sent_at
        if took_s < self.round_trip_s or not self.replied:
            self.round_trip_s = took_s
        self.replied += 1
        self.replied_at = now
        if self._all_replied is not None and not self:
            _complete(self._all_replied)
            self._all_replied = None
        return request.waiter, reply

    async def all_replied(self) -> None:
        """Wait until no request is in flight. Only one task may wait at a time.

        Raises:
            KafkaError: if the connection is closed first.
        """
        if self:
            self._all_replied = self._loop.create_future()
            await self._all_replied

    def fail(self, error: KafkaError) -> None:
        """Fail all requests and stop the timers. Called when the connection is closed."""
        requests = self.take_all()
        all_in_turn(
            (
                self._silence.stop,
                self._timer.stop,
                *(partial(request.waiter.failed, error) for request in requests),
            )
        )
        if self._all_replied is not None:
            _complete(self._all_replied, error)

    def watch_blocked(self) -> None:
        """Also watch for silence while the socket accepts no bytes."""
        self._silence.begin()

    @property
    def silent(self) -> bool:
        """True if a reply is due and the broker has sent nothing for a second."""
        return self._silence.silent

    @property
    def waited_s(self) -> float:
        """Seconds for which a reply has been due while the broker sent nothing."""
        return self._silence.waited_s

    def _waiting_since(self) -> float | None:
        first = self.first
        if first is not None:
            return max(first.sent_at, self.replied_at)
        return self._blocked_since()

    def _timer_rings(self, now: float) -> None:
        first = self.first_to_expire
        if first is None:
            return
        if first.expires_at > now:
            self._timer.set(first.expires_at)
        else:
            self._on_timeout(first)


#: An encoded request, and its pending request; None if it gets no reply (acks=0).
DeferredRequest = tuple[Sequence[bytes | memoryview], PendingRequest | None]


class DeferredRequests:
    """Encoded requests that are deferred until the client has authenticated again (KIP-368).

    Attributes:
        active: True while requests are deferred.
        size_bytes: the size of the deferred requests.
    """

    __slots__ = ("_released", "_requests", "active", "size_bytes")

    def __init__(self) -> None:
        self.active: bool = False
        self.size_bytes: int = 0
        self._requests: deque[DeferredRequest] = deque()
        self._released = asyncio.Event()

    def __len__(self) -> int:
        return len(self._requests)

    def defer(self) -> None:
        """Defer requests from now on."""
        if not self.active:
            self.active = True
            self._released.clear()

    def append(self, buffers: Sequence[bytes | memoryview], request: PendingRequest | None) -> None:
        """Add a request."""
        self._requests.append((buffers, request))
        self.size_bytes += sum(map(len, buffers))

    def release(self) -> deque[DeferredRequest]:
        """Stop deferring, and return the deferred requests in their order."""
        requests, self._requests = self._requests, deque()
        self.active = False
        self.size_bytes = 0
        self._released.set()
        return requests

    async def released(self) -> None:
        """Wait until requests are no longer deferred."""
        if self.active:
            await self._released.wait()


def _complete(future: asyncio.Future[None], error: KafkaError | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)

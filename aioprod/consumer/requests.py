"""Sends requests without waiting: each has a future or a handler, and is sent when its node is
connected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aioprod.closing import all_in_turn
from aioprod.config.client import ClientConfig
from aioprod.errors import BrokerConnectionError, KafkaError, RequestTimedOutError
from aioprod.net.brokers import Brokers
from aioprod.net.connection import Connection
from aioprod.net.pending_requests import FutureReply, ReplyHandler
from aioprod.protocol.framing import decode_response, decode_with_views, encode_request
from aioprod.protocol.message import Message, Request
from aioprod.protocol.messages.fetch import FetchRequest

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(slots=True)
class _Unsent:
    message: Request[Any]
    newest: int | None
    handler: ReplyHandler
    created: float

    @property
    def withdrawn(self) -> bool:
        """True if the future was cancelled."""
        return isinstance(self.handler, FutureReply) and self.handler.future.done()


class Requests:
    """Queues requests for each node until it is connected.

    Queued requests fail if the connection can't be opened or breaks, and after
    ``request_timeout_ms``. Everything runs in callbacks of the event loop, not in a task, which
    could be cancelled.

    Args:
        config: timeouts.
        brokers: the connections; their ``on_change`` calls :meth:`brokers_changed`.
        on_change: called after a connection has opened or closed.
    """

    def __init__(
        self, config: ClientConfig, brokers: Brokers, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._limit_s = config.request_timeout_ms / 1000
        self._brokers = brokers
        self._unsent: dict[int, deque[_Unsent]] = {}
        self._timer: asyncio.Handle | None = None
        self._closed = False
        self._on_change = on_change

    @property
    def unsent(self) -> int:
        """The number of requests that wait for a connection."""
        return sum(map(len, self._unsent.values()))

    def send(
        self, node_id: int, message: Request[ResponseT], newest: int | None = None
    ) -> asyncio.Future[ResponseT]:
        """Send a request in the newest version that both sides know, up to ``newest``; never wait.

        The future's error is BrokerConnectionError, RequestTimedOutError or ProtocolError if there
        is no usable response, UnsupportedVersionError if the broker is too old, and
        AuthenticationError if it refuses this client. Cancelling the future withdraws a request
        that is not sent yet.
        """
        reply: FutureReply[ResponseT] = FutureReply(asyncio.get_running_loop().create_future())
        self.post(node_id, message, reply, newest)
        return reply.future

    def post(
        self,
        node_id: int,
        message: Request[Any],
        handler: ReplyHandler,
        newest: int | None = None,
    ) -> None:
        """Send a request as :meth:`send` does; ``handler`` gets the reply, or the error. A future's
        callback would get it in the next turn of the event loop.
        """
        connection = self._brokers.live(node_id)
        if connection is not None and node_id not in self._unsent and not connection.throttled:
            _send_now(connection, message, newest, handler)
            return
        now = asyncio.get_running_loop().time()
        if (refusal := self._refusal(node_id, now)) is not None:
            handler.failed(refusal)
        else:
            unsent = _Unsent(message, newest, handler, now)
            self._unsent.setdefault(node_id, deque()).append(unsent)
            self._brokers.start_connecting(node_id)
            self._look_again()

    def connect(self, node_id: int) -> None:
        """Start to connect to a node, for later requests; never wait."""
        if not self._closed:
            self._brokers.start_connecting(node_id)

    def round_trip_s(self, node_id: int) -> float:
        """Return how long the quickest reply of a node took; 0 if it is not connected."""
        connection = self._brokers.live(node_id)
        return 0.0 if connection is None else connection.round_trip_s

    def connected(self, node_id: int) -> bool:
        """Return whether a connection to a node is open."""
        return self._brokers.live(node_id) is not None

    def close(self) -> None:
        """Fail the unsent requests, and all later ones."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for node_id in list(self._unsent):
            self._fail(node_id, BrokerConnectionError("the client is closed"))

    def _refusal(self, node_id: int, now: float) -> KafkaError | None:
        """Return why nothing can be sent to a node now: it has left the cluster, or is in backoff;
        None if it can.
        """
        if self._closed or not self._brokers.knows(node_id):
            return BrokerConnectionError(
                "the client is closed"
                if self._closed
                else f"broker {node_id} is not in the cluster"
            )
        if self._brokers.live(node_id) is None and now < self._brokers.retry_at(node_id):
            return self._brokers.last_error(node_id) or BrokerConnectionError(
                f"broker {node_id} can't be reached"
            )
        return None

    def brokers_changed(self) -> None:
        """Check the queues: a connection has opened, has closed, or could not be opened."""
        self._look_or_fail()
        self._on_change()

    def _look_or_fail(self) -> None:
        try:
            self._look()
        except Exception as bug:
            for node_id in list(self._unsent):
                self._fail(node_id, KafkaError(f"the request could not be sent: {bug!r}"))
            raise

    def _look(self) -> None:
        """Send the requests that can be sent, and fail those that can't."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for node_id, queue in list(self._unsent.items()):
            connection = self._brokers.live(node_id)
            if connection is not None:
                if connection.throttled_until <= now:
                    del self._unsent[node_id]
                    all_in_turn(partial(_forward, connection, unsent) for unsent in queue)
            elif not self._brokers.connecting(node_id):
                self._fail(
                    node_id,
                    self._brokers.last_error(node_id)
                    or BrokerConnectionError(f"broker {node_id} can't be reached"),
                )
                continue
            while queue and now - queue[0].created >= self._limit_s and node_id in self._unsent:
                late = RequestTimedOutError(
                    f"broker {node_id}: not connected within "
                    f"request_timeout_ms={self._limit_s * 1000:.0f}"
                )
                queue.popleft().handler.failed(late)
            if not queue:
                self._unsent.pop(node_id, None)
        self._look_again()

    def _look_again(self) -> None:
        """Set the timer to the earlier of a timeout and the end of throttling (KIP-219)."""
        if self._timer is not None or not self._unsent:
            return
        loop = asyncio.get_running_loop()
        due = min(queue[0].created for queue in self._unsent.values()) + self._limit_s
        for node_id in self._unsent:
            connection = self._brokers.live(node_id)
            if connection is not None:
                due = min(due, connection.throttled_until)
        self._timer = loop.call_at(max(due, loop.time() + 0.001), self._timer_expired)

    def _timer_expired(self) -> None:
        self._timer = None
        self._look_or_fail()

    def _fail(self, node_id: int, error: KafkaError) -> None:
        unsent = self._unsent.pop(node_id, ())
        all_in_turn(partial(each.handler.failed, error) for each in unsent)


def _send_now(
    connection: Connection, message: Request[Any], newest: int | None, handler: ReplyHandler
) -> None:
    kind = type(message)
    try:
        version = connection.pick_version(kind, newest)
        correlation_id = connection.next_correlation_id()
        frame = encode_request(message, version, correlation_id, connection.client_id)
    except KafkaError as error:
        handler.failed(error)
        return
    decode = decode_with_views if kind is FetchRequest else decode_response
    connection.post([frame], kind, version, correlation_id, handler, decode=decode)


def _forward(connection: Connection, unsent: _Unsent) -> None:
    if unsent.withdrawn:
        return
    try:
        _send_now(connection, unsent.message, unsent.newest, unsent.handler)
    except BaseException as bug:
        unsent.handler.failed(KafkaError(f"the request could not be made: {bug!r}"))
        raise

"""Throttles clients that exceed their quotas: the response contains the throttle time, during which
the broker does not read from the connection (KIP-219).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple
from weakref import WeakKeyDictionary

from aioprod.protocol.message import Message
from aioprod.protocol.messages.fetch import FetchRequest, FetchResponse
from aioprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from aioprod.testing.broker.quotas.quotas import (
    ANONYMOUS,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    ApplicableLimit,
    Quotas,
)

_MOST_METERS = 10_000  # then the oldest is removed
_WINDOW_SECONDS = 1.0  # broker setting quota.window.size.seconds
_WINDOWS = 11  # broker setting quota.window.num
# An idle client may use the quota of this many seconds at once.
_BURST_SECONDS = (_WINDOWS - 1) * _WINDOW_SECONDS


class Client(NamedTuple):
    """The sender of a request and the node that received it. ``connection`` identifies the
    connection, and is done when the client has disconnected.
    """

    node_id: int
    user: str | None
    client_id: str
    connection: asyncio.Future[None]


class Meter:
    """The rate of one entity, measured as in Kafka: sums over eleven windows of one second.

    A new client counts as previously idle: its first bytes are averaged over ten seconds.
    """

    def __init__(self) -> None:
        self._samples: deque[list[float]] = deque()  # the start and the sum of each window

    def add(self, amount: float, now: float) -> None:
        """Count ``amount``. A negative amount reverts an earlier one."""
        if not self._samples or now - self._samples[-1][0] >= _WINDOW_SECONDS:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount
        while now - self._samples[0][0] >= _WINDOWS * _WINDOW_SECONDS:
            self._samples.popleft()

    def excess_seconds(self, limit: float, now: float) -> float:
        """Return the pause after which the rate is at most ``limit`` per second; 0 if it is not
        exceeded.
        """
        total, elapsed = sum(amount for _, amount in self._samples), self._elapsed(now)
        rate = total / elapsed
        return (rate - limit) / limit * elapsed if rate > limit else 0.0

    def _elapsed(self, now: float) -> float:
        """Return the time that the windows cover, at least ten seconds."""
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = _WINDOWS - 1 - int(elapsed / _WINDOW_SECONDS)
        return elapsed + max(missing, 0) * _WINDOW_SECONDS


class Throttle:
    """Counts the bytes of all clients, on each node separately, as Kafka's brokers do."""

    def __init__(self, limits: Quotas) -> None:
        self._limits = limits
        self._meters: dict[tuple[str, int, str, str], Meter] = {}
        self._muted: WeakKeyDictionary[asyncio.Future[None], float] = WeakKeyDictionary()

    async def wait(self, connection: asyncio.Future[None]) -> None:
        """Wait until a connection is no longer muted or the client has disconnected."""
        until = self._muted.pop(connection, None)
        if until is not None:
            left = until - asyncio.get_running_loop().time()
            if left > 0:
                await asyncio.wait((connection,), timeout=left)

    def narrow(self, request: Message, client: Client) -> None:
        """Limit a fetch to the bytes that the quota allows at once: a larger response would never
        be allowed.
        """
        if self._limits and isinstance(request, FetchRequest):
            found = self._limits.limit(
                CONSUMER_BYTE_RATE, client.user or ANONYMOUS, client.client_id
            )
            if found is not None:
                request.max_bytes = min(request.max_bytes, int(found.limit * _BURST_SECONDS))

    def apply(
        self, request: Message, request_size: int, response: Message | None, client: Client
    ) -> None:
        """Count a request and its response. If the quota is exceeded, set the throttle time of the
        response and mute the connection.
        """
        if not self._limits:
            return
        if isinstance(request, ProduceRequest):
            pause = self._charge(PRODUCER_BYTE_RATE, request_size, client, keeps_excess=True)
            if pause and isinstance(response, ProduceResponse):
                response.throttle_time_ms = max(response.throttle_time_ms, int(pause * 1000))
        elif isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
            size = sum(
                len(partition.records or b"")
                for topic in response.responses
                for partition in topic.partitions
            )
            pause = self._charge(CONSUMER_BYTE_RATE, size, client, keeps_excess=False)
            if pause:
                response.throttle_time_ms = max(response.throttle_time_ms, int(pause * 1000))
                # The response has no records this time.
                response.responses, response.node_endpoints = [], []
                response.session_id = request.session_id
        else:
            return
        if pause:
            self._muted[client.connection] = asyncio.get_running_loop().time() + pause

    def _charge(self, key: str, size: int, client: Client, *, keeps_excess: bool) -> float:
        """Count ``size`` bytes and return the pause in seconds. Bytes above the limit are counted
        only if ``keeps_excess``.
        """
        found = self._limits.limit(key, client.user or ANONYMOUS, client.client_id)
        if found is None:
            return 0.0
        meter, now = self._meter(key, client.node_id, found), asyncio.get_running_loop().time()
        meter.add(size, now)
        pause = meter.excess_seconds(found.limit, now)
        if pause and not keeps_excess:
            meter.add(-size, now)
        return pause

    def _meter(self, key: str, node_id: int, found: ApplicableLimit) -> Meter:
        whose = (key, node_id, found.user, found.client_id)
        meter = self._meters.get(whose)
        if meter is None:
            if len(self._meters) >= _MOST_METERS:
                del self._meters[next(iter(self._meters))]
            meter = self._meters[whose] = Meter()
        return meter

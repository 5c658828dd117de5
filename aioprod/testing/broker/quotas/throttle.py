"""Throttles clients that exceed their quotas: the response has the throttle time, in which the
broker does not read from the connection (KIP-219).
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from weakref import WeakKeyDictionary

from aioprod.protocol.message import Message
from aioprod.protocol.messages.fetch import FetchRequest, FetchResponse
from aioprod.protocol.messages.produce import ProduceRequest, ProduceResponse
from aioprod.testing.broker.quotas.meter import BURST_SECONDS, Meter
from aioprod.testing.broker.quotas.quotas import (
    ANONYMOUS,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    ApplicableLimit,
    Quotas,
)

_MOST_METERS = 10_000  # then the oldest is removed


class Client(NamedTuple):
    """The sender of a request and the node that got it. ``connection`` identifies the connection,
    and is done when the client has disconnected.
    """

    node_id: int
    user: str | None
    client_id: str
    connection: asyncio.Future[None]


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
        """Limit a fetch to the bytes that the quota allows at once: a larger response would be
        refused forever.
        """
        if self._limits and isinstance(request, FetchRequest):
            found = self._limits.limit(
                CONSUMER_BYTE_RATE, client.user or ANONYMOUS, client.client_id
            )
            if found is not None:
                request.max_bytes = min(request.max_bytes, int(found.limit * BURST_SECONDS))

    def apply(
        self, request: Message, request_size: int, response: Message | None, client: Client
    ) -> None:
        """Count a request and its response. Above the quota, set the throttle time of the response
        and mute the connection.
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

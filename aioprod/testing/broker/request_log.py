"""The requests that arrived, for tests that inspect them or wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from aioprod.public_module import set_module

_REMEMBERED_REQUESTS = 10_000


class Count:
    """A counter that tasks can wait for."""

    def __init__(self) -> None:
        self.value: int = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def add(self) -> None:
        """Add one, and wake the tasks that wait for the new value."""
        self.value += 1
        for waiter, number in self._waiting.items():
            if self.value >= number and not waiter.done():
                waiter.set_result(None)

    async def reach(self, number: int, timeout_seconds: float) -> bool:
        """Wait until the value is at least ``number``. Return False if it is lower after
        ``timeout_seconds``.
        """
        if self.value >= number:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = number
        try:
            await asyncio.wait([waiter], timeout=timeout_seconds)
        finally:
            del self._waiting[waiter]
        return self.value >= number


@set_module("aioprod.testing")
class SeenRequest(NamedTuple):
    """A request that arrived at a node."""

    api_key: int
    api_version: int
    client_id: str | None
    node_id: int


class RequestLog:
    """The last requests, and the number of requests of each API.

    Attributes:
        requests: the last 10,000, oldest first.
    """

    def __init__(self) -> None:
        self.requests: deque[SeenRequest] = deque(maxlen=_REMEMBERED_REQUESTS)
        self._counts: dict[tuple[int, int | None], Count] = {}

    def add(self, request: SeenRequest) -> None:
        """Record a request."""
        self.requests.append(request)
        self.count(request.api_key, request.node_id).add()
        self.count(request.api_key, None).add()

    def count(self, api_key: int, node_id: int | None) -> Count:
        """Return the counter of an API's requests to a node, or to all nodes if ``node_id`` is
        None.
        """
        return self._counts.setdefault((api_key, node_id), Count())

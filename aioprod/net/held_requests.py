"""Requests that wait until the client has authenticated again (KIP-368)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from aioprod.net.pending_requests import PendingRequest

#: An encoded request, and the request in flight; None if it gets no reply (acks=0).
HeldRequest = tuple[Sequence[bytes], PendingRequest | None]


class HeldRequests:
    """A queue of encoded requests that are not sent while it is ``active``.

    Attributes:
        active: whether requests are held now.
        size_bytes: the size of the held requests.
    """

    __slots__ = ("_released", "_requests", "active", "size_bytes")

    def __init__(self) -> None:
        self.active = False
        self.size_bytes = 0
        self._requests: deque[HeldRequest] = deque()
        self._released = asyncio.Event()

    def __len__(self) -> int:
        return len(self._requests)

    def hold(self) -> None:
        """Hold requests from now on."""
        if not self.active:
            self.active = True
            self._released.clear()

    def append(self, buffers: Sequence[bytes], request: PendingRequest | None) -> None:
        """Hold a request."""
        self._requests.append((buffers, request))
        self.size_bytes += sum(map(len, buffers))

    def release(self) -> deque[HeldRequest]:
        """Stop holding requests, and return the held ones in their order."""
        requests, self._requests = self._requests, deque()
        self.active = False
        self.size_bytes = 0
        self._released.set()
        return requests

    async def released(self) -> None:
        """Wait until requests are no longer held."""
        if self.active:
            await self._released.wait()

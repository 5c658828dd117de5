"""A number that grows, and that a test may wait for."""

from __future__ import annotations

import asyncio


class Count:
    """How often something has happened."""

    def __init__(self) -> None:
        self.value = 0
        self._waiting: dict[asyncio.Future[None], int] = {}

    def add(self) -> None:
        """It has happened once more."""
        self.value += 1
        for waiter, number in self._waiting.items():
            if self.value >= number and not waiter.done():
                waiter.set_result(None)

    async def reach(self, number: int, timeout_seconds: float) -> bool:
        """Wait until it has happened that often in all; False where it has not within the time."""
        if self.value >= number:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = number
        try:
            await asyncio.wait([waiter], timeout=timeout_seconds)
        finally:
            del self._waiting[waiter]
        return self.value >= number

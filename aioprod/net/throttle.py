"""The pauses that a broker requests when a client exceeds its quota (KIP-219)."""

from __future__ import annotations

import asyncio

from aioprod.errors import RequestTimedOutError
from aioprod.net.bounds import MAX_THROTTLE_MS, bounded


class Throttle:
    """Tracks when the broker of one connection accepts requests again.

    Attributes:
        until: loop time at which the pause ends; in the past if the broker accepts requests.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until: float = 0.0

    def extend(self, throttle_time_ms: int, now: float) -> None:
        """Apply the pause that a reply requests, up to ``MAX_THROTTLE_MS``."""
        self.until = max(self.until, now + bounded(throttle_time_ms, 0, MAX_THROTTLE_MS))

    async def wait(self, request: str, address: str, timeout_ms: float) -> None:
        """Wait until the broker accepts requests.

        Args:
            request, address: names for the error.

        Raises:
            RequestTimedOutError: if the pause lasts longer than ``timeout_ms``.
        """
        pause = self.until - asyncio.get_running_loop().time()
        if pause > 0:
            await asyncio.sleep(min(pause, timeout_ms / 1000))
        if pause * 1000 > timeout_ms:
            raise RequestTimedOutError(
                f"{address}: {request} not sent within request_timeout_ms={timeout_ms:.0f}: "
                "the broker throttles this client for another "
                f"{pause * 1000 - timeout_ms:.0f} ms (throttle_time_ms)"
            )

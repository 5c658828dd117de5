"""The interface between a workload and its clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

Assigned = Callable[[int | None, list[int]], None]
"""Called with the partitions that a member was assigned, and their generation if the client shows
it.
"""
POLL_S = 0.1
LIMIT_S = 30.0
"""Each call of a client ends within this time, errors included."""
DELIVERY_S = 25
"""Seconds for which clients try to deliver a record, and the limit that calls are given, which may
take a moment longer.
"""


class Budget:
    """The time of a call of several requests with a limit each: together they end within
    `DELIVERY_S`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = clock() + DELIVERY_S

    @property
    def rest_s(self) -> float:
        """The seconds that are left, at least a millisecond: 0 would be another request."""
        return max(0.001, self._until - self._clock())

    @property
    def rest_ms(self) -> int:
        """The same in milliseconds."""
        return int(self.rest_s * 1000)


class Sender(Protocol):
    """Sends records, in transactions if it has a transactional id."""

    async def start(self) -> None:
        """Connect, and fence older producers of the transactional id."""

    async def send(self, partition: int, value: int) -> int | None:
        """Send a value and return its offset once it is acknowledged."""

    async def begin(self) -> None:
        """Begin a transaction."""

    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction."""

    async def close(self) -> None:
        """Release everything."""


class Member(Protocol):
    """A member of a group, which reads committed records."""

    async def start(self) -> None:
        """Join the group."""

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        """Return the next records: partition, offset and value."""

    async def commit(self) -> dict[int, int]:
        """Commit the positions, and return them by partition."""

    async def close(self) -> None:
        """Leave the group."""

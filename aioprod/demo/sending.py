"""Sends every flight with ``await producer.send(...)`` and checks every delivery, with a bounded
number of open deliveries.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aioprod.demo.flights import encode
from aioprod.errors import KafkaError

if TYPE_CHECKING:
    from aioprod import Delivery, Producer
    from aioprod.demo.flights import Flights

CHUNK_RECORDS = 4096
"""Records sent between two checks of the clock, progress bar updates and yields."""

MAX_OPEN_CHUNKS = 16
"""Maximum chunks with open deliveries: bounds memory, as the producer's ``buffer_memory`` does."""

PACED_CHUNKS_PER_SECOND = 10
"""With a rate, chunks are small enough to send this many per second."""


class FlightTopics(NamedTuple):
    """The two topics' names."""

    flights: str
    cancelled: str


@dataclass(frozen=True, slots=True)
class SendReport:
    """The outcomes of the flights sent.

    Attributes:
        sent: records that ``send`` accepted.
        acknowledged: the number of these that the broker acknowledged.
        acknowledged_cancelled: acknowledged records of the topic of cancelled flights.
        failed: records whose delivery failed; ``sent - acknowledged - failed`` were still open when
            the demo was ended.
        seconds: from the first ``send`` to the last acknowledgment.
        first_error: the reason of the first failed delivery.
    """

    sent: int
    acknowledged: int
    acknowledged_cancelled: int
    failed: int
    seconds: float
    first_error: str | None

    @property
    def acknowledged_flights(self) -> int:
        """Acknowledged records of the topic of departed flights."""
        return self.acknowledged - self.acknowledged_cancelled

    @property
    def records_per_second(self) -> float:
        """Acknowledged records per second of sending."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0


class _Chunk(NamedTuple):
    departed: list[Delivery]
    cancelled: list[Delivery]


class FlightSender:
    """Sends flights and counts outcomes. ``run`` may be cancelled at any time; ``finish`` then
    waits for open deliveries.
    """

    def __init__(
        self,
        producer: Producer,
        flights: Flights,
        topics: FlightTopics,
        *,
        rate: float | None = None,
        on_progress: Callable[[int], None] = lambda sent: None,
    ) -> None:
        """Limit records per second to ``rate``; call ``on_progress`` with the records sent so far,
        at most a few hundred times per second.
        """
        self._producer = producer
        self._flights = flights
        self._topics = topics
        self._rate = rate
        self._on_progress = on_progress
        self._open: deque[_Chunk] = deque()
        self._started_at = self._ended_at = time.perf_counter()
        self._sent = self._acknowledged = self._acknowledged_cancelled = self._failed = 0
        self._first_error: str | None = None

    async def run(self) -> None:
        """Send all flights and wait for every delivery.

        Raises:
            KafkaError: if ``send`` itself refused a record, for example because no buffer memory
                was free in time.
        """
        self._started_at = self._ended_at = time.perf_counter()
        for lines in self._chunks():
            chunk = _Chunk([], [])
            self._open.append(chunk)
            for line in lines:
                key, value, cancelled = encode(line)
                if cancelled:
                    chunk.cancelled.append(
                        await self._producer.send(self._topics.cancelled, value, key)
                    )
                else:
                    chunk.departed.append(
                        await self._producer.send(self._topics.flights, value, key)
                    )
            self._sent += len(lines)
            self._on_progress(self._sent)
            await self._pause()
            while len(self._open) > MAX_OPEN_CHUNKS:
                await self._count_oldest()
        await self._producer.flush()
        await self.finish()

    async def finish(self) -> None:
        """Wait for all open deliveries."""
        while self._open:
            await self._count_oldest()

    def report(self) -> SendReport:
        """Return the counts so far, including acknowledged deliveries of open chunks."""
        acknowledged, cancelled, failed = (
            self._acknowledged,
            self._acknowledged_cancelled,
            self._failed,
        )
        sent = acknowledged + failed
        for chunk in self._open:
            departed_ok, departed_bad = _finished(chunk.departed)
            cancelled_ok, cancelled_bad = _finished(chunk.cancelled)
            sent += len(chunk.departed) + len(chunk.cancelled)
            acknowledged += departed_ok + cancelled_ok
            cancelled += cancelled_ok
            failed += departed_bad + cancelled_bad
        return SendReport(
            sent,
            acknowledged,
            cancelled,
            failed,
            self._ended_at - self._started_at,
            self._first_error,
        )

    def _chunks(self) -> Iterator[list[bytes]]:
        size = CHUNK_RECORDS
        if self._rate is not None:
            size = max(1, min(size, int(self._rate / PACED_CHUNKS_PER_SECOND)))
        lines = self._flights.lines
        return (lines[start : start + size] for start in range(0, len(lines), size))

    async def _pause(self) -> None:
        """Yield to other tasks; with a rate, until the next chunk is due."""
        ahead = 0.0
        if self._rate is not None:
            ahead = self._started_at + self._sent / self._rate - time.perf_counter()
        await asyncio.sleep(max(0.0, ahead))

    async def _count_oldest(self) -> None:
        chunk = self._open[0]
        for delivery in chunk.departed:
            if not delivery.done():
                await _wait(delivery)
        for delivery in chunk.cancelled:
            if not delivery.done():
                await _wait(delivery)
        # Nothing suspends from here on, so a cancelled finish() counts no chunk twice.
        self._open.popleft()
        for deliveries in chunk:
            for delivery in deliveries:
                error = delivery.exception()
                if error is None:
                    self._acknowledged += 1
                else:
                    self._failed += 1
                    self._first_error = self._first_error or str(error)
        self._acknowledged_cancelled += sum(
            1 for delivery in chunk.cancelled if delivery.exception() is None
        )
        self._ended_at = time.perf_counter()


async def _wait(delivery: Delivery) -> None:
    try:
        await delivery
    except KafkaError:
        pass  # counted by its chunk


def _finished(deliveries: list[Delivery]) -> tuple[int, int]:
    """Return how many were acknowledged and how many failed, of those that are done."""
    done = [delivery for delivery in deliveries if delivery.done()]
    acknowledged = sum(1 for delivery in done if delivery.exception() is None)
    return acknowledged, len(done) - acknowledged

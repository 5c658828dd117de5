"""Sending: every flight with ``await producer.send(...)``, every delivery checked, a bounded number
of them open at a time.
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
"""Records sent between two looks at the clock, the progress bar and the other tasks."""

MAX_OPEN_CHUNKS = 16
"""Chunks whose deliveries may still be open: what bounds memory beside the producer's own
``buffer_memory``.
"""

PACED_CHUNKS_PER_SECOND = 10
"""With a rate, chunks are so small that this many leave in a second."""


class FlightTopics(NamedTuple):
    """The two topics' names."""

    flights: str
    cancelled: str


@dataclass(frozen=True, slots=True)
class SendReport:
    """What became of the flights handed to the producer.

    Attributes:
        sent: records that ``send`` took.
        acknowledged: of these, records that the broker acknowledged.
        acknowledged_cancelled: of the acknowledged, those of the topic of cancelled flights.
        failed: records whose delivery failed; ``sent - acknowledged - failed`` were still open when
            the demo was ended.
        seconds: from the first ``send`` to the last acknowledgement.
        first_error: the first failed delivery's reason.
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
        """Acknowledged records for each second of sending."""
        return self.acknowledged / self.seconds if self.seconds > 0 else 0.0


class _Chunk(NamedTuple):
    departed: list[Delivery]
    cancelled: list[Delivery]


class FlightSender:
    """Sends flights and keeps the tally. ``run`` may be cancelled at any time; ``settle`` then
    waits for what is still open.
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
        """``rate`` limits records per second; ``on_progress`` is called with the records sent so
        far, a few hundred times a second at most.
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
            KafkaError: ``send`` itself refused a record, for example as no buffer memory came free
                in time.
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
                await self._settle_oldest()
        await self._producer.flush()
        await self.settle()

    async def settle(self) -> None:
        """Wait for every delivery that is still open."""
        while self._open:
            await self._settle_oldest()

    def report(self) -> SendReport:
        """The tally so far: open deliveries that are already acknowledged count too."""
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
        """Let the other tasks run; with a rate, until the next chunk is due."""
        ahead = 0.0
        if self._rate is not None:
            ahead = self._started_at + self._sent / self._rate - time.perf_counter()
        await asyncio.sleep(max(0.0, ahead))

    async def _settle_oldest(self) -> None:
        chunk = self._open[0]
        for delivery in chunk.departed:
            if not delivery.done():
                await _wait(delivery)
        for delivery in chunk.cancelled:
            if not delivery.done():
                await _wait(delivery)
        # From here on nothing suspends, so a cancelled settle() counts no chunk twice.
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
    """How many were acknowledged and how many failed, of those that are done."""
    done = [delivery for delivery in deliveries if delivery.done()]
    acknowledged = sum(1 for delivery in done if delivery.exception() is None)
    return acknowledged, len(done) - acknowledged

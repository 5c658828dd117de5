"""Sends the rows of a write task, both at-least-once and exactly-once."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import KafkaError
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.producer import Producer
from aioprod.spark.arrow import NoTopicError, by_topic, payload_bytes
from aioprod.spark.errors import SinkError
from aioprod.spark.waiting import named_wait

# Spark's batches of 10,000 rows are joined if more are available: 30,000 rows of 100 B take 15-25%
# less CPU than three times 10,000.
_PORTION_BYTES = 3 << 20
# If Spark provides rows more slowly than this, available rows are sent.
_PORTION_S = 0.05
# While brokers are busy, more rows are joined: each portion is one batch per partition, and a
# broker takes as long for a batch of 10 rows as for one of 100. 100,000 rows for 1,000 partitions
# took four times as long in portions of 10,000.
_MOST_KEPT_BYTES = 16 << 20
_IN_FLIGHT = 2
_DELIVERY_LIMIT = "kafka.delivery.timeout.ms, and kafka.max.block.ms for new topics and memory"
# Rows may take hours to compute.
_SPARKS_LIMITS = "none but Spark's own, see docs/spark.md"


async def portions(batches: Iterator[pa.RecordBatch]) -> AsyncIterator[pa.RecordBatch]:
    """Yield all rows, about 3 MiB at a time; never an empty batch. Spark provides them over a
    blocking socket, so a thread waits for them.
    """
    wait_s = 0.0  # a task connects as soon as it has rows, while Spark provides more
    while portion := await _rows_from_spark(batches, wait_s):
        for batch in portion:
            yield batch
        wait_s = _PORTION_S


async def _rows_from_spark(
    batches: Iterator[pa.RecordBatch], wait_s: float
) -> list[pa.RecordBatch]:
    with named_wait("waiting for rows from Spark", _SPARKS_LIMITS):
        return await asyncio.to_thread(_portion, batches, wait_s)


def _portion(batches: Iterator[pa.RecordBatch], wait_s: float) -> list[pa.RecordBatch]:
    """Return the batches that Spark provides within ``wait_s``, at least one; empty at the end."""
    found: list[pa.RecordBatch] = []
    size, deadline = 0, time.monotonic() + wait_s
    for batch in batches:
        if batch.num_rows:
            found.append(batch)
            size += batch.nbytes
        if found and (size >= _PORTION_BYTES or time.monotonic() >= deadline):
            break
    return _joined(found)


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    joined: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _done(sent: Sequence[Deliveries]) -> bool:
    return all(deliveries.done() for deliveries in sent)


class RowSender:
    """Sends Arrow batches and checks their results later: brokers process two while Spark provides
    the next. If the brokers are slower than Spark, it collects rows and sends more at once.

    Args:
        producer: a started producer, with an open transaction if it is transactional.
        topic: the topic of all rows; None to use the column ``topic``.
        see: called with each topic and its rows.

    Attributes:
        rows, payload_bytes: the number of rows sent, and the size of their keys and values in
            bytes.
        topics: the topics of the rows.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str | None,
        see: Callable[[str, pa.RecordBatch], None] = lambda topic, rows: None,
    ) -> None:
        self.rows: int = 0
        self.payload_bytes: int = 0
        self.topics: set[str] = set()
        self._producer = producer
        self._topic = topic
        self._see = see
        self._in_flight: deque[list[Deliveries]] = deque()
        self._kept: list[pa.RecordBatch] = []

    async def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch, or keep it for the next call while brokers are busy.

        Raises:
            SinkError: if a row can't be sent, or a row of an earlier batch was not acknowledged.
        """
        self._kept.append(batch)
        busy = len(self._in_flight) == _IN_FLIGHT and not _done(self._in_flight[0])
        if busy and sum(kept.nbytes for kept in self._kept) < _MOST_KEPT_BYTES:
            return
        with named_wait(f"writing rows {self.rows} and following", _DELIVERY_LIMIT):
            await self._send_kept()
            while len(self._in_flight) > _IN_FLIGHT or (
                self._in_flight and _done(self._in_flight[0])
            ):
                await self._check(self._in_flight.popleft())

    async def finish(self) -> None:
        """Wait until every row is acknowledged.

        Raises:
            SinkError: if a row was not acknowledged.
        """
        with named_wait(f"writing the last of {self.rows} rows", _DELIVERY_LIMIT):
            await self._send_kept()
            await self._producer.flush()
            while self._in_flight:
                await self._check(self._in_flight.popleft())

    async def _send_kept(self) -> None:
        kept, self._kept = self._kept, []
        sent: list[Deliveries] = []
        for batch in _joined(kept):
            sent += await self._send(batch)
        if sent:
            self._in_flight.append(sent)

    async def _send(self, batch: pa.RecordBatch) -> list[Deliveries]:
        sent: list[Deliveries] = []
        for topic, numbers, rows in topics_of(batch, self._topic, self.rows):
            try:
                deliveries = await self._producer.send_arrow(topic, rows)
            except KafkaError as error:
                raise SinkError(
                    f"rows {self.rows} to {self.rows + batch.num_rows - 1} of this task, for "
                    f"topic {topic}: {error}"
                ) from error
            # Rows that can't be sent are known immediately, by number.
            for number, refusal in deliveries.exceptions().items():
                raise SinkError(
                    f"row {self.rows + numbers[number]} of this task, for topic {topic}: {refusal}"
                ) from refusal
            self._see(topic, rows)
            self.topics.add(topic)
            sent.append(deliveries)
        self.rows += batch.num_rows
        self.payload_bytes += payload_bytes(batch)
        return sent

    async def _check(self, sent: Sequence[Deliveries]) -> None:
        """Wait for each acknowledgement; the first failure fails the task."""
        for deliveries in sent:
            try:
                await deliveries.wait()
            except KafkaError as error:
                raise SinkError(f"a row was not acknowledged: {error}") from error


def topics_of(
    batch: pa.RecordBatch, topic: str | None, first_row: int
) -> Iterator[tuple[str, Sequence[int], pa.RecordBatch]]:
    """Yield the rows for each topic, as `arrow.by_topic` does.

    Raises:
        SinkError: if a row has no topic.
    """
    try:
        yield from by_topic(batch, topic)
    except NoTopicError as error:
        raise SinkError(
            f"row {first_row + int(error.args[0])} of this task: topic is null; set the "
            "option topic or fill the column"
        ) from None

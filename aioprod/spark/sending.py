"""Sending the rows of a write task, whatever is promised about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import KafkaError
from aioprod.producer.deliveries import Deliveries
from aioprod.producer.producer import Producer
from aioprod.spark.arrow import NoTopicError, by_topic, payload_bytes
from aioprod.spark.errors import SinkError


class RowSender:
    """Sends Arrow batches, and learns what became of each one batch later: the brokers work on one while Spark makes the next.

    Args:
        producer: started, and with an open transaction where it is transactional.
        topic: of all rows; None: the column ``topic`` says it.
        see: called with each topic and the rows that go there.

    Attributes:
        rows, payload_bytes: how many rows were taken, and the bytes of their keys and values.
        topics: where they go.
    """

    def __init__(self, producer: Producer, topic: str | None, see: Callable[[str, pa.RecordBatch], None] = lambda topic, rows: None) -> None:
        self.rows = 0
        self.payload_bytes = 0
        self.topics: set[str] = set()
        self._producer = producer
        self._topic = topic
        self._see = see
        self._before: list[Deliveries] = []

    async def send(self, batch: pa.RecordBatch) -> None:
        """Take a batch.

        Raises:
            SinkError: a row of it can't be sent, or one of the batch before was not acknowledged.
        """
        sent = await self._send(batch)
        await self._check(self._before)
        self._before = sent

    async def finish(self) -> None:
        """Wait until every row is acknowledged.

        Raises:
            SinkError: one was not.
        """
        await self._producer.flush()
        await self._check(self._before)

    async def _send(self, batch: pa.RecordBatch) -> list[Deliveries]:
        sent: list[Deliveries] = []
        for topic, numbers, rows in topics_of(batch, self._topic, self.rows):
            try:
                deliveries = await self._producer.send_arrow(topic, rows)
            except KafkaError as error:
                raise SinkError(f"rows {self.rows} to {self.rows + batch.num_rows - 1} of this task, for topic {topic}: {error}") from error
            # What can't be sent at all is known at once, and by its row.
            for number, refusal in deliveries.exceptions().items():
                raise SinkError(f"row {self.rows + numbers[number]} of this task, for topic {topic}: {refusal}") from refusal
            self._see(topic, rows)
            self.topics.add(topic)
            sent.append(deliveries)
        self.rows += batch.num_rows
        self.payload_bytes += payload_bytes(batch)
        return sent

    async def _check(self, sent: Sequence[Deliveries]) -> None:
        """Wait for each acknowledgement; the first failure ends the task."""
        for deliveries in sent:
            try:
                await deliveries.wait()
            except KafkaError as error:
                raise SinkError(f"a row was not acknowledged: {error}") from error


def topics_of(batch: pa.RecordBatch, topic: str | None, first_row: int) -> Iterator[tuple[str, Sequence[int], pa.RecordBatch]]:
    """The rows for each topic, as `arrow.by_topic` gives them.

    Raises:
        SinkError: a row names no topic.
    """
    try:
        yield from by_topic(batch, topic)
    except NoTopicError as error:
        raise SinkError(f"row {first_row + int(error.args[0])} of this task: topic is null; set the option topic or fill the column") from None

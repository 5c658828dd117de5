"""A producer and a consumer for synchronous tests. Their calls run on an event loop in another
thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from anyio.from_thread import BlockingPortal

from aioprod import ConsumerRecord, Producer
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer
from aioprod.types import Headers, RecordMetadata

__all__ = ["BlockingConsumer", "BlockingProducer"]


class BlockingProducer:
    """The most useful methods of :class:`aioprod.Producer`; each waits for its result."""

    def __init__(self, producer: Producer, portal: BlockingPortal) -> None:
        self._producer = producer
        self._portal = portal

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """See :meth:`aioprod.Producer.send_and_wait`."""
        return self._portal.call(
            lambda: self._producer.send_and_wait(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

    def send_many(self, topic: str, records: Iterable[Any]) -> list[RecordMetadata]:
        """Send values or ``ProducerRecord`` objects, and wait until the broker has acknowledged all
        of them. Raise the first record's error.
        """
        return self._portal.call(self._send_many, topic, list(records))

    async def _send_many(self, topic: str, records: list[Any]) -> list[RecordMetadata]:
        return [await delivery for delivery in await self._producer.send_many(topic, records)]

    def flush(self, timeout_ms: float | None = None) -> None:
        """See :meth:`aioprod.Producer.flush`."""
        self._portal.call(self._producer.flush, timeout_ms)

    def init_transactions(self) -> None:
        """See :meth:`aioprod.Producer.init_transactions`."""
        self._portal.call(self._producer.init_transactions)

    @contextmanager
    def transaction(self) -> Iterator[BlockingProducer]:
        """Commit at the end of the ``with`` block, or abort if it raises; see
        :meth:`aioprod.Producer.transaction`.
        """
        with self._portal.wrap_async_context_manager(self._producer.transaction()):
            yield self


class BlockingConsumer:
    """The methods of :class:`TopicConsumer`, with ``for`` instead of ``async for``."""

    def __init__(self, consumer: TopicConsumer, portal: BlockingPortal) -> None:
        self._consumer = consumer
        self._portal = portal

    def getone(self, timeout_ms: float | None = None) -> ConsumerRecord:
        """See :meth:`TopicConsumer.getone`."""
        record: ConsumerRecord = self._portal.call(self._consumer.getone, timeout_ms)
        return record

    def getmany(self, max_records: int, timeout_ms: float | None = None) -> list[ConsumerRecord]:
        """See :meth:`TopicConsumer.getmany`."""
        return self._portal.call(self._consumer.getmany, max_records, timeout_ms)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        while True:
            yield self.getone()

"""Shared by the consumer's tests: a consumer that does not wait long, and topics of numbers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from aioprod import Consumer, ConsumerRecord, Producer, TopicPartition
from aioprod.testing import EmbeddedCluster

TOPIC = "numbers"
TP = TopicPartition(TOPIC, 0)
FAST: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 20,
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 2,
    "reconnect_backoff_max_ms": 10,
    "default_api_timeout_ms": 5_000,
}


async def fill(
    broker: EmbeddedCluster,
    count: int,
    *,
    first: int = 0,
    partition: int = 0,
    topic: str = TOPIC,
    **settings: Any,
) -> None:
    """Write the numbers from ``first`` on to a partition, in batches of ten."""
    async with Producer(broker.bootstrap_servers, linger_ms=0, **settings) as producer:
        for start in range(first, first + count, 10):
            for number in range(start, min(start + 10, first + count)):
                await producer.send(
                    topic, b"%d" % number, partition=partition, timestamp_ms=1_000 + number
                )
            await producer.flush()


def consumer_of(broker: EmbeddedCluster, *topics: str, **settings: Any) -> Consumer:
    """A consumer that does not wait long."""
    return Consumer(*topics, bootstrap_servers=broker.bootstrap_servers, **{**FAST, **settings})


@asynccontextmanager
async def reading(
    broker: EmbeddedCluster, *partitions: TopicPartition, **settings: Any
) -> AsyncIterator[Consumer]:
    """A consumer of these partitions that is closed without waiting."""
    consumer = consumer_of(broker, **settings)
    consumer.assign(partitions or [TP])
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.close(1_000)


async def take(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """The next ``count`` records."""
    return [await consumer.getone(timeout_ms=10_000) for _ in range(count)]


def numbers(records: Iterable[ConsumerRecord]) -> list[int]:
    """Return the numbers in the records."""
    return [int(record.value) for record in records]


def assert_idle(consumer: Consumer) -> None:
    """No call is left in the consumer: none waits, and none has it for itself."""
    assert consumer._records._turns._notifier._waiter is None
    assert consumer._guard._owner is None

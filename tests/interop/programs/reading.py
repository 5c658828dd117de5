"""Read stored records and committed offsets with librdkafka, as an independent check."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition

from aioprod import TopicPartition

_LIMIT_S = 20.0


class Stored(NamedTuple):
    """A stored record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


async def read_all(
    bootstrap_servers: str, topic: str, partitions: int, *, committed_only: bool = False
) -> list[Stored]:
    """Return all records of a topic, by partition and offset.

    Raises:
        TimeoutError: if the ends of the partitions are not reached in time.
    """
    return await asyncio.to_thread(_read_all, bootstrap_servers, topic, partitions, committed_only)


def _read_all(
    bootstrap_servers: str, topic: str, partitions: int, committed_only: bool
) -> list[Stored]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "fetch.wait.max.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 0,
        }
    )
    found: list[Stored] = []
    unread = set(range(partitions))
    deadline = time.monotonic() + _LIMIT_S
    try:
        # Fetches the leaders, for which it would otherwise wait half a second.
        consumer.list_topics(topic, _LIMIT_S)
        consumer.assign([RdTopicPartition(topic, partition, 0) for partition in unread])
        while unread:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"did not reach the ends of partitions {unread} of {topic} after "
                    f"{len(found)} records"
                )
            for message in consumer.consume(10_000, 0.02):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is None:
                    found.append(Stored(partition, offset, message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(partition)
    finally:
        consumer.close()
    return sorted(found, key=lambda record: record.partition)


async def committed_offset(bootstrap_servers: str, group_id: str, tp: TopicPartition) -> int | None:
    """Return the committed offset of a consumer group, or None."""
    return await asyncio.to_thread(_committed_offset, bootstrap_servers, group_id, tp)


def _committed_offset(bootstrap_servers: str, group_id: str, tp: TopicPartition) -> int | None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group_id,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        (found,) = consumer.committed([RdTopicPartition(tp.topic, tp.partition)], _LIMIT_S)
    finally:
        consumer.close()
    return found.offset if found.offset >= 0 else None

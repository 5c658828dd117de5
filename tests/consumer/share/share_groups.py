"""Topics and share groups for tests on a real broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable
from typing import Any

from aioprod import (
    Admin,
    Producer,
    ShareConsumer,
    ShareConsumerConfig,
    ShareConsumerObserver,
    ShareRecord,
    TopicPartition,
)
from aioprod.admin import ConfigResource, NewTopic
from aioprod.consumer.share.reporting import ShareReporter
from aioprod.metrics import ShareConsumerMetrics

FAST: dict[str, Any] = {"fetch_max_wait_ms": 100, "default_api_timeout_ms": 20_000}


class ShareTopic:
    """A topic of its own, and a share group of its own that reads it from its first record.

    Args:
        kafka: the bootstrap servers.
        settings: of all its clients.
    """

    def __init__(self, kafka: str, **settings: Any) -> None:
        self.kafka = kafka
        self.settings = settings
        self.topic = f"share-{uuid.uuid4().hex[:8]}"
        self.group = f"group-{uuid.uuid4().hex[:8]}"

    async def create(self, partitions: int = 1, **group_configs: str) -> None:
        """Create the topic, and configure the group; ``share_x`` is ``share.x``."""
        configs = {name.replace("_", "."): value for name, value in group_configs.items()}
        async with Admin(self.kafka, **self.settings) as admin:
            await admin.create_topics(NewTopic(self.topic, partitions))
            await admin.incremental_alter_configs(
                {
                    ConfigResource.group(self.group): {
                        "share.auto.offset.reset": "earliest",
                        **configs,
                    }
                }
            )

    async def write(self, values: Iterable[int], partition: int = 0) -> None:
        """Write numbers."""
        async with Producer(self.kafka, **self.settings) as producer:
            for value in values:
                await producer.send(self.topic, b"%d" % value, partition=partition)

    def consumer(self, **settings: Any) -> ShareConsumer:
        """A member of the group."""
        return ShareConsumer(
            self.kafka,
            **{
                "group_id": self.group,
                "topics": [self.topic],
                **FAST,
                **self.settings,
                **settings,
            },
        )


def reporter_to(
    *observers: ShareConsumerObserver, metrics: ShareConsumerMetrics | None = None
) -> ShareReporter:
    """A reporter, for tests of parts."""
    config = ShareConsumerConfig(group_id="g", observers=observers)
    return ShareReporter(
        config, metrics or ShareConsumerMetrics(), lambda: asyncio.get_running_loop().time()
    )


def numbers(records: Iterable[ShareRecord]) -> list[int]:
    """The numbers that were written."""
    return [int(record.value) for record in records]


async def take(
    consumer: ShareConsumer, count: int, max_records: int | None = None
) -> list[ShareRecord]:
    """Return this number of records, of one call or several."""
    found: list[ShareRecord] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await consumer.getmany(max_records, timeout_ms=20_000)
    assert len(found) == count, numbers(found)
    return found


async def lag(topic: ShareTopic, partition: int = 0) -> int:
    """The number of records that the group has not done with; -1 if it is unknown (KIP-1226)."""
    tp = TopicPartition(topic.topic, partition)
    async with Admin(topic.kafka) as admin:
        at = (await admin.list_share_group_offsets(topic.group, [tp]))[tp]
    return -1 if at is None or at.lag is None else at.lag

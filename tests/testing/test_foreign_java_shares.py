"""Java's share consumer works with the embedded broker's share groups (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod.testing import EmbeddedCluster
from tests.consumer.share.share_groups import ShareTopic, lag
from tests.testing.java_client import JavaClients, java_clients

pytestmark = pytest.mark.kafka  # needs Java and Kafka's jars

LIMIT_SECONDS = 30
LOCK_MS = 20_000


@pytest.fixture(scope="module")
def java() -> Iterator[JavaClients]:
    with java_clients() as clients:
        yield clients


@pytest.fixture
async def topic() -> AsyncIterator[ShareTopic]:
    async with EmbeddedCluster(nodes=3) as broker:
        topic = ShareTopic(broker.bootstrap_servers)
        await topic.create(share_record_lock_duration_ms=str(LOCK_MS))
        yield topic


class JavaMember:
    """A member of the topic's group, whose calls run in a thread."""

    def __init__(self, java: JavaClients, consumer: Any) -> None:
        self.consumer = consumer
        self._java = java

    async def poll(self, count: int) -> dict[int, tuple[Any, int]]:
        """Return at least this number of records by offset, with their delivery counts."""
        found: dict[int, tuple[Any, int]] = {}
        async with asyncio.timeout(LIMIT_SECONDS):
            while len(found) < count:
                found |= await asyncio.to_thread(self._poll)
        return found

    def _poll(self) -> dict[int, tuple[Any, int]]:
        records = self.consumer.poll(self._java.seconds(1))
        return {each.offset(): (each, each.deliveryCount().get()) for each in records.iterator()}

    async def acknowledge(self, types: Mapping[int, str], records: Mapping[int, Any]) -> list[str]:
        """Acknowledge records by offset; return the errors."""
        names = self._java.jvm.org.apache.kafka.clients.consumer.AcknowledgeType
        for offset, name in types.items():
            self.consumer.acknowledge(records[offset][0], getattr(names, name))
        return await self.commit()

    async def commit(self) -> list[str]:
        """Wait until acknowledgements are stored; return the errors."""
        outcomes = await asyncio.to_thread(self.consumer.commitSync)
        return [str(each.get()) for each in outcomes.values() if each.isPresent()]


@asynccontextmanager
async def member(
    java: JavaClients, topic: ShareTopic, **settings: str
) -> AsyncIterator[JavaMember]:
    consumer = java.share_consumer(
        bootstrap_servers=topic.kafka, group_id=topic.group, fetch_max_wait_ms="50", **settings
    )
    consumer.subscribe([topic.topic])
    try:
        yield JavaMember(java, consumer)
    finally:
        await asyncio.to_thread(consumer.close)


def counts(found: Mapping[int, tuple[Any, int]]) -> dict[int, int]:
    return {offset: count for offset, (_, count) in found.items()}


async def test_each_type_of_acknowledgement(java: JavaClients, topic: ShareTopic) -> None:
    async with member(java, topic, share_acknowledgement_mode="explicit") as it:
        await topic.write(range(5))
        found = await it.poll(5)
        assert counts(found) == dict.fromkeys(range(5), 1)
        assert it.consumer.acquisitionLockTimeoutMs().get() == LOCK_MS
        types = {0: "ACCEPT", 1: "RELEASE", 2: "REJECT", 3: "RENEW", 4: "RELEASE"}
        assert await it.acknowledge(types, found) == []
        again = await it.poll(1)  # the renewed one alone, and first
        assert counts(again) == {3: 1}
        assert await it.acknowledge({3: "ACCEPT"}, again) == []
        again = await it.poll(2)
        assert counts(again) == {1: 2, 4: 2}
        assert await it.acknowledge({1: "ACCEPT", 4: "REJECT"}, again) == []
        assert await lag(topic) == 0


async def test_members_share_a_partition_and_release_what_they_have_not_accepted(
    java: JavaClients, topic: ShareTopic
) -> None:
    limited = {"share_acquire_mode": "record_limit", "max_poll_records": "4"}
    async with member(java, topic, **limited) as second:
        async with member(java, topic, **limited) as first:
            await topic.write(range(10))
            assert counts(await first.poll(4)) == dict.fromkeys(range(4), 1)
            assert counts(await second.poll(4)) == dict.fromkeys(range(4, 8), 1)
            assert await second.commit() == []
        found: dict[int, int] = {}
        while len(found) < 6:
            found |= counts(await second.poll(1))
        assert found == {0: 2, 1: 2, 2: 2, 3: 2, 8: 1, 9: 1}
        assert await second.commit() == []
    assert await lag(topic) == 0

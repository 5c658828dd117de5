"""Each client uses an imitated service: its basic operations, and again after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from aioprod import Admin, Consumer, OffsetAndMetadata, Producer, ShareConsumer, TopicPartition
from aioprod.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from aioprod.processing import Processor
from aioprod.testing import EmbeddedCluster

TOPIC, OTHER = "orders", "other"
PARTITIONS = 2
COUNT = 20
FIRST, SECOND = range(COUNT), range(COUNT, 2 * COUNT)


class Place(NamedTuple):
    """The cluster and the settings with which a client works.

    Attributes:
        cluster: with the topic `TOPIC`, but not `OTHER`.
        settings: of any client.
        pause_s: between its two parts.
    """

    cluster: EmbeddedCluster
    settings: dict[str, Any]
    pause_s: float

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return self.cluster.bootstrap_servers

    async def send(self, numbers: range) -> None:
        """Put records into the topic, in the simplest way."""
        settings = {**self.settings, "enable_idempotence": False}
        async with Producer(self.servers, **settings) as producer:
            await send_by(producer, numbers)

    def stored(self, topic: str = TOPIC) -> list[bytes]:
        """The values in a topic, sorted, without those of aborted transactions."""
        return sorted(
            record.value or b""
            for partition in range(len(self.cluster.topics[topic].partitions))
            for record in self.cluster.records(topic, partition, committed_only=True)
        )


def values(*ranges: range) -> list[bytes]:
    return sorted(b"%d" % number for numbers in ranges for number in numbers)


async def send_by(producer: Producer, numbers: range, topic: str = TOPIC) -> None:
    deliveries = [
        await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        for number in numbers
    ]
    for delivery in deliveries:
        await delivery


async def produces(place: Place) -> None:
    async with Producer(place.servers, **place.settings) as producer:
        await send_by(producer, FIRST)
        await producer.send_and_wait(OTHER, b"new")
        await asyncio.sleep(place.pause_s)
        await send_by(producer, SECOND)
    assert place.stored() == values(FIRST, SECOND)
    assert place.stored(OTHER) == [b"new"]


async def produces_without_idempotence(place: Place) -> None:
    await place.send(FIRST)
    assert place.stored() == values(FIRST)


async def produces_compressed(place: Place) -> None:
    async with Producer(place.servers, compression_type="lz4", **place.settings) as producer:
        await producer.send_and_wait(TOPIC, b"0" * 1_000)
    assert place.stored() == [b"0" * 1_000]


async def produces_in_transactions(place: Place) -> None:
    async with Producer(place.servers, transactional_id="x", **place.settings) as producer:
        async with producer.transaction():
            await send_by(producer, FIRST)
            await producer.send_offsets_to_transaction(
                {TopicPartition(TOPIC, 0): OffsetAndMetadata(3)}, "of the transaction"
            )
        await asyncio.sleep(place.pause_s)
        async with producer.transaction():
            await send_by(producer, SECOND)
    assert place.stored() == values(FIRST, SECOND)


async def _reads(place: Place, consumer: Consumer) -> None:
    seen: list[bytes] = []
    async with consumer:
        for numbers in (FIRST, SECOND):
            await place.send(numbers)
            async with asyncio.timeout(30):
                while len(seen) < numbers.stop:
                    seen += [each.value or b"" for each in await consumer.getmany(timeout_ms=500)]
            if consumer.config.group_id is not None:
                await consumer.commit()
                found = await consumer.committed()
                assert sum(at.offset for at in found.values() if at is not None) == len(seen)
            if numbers is FIRST:
                await asyncio.sleep(place.pause_s)
            assert not list(await consumer.getmany(timeout_ms=100))
    assert sorted(seen) == values(FIRST, SECOND)


def _consumer(place: Place, *topics: str, **settings: Any) -> Consumer:
    return Consumer(
        *topics,
        bootstrap_servers=place.servers,
        auto_offset_reset="earliest",
        **place.settings,
        **settings,
    )


async def reads_assigned(place: Place) -> None:
    consumer = _consumer(place)
    consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
    await _reads(place, consumer)


async def reads_in_a_classic_group(place: Place) -> None:
    await _reads(place, _consumer(place, TOPIC, group_id="classic"))


async def reads_in_a_group_of_kip_848(place: Place) -> None:
    await _reads(place, _consumer(place, TOPIC, group_id="new", group_protocol="consumer"))


async def reads_in_a_share_group(place: Place) -> None:
    seen: set[bytes] = set()
    async with Admin(place.servers, **place.settings) as admin:
        group = ConfigResource(ConfigResourceType.GROUP, "share")
        await admin.incremental_alter_configs({group: {"share.auto.offset.reset": "earliest"}})
    consumer = ShareConsumer(place.servers, group_id="share", topics=[TOPIC], **place.settings)
    async with consumer:
        for numbers in (FIRST, SECOND):
            await place.send(numbers)
            async with asyncio.timeout(30):
                while len(seen) < numbers.stop:
                    seen |= {each.value or b"" for each in await consumer.getmany(timeout_ms=500)}
            await consumer.commit()
            if numbers is FIRST:
                await asyncio.sleep(place.pause_s)
    assert sorted(seen) == values(FIRST, SECOND)


async def administers(place: Place) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, OTHER)
    async with Admin(place.servers, **place.settings) as admin:
        await admin.create_topics(NewTopic(OTHER, num_partitions=1))
        cluster = await admin.describe_cluster()
        assert {node.node_id for node in cluster.nodes} == set(place.cluster.node_ids)
        assert {OTHER, TOPIC} <= set(await admin.list_topics())
        await asyncio.sleep(place.pause_s)
        described = await admin.describe_topics([TOPIC])
        assert len(described[TOPIC].partitions) == PARTITIONS
        await admin.create_partitions({OTHER: 2})
        assert (await admin.describe_configs(topic))["max.message.bytes"].value
        found = await admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.LATEST})
        assert found[TopicPartition(TOPIC, 0)].offset == 0
        tp = TopicPartition(TOPIC, 1)
        await admin.alter_consumer_group_offsets("admin", {tp: OffsetAndMetadata(7)})
        offsets = await admin.list_consumer_group_offsets("admin")
        assert (found_at := offsets[tp]) is not None and found_at.offset == 7
        assert "admin" in await admin.list_groups()
        await admin.describe_consumer_groups(["admin"])
        await admin.delete_consumer_groups(["admin"])
        await admin.delete_topics(OTHER)
    assert set(place.cluster.topics) == {TOPIC}


async def processes(place: Place) -> None:
    seen: list[bytes] = []
    done = asyncio.Event()

    async def handle(record: Any) -> None:
        seen.append(record.value)
        if len(seen) >= 2 * COUNT:
            done.set()

    processor = Processor(
        handle,
        TOPIC,
        group_id="p",
        bootstrap_servers=place.servers,
        consumer={"auto_offset_reset": "earliest"},
        **place.settings,
    )
    await place.send(FIRST)
    async with processor, asyncio.timeout(place.pause_s + 60):
        await asyncio.sleep(place.pause_s)
        await place.send(SECOND)
        await done.wait()
    assert sorted(seen) == values(FIRST, SECOND)
    assert sum(place.cluster.committed_offsets("p").values()) == 2 * COUNT


def _of_spark(name: str) -> Callable[[Place], Awaitable[None]]:
    """Import it only when it runs: it needs PySpark."""

    async def run(place: Place) -> None:
        from tests.services import spark_clients

        await getattr(spark_clients, name)(place)

    return run


CLIENTS: dict[str, Callable[[Place], Awaitable[None]]] = {
    "producer": produces,
    "producer without idempotence": produces_without_idempotence,
    "producer with lz4": produces_compressed,
    "transactional producer": produces_in_transactions,
    "assigned consumer": reads_assigned,
    "consumer in a classic group": reads_in_a_classic_group,
    "consumer in a group of KIP-848": reads_in_a_group_of_kip_848,
    "share consumer": reads_in_a_share_group,
    "admin": administers,
    "processor": processes,
    "Spark source": _of_spark("is_read_by_spark"),
    "exactly-once Spark sink": _of_spark("is_written_by_spark_exactly_once"),
}

SPARK = {"Spark source", "exactly-once Spark sink"}

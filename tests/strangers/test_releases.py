"""Each release of Apache Kafka since 2.1 does what the README says."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aioprod import Admin, Consumer, Producer, ProducerRecord, ShareConsumer, TopicPartition
from aioprod.admin import ConfigResource, NewTopic, OffsetSpec
from aioprod.errors import KafkaError, UnsupportedVersionError
from aioprod.processing import Processor, Record

Release = tuple[tuple[int, ...], str]
LIMIT_S = 60
COUNT = 300
VALUES = [b"value %d" % number for number in range(COUNT)]


async def new_topic(servers: str, partitions: int = 3) -> str:
    topic = f"t{uuid.uuid4().hex[:8]}"
    async with Admin(servers) as admin:
        await admin.create_topics(NewTopic(topic, num_partitions=partitions, replication_factor=1))
        # A broker of KRaft learns of it a little later.
        places = [TopicPartition(topic, number) for number in range(partitions)]
        (await admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))).check()
        async with asyncio.timeout(LIMIT_S):
            while topic not in set(await admin.list_topics()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    return topic


async def read(topic: str, servers: str, count: int = COUNT, **settings: Any) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", **settings
    ) as consumer:
        while len(found) < count:
            found += [each.value for each in await consumer.getmany(timeout_ms=1_000)]
        if "group_id" in settings:
            await consumer.commit()
    return sorted(found)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_all_codecs(release: Release, codec: Any) -> None:
    _, servers = release
    topic = await new_topic(servers)
    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers, compression_type=codec) as producer:
            await (await producer.send_many(topic, VALUES)).wait()
        assert await read(topic, servers) == sorted(VALUES)


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_producers_that_are_not_idempotent(release: Release, acks: Any) -> None:
    _, servers = release
    topic = await new_topic(servers)
    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers, enable_idempotence=False, acks=acks) as producer:
            await (await producer.send_many(topic, VALUES)).wait()
        assert await read(topic, servers) == sorted(VALUES)


async def test_a_classic_group_continues_from_its_commit(release: Release) -> None:
    _, servers = release
    topic, group = await new_topic(servers), f"g{uuid.uuid4().hex[:8]}"
    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers) as producer:
            await (await producer.send_many(topic, VALUES)).wait()
            assert await read(topic, servers, group_id=group) == sorted(VALUES)
            await producer.send_and_wait(topic, b"next")
        assert await read(topic, servers, 1, group_id=group) == [b"next"]
        async with Admin(servers) as admin:
            committed = await admin.list_consumer_group_offsets(group)
            assert sum(each.offset for each in committed.values() if each) == COUNT + 1


async def test_a_group_of_kip_848_or_why_there_is_none(release: Release) -> None:
    version, servers = release
    topic, group = await new_topic(servers), f"g{uuid.uuid4().hex[:8]}"
    async with Producer(servers) as producer:
        await (await producer.send_many(topic, VALUES)).wait()
    async with asyncio.timeout(LIMIT_S):
        if version >= (4, 0):
            found = await read(topic, servers, group_id=group, group_protocol="consumer")
            assert found == sorted(VALUES)
        else:
            with pytest.raises(KafkaError, match=r"needs Kafka 4\.0"):
                await read(topic, servers, group_id=group, group_protocol="consumer")


async def test_a_transaction(release: Release) -> None:
    _, servers = release
    topic = await new_topic(servers)
    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers, transactional_id=f"x{topic}") as producer:
            async with producer.transaction():
                await producer.send_many(topic, VALUES)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise ZeroDivisionError
        assert await read(topic, servers, isolation_level="read_committed") == sorted(VALUES)


async def test_exactly_once_from_topic_to_topic(release: Release) -> None:
    """Offsets in a transaction need Kafka 2.5 (KIP-447)."""
    version, servers = release
    source, target = await new_topic(servers), await new_topic(servers)
    group = f"g{uuid.uuid4().hex[:8]}"

    async def handle(record: Record[bytes | None, bytes | None]) -> ProducerRecord:
        assert record.value is not None
        return ProducerRecord(target, record.value.upper())

    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers) as producer:
            await (await producer.send_many(source, VALUES)).wait()
        processor = Processor(
            handle,
            source,
            bootstrap_servers=servers,
            group_id=group,
            guarantee="exactly_once",
            consumer={"auto_offset_reset": "earliest"},
        )
        if version < (2, 5):
            with pytest.raises(KafkaError, match="can't check group members"):
                await processor.run(handle_signals=False)
            return
        async with processor:
            found = await read(target, servers, isolation_level="read_committed")
    assert found == sorted(value.upper() for value in VALUES)


async def test_columns_and_positions(release: Release) -> None:
    _, servers = release
    topic = await new_topic(servers, partitions=1)
    tp = TopicPartition(topic, 0)
    async with asyncio.timeout(LIMIT_S):
        async with Producer(servers, compression_type="lz4") as producer:
            await (await producer.send_many(topic, VALUES)).wait()
        async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([tp])
            table = await consumer.getarrow(timeout_ms=5_000)
            assert table.column("value").to_pylist() == VALUES[: table.num_rows]
            assert await consumer.end_offsets([tp]) == {tp: COUNT}
            stamp = table.column("timestamp")[0].as_py()
            places = await consumer.offsets_for_times({tp: int(stamp.timestamp() * 1000)})
            found = places[tp]
            assert found is not None and found.offset == 0
            consumer.seek(tp, COUNT - 1)
            assert (await consumer.getone(timeout_ms=5_000)).value == VALUES[-1]


async def test_admin_calls(release: Release) -> None:
    _, servers = release
    topic = await new_topic(servers, partitions=1)
    async with asyncio.timeout(LIMIT_S), Admin(servers) as admin:
        described = await admin.describe_topics([topic])
        assert len(described[topic].partitions) == 1
        await admin.create_partitions({topic: 2})
        cluster = await admin.describe_cluster()
        assert len(cluster.nodes) == 1
        await admin.delete_topics([topic])


async def test_a_share_group_or_why_there_is_none(release: Release) -> None:
    version, servers = release
    topic, group = await new_topic(servers), f"s{uuid.uuid4().hex[:8]}"
    if version >= (4, 2):
        async with Admin(servers) as admin:
            await admin.incremental_alter_configs(
                {ConfigResource.group(group): {"share.auto.offset.reset": "earliest"}}
            )
    async with asyncio.timeout(LIMIT_S), Producer(servers) as producer:
        await (await producer.send_many(topic, VALUES)).wait()
        consumer = ShareConsumer(servers, group_id=group)
        consumer.subscribe(topic)
        if version >= (4, 2):
            found: list[Any] = []
            async with consumer:
                while len(found) < COUNT:
                    found += [each.value for each in await consumer.getmany(timeout_ms=1_000)]
            assert sorted(found) == sorted(VALUES)
        else:
            with pytest.raises(
                UnsupportedVersionError, match=r"share groups need Kafka 4\.1 or newer"
            ):
                async with consumer:
                    await consumer.getmany(timeout_ms=10_000)

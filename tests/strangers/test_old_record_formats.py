"""Logs of formats 0 and 1, which Kafka 2.1 writes for topics that say so, are read like others."""

from __future__ import annotations

import asyncio
import uuid
import warnings
from typing import Any

import pytest
from confluent_kafka import Consumer as OtherConsumer
from confluent_kafka import TopicPartition as OtherPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from aioprod import Admin, Consumer, Producer, TopicPartition
from aioprod.admin import NewTopic
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import PartitionReader
from aioprod.errors import KafkaError

LIMIT_S = 60
COUNT = 500
FIRST_MS = 1_500_000_000_000
FORMATS = ["0.9.0", "0.10.2", "0.11.0"]
Row = tuple[int, int, bytes | None, bytes | None]


async def topic_of(servers: str, format_: str) -> TopicPartition:
    topic = f"old{uuid.uuid4().hex[:8]}"
    configs = {"message.format.version": format_, "retention.ms": "-1"}
    async with Admin(servers) as admin:
        new = NewTopic(topic, num_partitions=1, replication_factor=1, configs=configs)
        await admin.create_topics(new)
    return TopicPartition(topic, 0)


async def fill(servers: str, topic: str, codec: Any) -> list[Row]:
    async with Producer(
        servers, enable_idempotence=False, compression_type=codec, batch_size=4_000
    ) as producer:
        for number in range(COUNT):
            await producer.send(topic, b"value %d" % number, b"k", timestamp_ms=FIRST_MS + number)
    return [(number, FIRST_MS + number, b"k", b"value %d" % number) for number in range(COUNT)]


async def by_consumer(servers: str, tp: TopicPartition, start: int) -> list[Row]:
    found: list[Row] = []
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        while len(found) < COUNT - start:
            for each in await consumer.getmany(timeout_ms=2_000):
                found.append((each.offset, each.timestamp, each.key, each.value))
    return found


async def by_columns(servers: str, tp: TopicPartition, start: int) -> list[Row]:
    found: list[Row] = []
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, start)
        while len(found) < COUNT - start:
            for row in (await consumer.getarrow(timeout_ms=2_000)).to_pylist():
                stamp = round(row["timestamp"].timestamp() * 1000)
                found.append((row["offset"], stamp, row["key"], row["value"]))
    return found


async def by_reader(servers: str, tp: TopicPartition, start: int) -> list[Row]:
    """Read the records as Spark's tasks do."""
    client = ClusterClient(servers)
    await client.start()
    try:
        reader = PartitionReader(client, tp, start, COUNT)
        return [
            (each.offset, each.timestamp, each.key, each.value)
            async for fetched in reader
            for each in fetched.records()
        ]
    finally:
        await client.close()


async def by_librdkafka(servers: str, tp: TopicPartition, start: int) -> list[Any]:
    def read() -> list[Any]:
        consumer = OtherConsumer(
            {"bootstrap.servers": servers, "group.id": "other", "enable.auto.commit": False}
        )
        consumer.assign([OtherPartition(*tp, start)])
        found: list[Any] = []
        while len(found) < COUNT - start:
            for each in consumer.consume(100, 5):
                assert each.error() is None, each.error()
                found.append((each.offset(), each.timestamp()[1], each.key(), each.value()))
        consumer.close()
        return found

    return await asyncio.to_thread(read)


def set_format(servers: str, topic: str, format_: str) -> None:
    """By AlterConfigs: Kafka 2.1 does not know incremental changes."""
    resource = ConfigResource("topic", topic, set_config={"message.format.version": format_})
    admin = AdminClient({"bootstrap.servers": servers})
    with warnings.catch_warnings(action="ignore"):  # deprecated
        futures = admin.alter_configs([resource])
    for future in futures.values():
        future.result(20)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("format_", FORMATS)
async def test_all_readers(kafka_2_1: str, format_: str, codec: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        tp = await topic_of(kafka_2_1, format_)
        expected = await fill(kafka_2_1, tp.topic, codec)
        if format_ == "0.9.0":
            expected = [(offset, -1, key, value) for offset, _, key, value in expected]
        for start in (0, 1, COUNT // 2 + 3, COUNT - 1):
            for read in (by_consumer, by_columns, by_reader):
                assert await read(kafka_2_1, tp, start) == expected[start:], (read, start)
        theirs = await by_librdkafka(kafka_2_1, tp, 7)
        assert [(row[0], row[2], row[3]) for row in theirs] == [
            (offset, key, value) for offset, _, key, value in expected[7:]
        ]


async def test_a_log_whose_format_changes(kafka_2_1: str) -> None:
    """Messages of both old formats and batches follow one another, in any order."""
    async with asyncio.timeout(LIMIT_S):
        tp = await topic_of(kafka_2_1, "0.9.0")
        async with Producer(kafka_2_1, enable_idempotence=False, linger_ms=0) as producer:
            number = 0
            for format_ in ["0.9.0", "2.1", "0.10.2", "0.11.0", "0.9.0"] * 5:
                await asyncio.to_thread(set_format, kafka_2_1, tp.topic, format_)
                for _ in range(COUNT // 25):
                    await producer.send_and_wait(tp.topic, b"value %d" % number)
                    number += 1
        for read in (by_consumer, by_columns, by_reader):
            assert [row[3] for row in await read(kafka_2_1, tp, 0)] == [
                b"value %d" % number for number in range(COUNT)
            ]


async def test_an_idempotent_producer_is_reported_why(kafka_2_1: str) -> None:
    async with asyncio.timeout(LIMIT_S):
        tp = await topic_of(kafka_2_1, "0.10.2")
        async with Producer(kafka_2_1) as producer:
            with pytest.raises(KafkaError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
                await producer.send_and_wait(tp.topic, b"v")


@pytest.mark.parametrize(("format_", "expected"), [("0.9.0", None), ("0.10.2", 300)])
async def test_offsets_by_time(kafka_2_1: str, format_: str, expected: int | None) -> None:
    """Format 0 has no timestamps."""
    async with asyncio.timeout(LIMIT_S):
        tp = await topic_of(kafka_2_1, format_)
        await fill(kafka_2_1, tp.topic, "none")
        async with Consumer(bootstrap_servers=kafka_2_1) as consumer:
            if expected is None:
                with pytest.raises(KafkaError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
                    await consumer.offsets_for_times({tp: FIRST_MS + 300})
            else:
                found = (await consumer.offsets_for_times({tp: FIRST_MS + 300}))[tp]
                assert found is not None and found.offset == expected

"""The consumer against Apache Kafka: what a real broker answers is understood."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from aioprod import (
    Admin,
    Consumer,
    ConsumerRecord,
    KafkaTimeoutError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    Producer,
    TopicPartition,
)
from tests.consumer.number_topics import FAST, numbers, take

pytestmark = pytest.mark.kafka


def new_topic() -> TopicPartition:
    return TopicPartition(f"read-{uuid.uuid4().hex[:8]}", 0)


def consumer_of(kafka: str, tp: TopicPartition, **settings: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=kafka, **{**FAST, "default_api_timeout_ms": 20_000, **settings}
    )
    consumer.assign([tp])
    return consumer


async def write(kafka: str, tp: TopicPartition, values: Sequence[int], **settings: Any) -> None:
    async with Producer(kafka, linger_ms=0, **settings) as producer:
        for value in values:
            await producer.send(
                tp.topic,
                b"%d" % value,
                partition=0,
                key=b"k",
                headers=[("h", b"x")],
                timestamp_ms=1_000 + value,
            )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_of_each_codec(kafka: str, codec: str) -> None:
    tp = new_topic()
    await write(kafka, tp, range(500), compression_type=codec, batch_size=1_000)
    async with consumer_of(kafka, tp, max_partition_fetch_bytes=2_000) as consumer:
        found = await take(consumer, 500)
        assert numbers(found) == list(range(500))
        assert found[7] == ConsumerRecord(
            tp.topic, 0, 7, 1_007, 0, b"k", b"7", (("h", b"x"),), found[0].leader_epoch
        )
        assert found[0].leader_epoch >= 0
        assert consumer.lag(tp) == 0


async def test_resets_lookups_and_seeks(kafka: str) -> None:
    tp = new_topic()
    await write(kafka, tp, range(100))
    async with consumer_of(kafka, tp, auto_offset_reset="latest") as consumer:
        assert await consumer.position(tp) == 100
        assert (await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])) == (
            {tp: 0},
            {tp: 100},
        )
        found = await consumer.offsets_for_times({tp: 1_040})
        assert found[tp] is not None
        assert found[tp][:2] == (40, 1_040)  # type: ignore[index]
        assert await consumer.offsets_for_times({tp: 10**12}) == {tp: None}
        consumer.seek(tp, 90)
        assert numbers(await take(consumer, 10)) == list(range(90, 100))
        await consumer.seek_to_beginning()
        assert numbers(await consumer.getmany(3)) == [0, 1, 2]
        assert tp.topic in await consumer.topics()
        assert await consumer.partitions_for_topic(tp.topic) == {0}
    async with consumer_of(
        kafka, tp, auto_offset_reset="by_duration:PT1S", clock=lambda: 2.050
    ) as consumer:
        assert await consumer.position(tp) == 50
    async with consumer_of(kafka, tp, auto_offset_reset="none") as consumer:
        consumer.seek(tp, 5_000)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getone(20_000)


async def test_records_that_were_deleted_are_gone_over(kafka: str) -> None:
    tp = new_topic()
    await write(kafka, tp, range(100))
    async with Admin(kafka) as admin:
        await admin.delete_records({tp: 60})
    async with consumer_of(kafka, tp) as consumer:
        consumer.seek(tp, 10)
        assert numbers(await take(consumer, 40)) == list(range(60, 100))


async def test_transactions(kafka: str) -> None:
    tp = new_topic()
    async with Producer(kafka, transactional_id=tp.topic) as producer:
        for number in range(4):
            try:
                async with producer.transaction():
                    for _ in range(3):
                        await producer.send(tp.topic, b"%d" % number, partition=0)
                    await producer.flush()
                    if number % 2:
                        raise LookupError
            except LookupError:
                pass
    async with consumer_of(kafka, tp, isolation_level="read_committed") as consumer:
        assert numbers(await take(consumer, 6)) == [0, 0, 0, 2, 2, 2]
        assert await consumer.getmany(timeout_ms=100) == []
        assert await consumer.position(tp) == (await consumer.end_offsets([tp]))[tp] == 16
    async with consumer_of(kafka, tp) as consumer:
        assert len(await take(consumer, 12)) == 12


async def test_a_position_with_its_epoch_is_confirmed_or_reset(kafka: str) -> None:
    tp = new_topic()
    await write(kafka, tp, range(10))
    async with consumer_of(kafka, tp) as consumer:
        epoch = (await take(consumer, 1))[0].leader_epoch
        consumer.seek(tp, OffsetAndMetadata(4, "", epoch))
        assert numbers(await take(consumer, 1)) == [4]
        consumer.seek(tp, OffsetAndMetadata(50, "", epoch))
        assert await consumer.position(tp) == 0, "no log of this leader epoch ever reached 50"


async def test_an_idle_consumer_keeps_its_session_and_gets_what_comes(kafka: str) -> None:
    tp = new_topic()
    await write(kafka, tp, [0])
    async with consumer_of(kafka, tp, fetch_max_wait_ms=100) as consumer:
        await take(consumer, 1)
        with pytest.raises(KafkaTimeoutError):
            await consumer.getone(timeout_ms=500)
        before = consumer.metrics()["fetch-total"]
        await write(kafka, tp, [1])
        began = time.monotonic()
        assert numbers(await take(consumer, 1)) == [1]
        assert time.monotonic() - began < 1
        assert before >= 3


async def test_topics_without_a_group_and_by_pattern(kafka: str) -> None:
    tp = new_topic()
    await write(kafka, tp, range(5))
    async with Consumer(tp.topic, bootstrap_servers=kafka, **FAST) as consumer:
        assert numbers(await take(consumer, 5)) == list(range(5))
    async with Consumer(bootstrap_servers=kafka, **FAST) as consumer:
        consumer.subscribe(pattern=tp.topic[:-2] + "..")
        assert numbers(await take(consumer, 5)) == list(range(5))

"""The pytest plugin's consumer."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import ConfigError, KafkaError, KafkaTimeoutError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, drop_before
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer


async def fill(broker: EmbeddedCluster, partitions: dict[int, int]) -> None:
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        deliveries = [
            await producer.send("t", b"%d" % number, partition=partition)
            for partition, count in partitions.items()
            for number in range(count)
        ]
        for delivery in deliveries:
            await delivery


async def test_every_partition_in_its_order_from_the_beginning(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 3)
    await fill(broker, {0: 50, 2: 70})
    async with TopicConsumer(broker.bootstrap_servers, "t", fetch_max_wait_ms=25_000) as consumer:
        async with asyncio.timeout(20):  # less than the broker waits at the empty partition
            records = [*await consumer.getmany(20), *await consumer.getmany(100)]
    assert [record.offset for record in records if record.partition == 0] == list(range(50))
    assert [record.value for record in records if record.partition == 2] == [
        b"%d" % number for number in range(70)
    ]


async def test_nothing_is_asked_before_the_first_record_is(broker: EmbeddedCluster) -> None:
    async with TopicConsumer(broker.bootstrap_servers, "t"):
        pass
    assert not broker.requests


async def test_new_records_wake_who_waits(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with TopicConsumer(broker.bootstrap_servers, "t") as consumer:
        waiting = asyncio.create_task(consumer.getone())
        await broker.wait_for_request(ApiKey.FETCH)
        await fill(broker, {0: 1})
        assert (await waiting).offset == 0


async def test_read_committed_leaves_out_what_was_aborted(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with Producer(broker.bootstrap_servers, transactional_id="id") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"aborted")
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"committed")
    async with TopicConsumer(
        broker.bootstrap_servers, "t", isolation_level="read_committed"
    ) as consumer:
        assert (await consumer.getone()).value == b"committed"
        assert await consumer.getmany(1, timeout_ms=10) == []


async def test_a_lost_connection_loses_and_doubles_nothing(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    await fill(broker, {0: 30})
    broker.on(ApiKey.FETCH, drop_before())
    async with TopicConsumer(
        broker.bootstrap_servers, "t", max_partition_fetch_bytes=1
    ) as consumer:
        assert [record.offset for record in await consumer.getmany(30)] == list(range(30))


async def test_a_topic_that_is_missing_is_an_error_each_time(broker: EmbeddedCluster) -> None:
    broker.create_topic("other")
    async with TopicConsumer(broker.bootstrap_servers, "t", timeout_ms=300) as consumer:
        for _ in range(2):
            with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await consumer.getone()


async def test_no_broker_is_an_error() -> None:
    async with TopicConsumer("127.0.0.1:1", "t") as consumer:
        with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
            await consumer.getmany(1)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="timeout_ms=0"):
        TopicConsumer("127.0.0.1:1", "t", timeout_ms=0)
    with pytest.raises(ConfigError, match="isolation_level"):
        TopicConsumer("127.0.0.1:1", "t", isolation_level="serializable")


async def test_cancelling_a_wait_loses_no_record(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 2)
    await fill(broker, {0: 10, 1: 10})
    seen: list[int] = []
    opened: list[TopicConsumer] = []

    async def scenario(number: int) -> None:
        opened.append(TopicConsumer(broker.bootstrap_servers, "t"))
        seen.clear()
        seen.append((await opened[-1].getone()).offset)

    async def check(number: int, cancelled: bool) -> None:
        async with opened[-1] as consumer:
            assert len(await consumer.getmany(20 - len(seen))) == 20 - len(seen)
            with pytest.raises(KafkaTimeoutError):
                await consumer.getone(timeout_ms=1)

    assert await cancel_at_each_point(scenario, check) >= 1

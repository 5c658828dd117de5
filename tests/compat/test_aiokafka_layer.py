"""``aioprod.compat.aiokafka`` in cases in which aiokafka has no outcome to compare with."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from aioprod import ErrorCode
from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aioprod.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aioprod.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aioprod.compat.aiokafka.errors import (
    CommitFailedError,
    KafkaError,
    MessageSizeTooLargeError,
    ProducerClosed,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold

TP = TopicPartition("orders", 0)


async def filled(broker: EmbeddedCluster, count: int) -> str:
    broker.create_topic("orders", 1)
    servers = broker.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(count):
            await producer.send("orders", b"%d" % number)
    return servers


async def test_a_consumer_reads_after_it_subscribes_again(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 2)
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).offset == 0
        consumer.unsubscribe()
        assert await consumer.getmany(timeout_ms=20) == {}
        consumer.subscribe(["orders"])
        assert (await asyncio.wait_for(consumer.getone(), 10)).offset == 1


@pytest.mark.virtual_time
async def test_a_consumer_that_does_not_poll_leaves_its_group(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 1)
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        max_poll_interval_ms=60_000,
    ) as consumer:
        await consumer.getone()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.getone(), 600)  # a call that waits is polling
        assert len(broker.group("g").members) == 1
        await asyncio.sleep(59)
        assert len(broker.group("g").members) == 1
        await asyncio.sleep(2)
        assert len(broker.group("g").members) == 0
        with pytest.raises(CommitFailedError):
            await consumer.commit()
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait("orders", b"later")
        assert (await asyncio.wait_for(consumer.getone(), 10)).value == b"later"
        assert len(broker.group("g").members) == 1
        await consumer.commit()


@pytest.mark.virtual_time
async def test_positions_are_those_of_the_application(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 100)
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=1_000,
    ) as consumer:
        for _ in range(7):
            await consumer.getone()
        await asyncio.sleep(5)
        assert await consumer.position(TP) == 7
        assert broker.committed_offsets("g") == {TP: 7}


async def test_a_partition_is_read_ahead_to_a_limit(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 9_000)
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        found = [(await consumer.getone()).offset for _ in range(9_000)]
        assert found == list(range(9_000))


@pytest.mark.parametrize("most", [None, 1, 10])
async def test_a_busy_partition_leaves_the_others_their_turn(
    broker: EmbeddedCluster, most: int | None
) -> None:
    broker.create_topic("orders", 2)
    servers = broker.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in range(8_000):
            await producer.send("orders", b"%d" % number, partition=0)
        await producer.send_and_wait("orders", b"other", partition=1)
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        found: set[int] = set()
        for _ in range(5_000 // (most or 1)):
            if most is None:
                found.add((await consumer.getone()).partition)
                await asyncio.sleep(0)  # more records come meanwhile
            else:
                some = await consumer.getmany(timeout_ms=5_000, max_records=most)
                found.update(tp.partition for tp in some)
                await asyncio.sleep(0)
    assert found == {0, 1}


async def test_large_records_are_read_ahead_to_a_limit_of_bytes(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 0)
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await asyncio.gather(*[await producer.send("orders", bytes(200_000)) for _ in range(100)])
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        for number in range(100):
            assert (await consumer.getone()).offset == number
            await asyncio.sleep(0.002)  # time to read on
            assert len(consumer._ahead[TP].records) <= 25  # 1 MiB, and what aioprod has at once


async def test_the_futures_of_a_batch_that_is_split(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1, configs={"max.message.bytes": "500"})
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, max_batch_size=20_000, linger_ms=20
    ) as producer:
        futures = [await producer.send("orders", b"%04d" % n * 5) for n in range(200)]
        futures[5].cancel()
        del futures[5]
        found = await asyncio.wait_for(asyncio.gather(*futures), 20)
    assert [each.offset for each in found if each] == [*range(5), *range(6, 200)]


async def test_each_future_of_a_refused_batch_has_the_error(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_REQUIRED_ACKS))
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, linger_ms=20
    ) as producer:
        futures = [await producer.send("orders", b"%d" % n, partition=0) for n in range(3)]
        await asyncio.wait(futures, timeout=20)
        errors = [each.exception() for each in futures]
    assert len({*map(id, errors)}) == 3
    for error in errors:
        assert (
            isinstance(error, KafkaError)
            and vars(type(error))["errno"] == ErrorCode.INVALID_REQUIRED_ACKS
        )
        assert error.__cause__ is not None and error.__cause__.__traceback__ is None


async def test_futures_end_when_the_producer_does(broker: EmbeddedCluster) -> None:
    kept_back = broker.on(ApiKey.PRODUCE, hold())
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=300, linger_ms=20
    )
    await producer.start()
    futures = [await producer.send("orders", b"%d" % n, partition=0) for n in range(3)]
    await asyncio.wait_for(producer.stop(), 20)
    assert all(each.exception() is not None for each in futures)
    with pytest.raises(ProducerClosed):
        await producer.send("orders", b"late")
    kept_back.release()


async def test_the_size_of_headers_counts(broker: EmbeddedCluster) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, max_request_size=2_000
    ) as producer:
        for size, name in ((1_900, "n"), (100, "n" * 1_800), (100, "é" * 900)):
            await producer.send_and_wait("orders", bytes(size), headers=[(name, b"")])
        for size, name in ((1_950, "n"), (100, "n" * 1_850), (100, "é" * 950)):
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send("orders", bytes(size), headers=[(name, b"")])


async def test_an_unclosed_consumer_warns_and_is_closed(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 1)
    consumer: AIOKafkaConsumer | None = AIOKafkaConsumer("orders", bootstrap_servers=servers)
    assert consumer is not None
    before = asyncio.all_tasks()
    await consumer.start()
    dropped = weakref.ref(consumer)
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer") as warned:
        del consumer
        gc.collect()
    assert dropped() is None
    warned.clear()  # a warning refers to the consumer
    async with asyncio.timeout(10):
        await asyncio.wait(asyncio.all_tasks() - before)


class LastAssignor(AbstractPartitionAssignor):
    """Gives all partitions to the last member."""

    name = "last"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
        assert cluster.partitions_for_topic("orders") == {0}
        last = max(members)
        return {
            member: ConsumerProtocolMemberAssignment(
                0, [("orders", [0])] if member == last else [], b""
            )
            for member in members
        }

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment: Any) -> None:
        assert assignment.partitions() == [TP]


async def test_an_assignor_that_was_written_for_aiokafka(broker: EmbeddedCluster) -> None:
    servers = await filled(broker, 1)
    async with AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="g",
        partition_assignment_strategy=[LastAssignor],
    ) as consumer:
        assert consumer.assignment() == {TP}

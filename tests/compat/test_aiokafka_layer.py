"""What ``aioprod.compat.aiokafka`` does where aiokafka has no outcome to compare with."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from aioprod.compat.aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aioprod.compat.aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aioprod.compat.aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aioprod.testing import EmbeddedCluster

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
        await asyncio.sleep(90)
        assert len(broker.group("g").members) == 0


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
    servers = await filled(broker, 3_000)
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=servers, auto_offset_reset="earliest"
    ) as consumer:
        found = [(await consumer.getone()).offset for _ in range(3_000)]
    assert found == list(range(3_000))


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
    def assign(cls, cluster, members):  # type: ignore[no-untyped-def]
        assert cluster.partitions_for_topic("orders") == {0}
        last = max(members)
        return {
            member: ConsumerProtocolMemberAssignment(
                0, [("orders", [0])] if member == last else [], b""
            )
            for member in members
        }

    @classmethod
    def metadata(cls, topics):  # type: ignore[no-untyped-def]
        return ConsumerProtocolMemberMetadata(0, list(topics), b"")

    @classmethod
    def on_assignment(cls, assignment):  # type: ignore[no-untyped-def]
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

"""Clients of all kinds with a broker of three nodes: records flow despite moved leaders, a stopped
node, one that restarts on another port, and an outage.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer

from aioprod import Producer
from aioprod.testing import EmbeddedCluster

LIMIT_SECONDS = 20.0
COUNT = 600
FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 3)
        yield broker


async def disturb(broker: EmbeddedCluster, step: int) -> None:
    """Make one of the changes that a client must survive."""
    if step == 0:
        for partition in range(3):
            broker.move_leader("t", partition, broker.leader("t", partition) % 3 + 1)
    elif step == 1:
        await broker.stop_node(broker.leader("t", 0))
    elif step == 2:
        gone = next(
            node_id
            for node_id in broker.node_ids
            if broker.address(node_id) not in broker.bootstrap_servers
        )
        await broker.start_node(gone, new_port=True)
        broker.move_leader("t", 1, gone)
    elif step == 3:
        await broker.stop_all()
        await broker.start()


def check_order(broker: EmbeddedCluster, count: int = COUNT) -> None:
    """Check that no record is lost, duplicated or out of order, and that every partition has
    some.
    """
    for partition in range(3):
        values = [int(record.value or b"") for record in broker.records("t", partition)]
        assert values == list(range(partition, count, 3))


async def test_our_producer_lives_through_it(three: EmbeddedCluster) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        async with Producer(three.bootstrap_servers, linger_ms=0, **FAST) as producer:  # type: ignore[call-overload]
            for step in range(4):
                numbers = range(step * COUNT // 4, (step + 1) * COUNT // 4)
                sent = [
                    await producer.send("t", b"%d" % number, partition=number % 3)
                    for number in numbers
                ]
                await disturb(three, step)
                for delivery in sent:
                    await delivery
    check_order(three)


async def test_aiokafka_lives_through_it(three: EmbeddedCluster) -> None:
    async with asyncio.timeout(LIMIT_SECONDS * 2):
        async with AIOKafkaProducer(
            bootstrap_servers=three.bootstrap_servers,
            enable_idempotence=True,
            retry_backoff_ms=20,
            metadata_max_age_ms=500,
        ) as producer:
            for step in range(4):
                numbers = range(step * COUNT // 4, (step + 1) * COUNT // 4)
                sent = [
                    await producer.send("t", b"%d" % number, partition=number % 3)
                    for number in numbers
                ]
                await disturb(three, step)
                await asyncio.gather(*sent)
        check_order(three)
        async with AIOKafkaConsumer(
            "t",
            bootstrap_servers=three.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id=None,
            retry_backoff_ms=20,
            metadata_max_age_ms=500,
        ) as consumer:
            values = []
            for number in range(COUNT):
                if number == COUNT // 2:
                    await disturb(three, 0)
                values.append(int((await consumer.getone()).value))
        assert sorted(values) == list(range(COUNT))


def test_librdkafka_lives_through_it() -> None:
    with EmbeddedCluster.in_thread(nodes=3) as broker:
        broker.create_topic("t", 3)
        errors: list[str] = []

        def report(error: object, message: Message) -> None:
            if error is not None:
                errors.append(str(error))

        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
        producer = ConfluentProducer(
            {
                "enable.idempotence": True,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 15_000,
                **settings,
            }
        )
        for number in range(COUNT):
            producer.produce("t", b"%d" % number, partition=number % 3, on_delivery=report)
            if number == COUNT // 4:
                for partition in range(3):
                    broker.move_leader("t", partition, broker.leader("t", partition) % 3 + 1)
            elif number == COUNT // 2:
                broker.stop_node(2)
            elif number == COUNT * 3 // 4:
                broker.start_node(2)
                broker.move_leader("t", 1, 2)
            if number % 50 == 0:
                producer.poll(0.02)
        assert producer.flush(LIMIT_SECONDS) == 0
        assert not errors
        for partition in range(3):
            assert [int(record.value or b"") for record in broker.records("t", partition)] == list(
                range(partition, COUNT, 3)
            )

        consumer = Consumer({"group.id": "none", "enable.auto.commit": False, **settings})
        try:
            consumer.assign([TopicPartition("t", index, OFFSET_BEGINNING) for index in range(3)])
            values: list[int] = []
            deadline = time.monotonic() + LIMIT_SECONDS
            while len(values) < COUNT and time.monotonic() < deadline:
                for message in consumer.consume(50, 0.5):
                    assert message.error() is None
                    values.append(int(message.value() or b""))
                if len(values) == 50:
                    broker.move_leader("t", 0, 3 if broker.leader("t", 0) != 3 else 1)
            assert sorted(values) == list(range(COUNT))
        finally:
            consumer.close()

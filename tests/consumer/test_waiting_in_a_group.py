"""A call that waits for records for a long time stays in its group, and commits."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import Consumer, Producer, RebalanceListener, TopicPartition
from aioprod.testing import EmbeddedCluster

pytestmark = pytest.mark.virtual_time

TP = TopicPartition("orders", 0)


class Assignments(RebalanceListener):
    def __init__(self) -> None:
        self.count = 0

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.count += 1


@pytest.mark.parametrize("paused", [False, True])
async def test_waiting_longer_than_max_poll_interval_is_polling(
    broker: EmbeddedCluster, paused: bool
) -> None:
    broker.create_topic("orders", 1)
    listener = Assignments()
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        max_poll_interval_ms=60_000,
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(["orders"], listener=listener)
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        if paused:
            consumer.pause(TP)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await consumer.getone()
        assert listener.count == 1


async def test_what_was_processed_is_committed_while_the_call_waits_for_more(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_many("orders", [b"a", b"b"])
    async with Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=5_000,
    ) as consumer:
        for _ in range(2):
            await consumer.getone()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await consumer.getone()
        assert broker.committed_offsets("g")[TP] == 2

"""Observers are called for rebalances by the protocol of KIP-848."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aioprod import Consumer, Producer
from aioprod.admin import Admin, NewTopic
from aioprod.metrics import RebalanceDone
from tests.consumer.test_consumer_observers import Recorder, until_shared
from tests.loops import has_coarse_clock


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = f"observed-{uuid.uuid4().hex}"
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic(name, 2, 1)])
    async with Producer(bootstrap) as producer:
        for number in range(6):
            await producer.send(name, b"%d" % number, partition=number % 2)
    return name


def consumer_of(bootstrap: str, topic: str, recorder: Recorder) -> Consumer:
    settings: dict[str, Any] = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}
    return Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, observers=[recorder], **settings
    )


async def test_rebalances_are_reported_and_counted(bootstrap: str, topic: str) -> None:
    first, second = Recorder(), Recorder()
    async with consumer_of(bootstrap, topic, first) as one:
        await until_shared(one)
        assert first.partitions() == [("assigned", (0, 1))]
        assert one.metrics()["rebalance-total"] == len(first.of(RebalanceDone)) > 0
        async with consumer_of(bootstrap, topic, second) as two:
            await until_shared(one, two)
            (kept,) = one.assignment()
            metrics = one.metrics()
            assert metrics["rebalance-total"] == len(first.of(RebalanceDone)) > 1
            assert metrics["rebalance-latency-max"] < 60_000
            assert metrics["rebalance-latency-max"] > 0 or has_coarse_clock()
    assert first.partitions()[1] == ("revoked", (1 - kept.partition,))
    assert second.partitions()[0] == ("assigned", (1 - kept.partition,))
    assert all(event.error is None for event in (*first.of(RebalanceDone),))


async def test_a_rebalance_without_partitions_ends(bootstrap: str, topic: str) -> None:
    recorders = [Recorder() for _ in range(3)]
    consumers = [consumer_of(bootstrap, topic, each) for each in recorders]
    async with consumers[0], consumers[1], consumers[2]:
        async with asyncio.timeout(30):
            while not all(each.of(RebalanceDone) for each in recorders):
                await asyncio.gather(*(each.getmany(timeout_ms=200) for each in consumers))

"""A member whose process was delayed for longer than its session returns no records before it knows
whether the partitions are its own still: others may have read them meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import Consumer, RebalanceListener, TopicPartition
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, drop_before, hold
from aioprod.testing.simulation import SimulatedLoop
from tests.consumer.number_topics import TOPIC, consumer_of, fill

pytestmark = pytest.mark.virtual_time

SESSION_S = 6.0
POLL_MS = 1_000
_CLASSIC = {"session_timeout_ms": int(SESSION_S * 1000), "heartbeat_interval_ms": 1_000}
PROTOCOLS: dict[str, tuple[ApiKey, dict[str, Any]]] = {
    "eager": (ApiKey.HEARTBEAT, {**_CLASSIC, "partition_assignment_strategy": ("range",)}),
    "cooperative": (
        ApiKey.HEARTBEAT,
        {**_CLASSIC, "partition_assignment_strategy": ("cooperative-sticky",)},
    ),
}


class Losses(RebalanceListener):
    """Notes the partitions that were lost."""

    def __init__(self) -> None:
        self.lost: list[TopicPartition] = []

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += partitions


async def numbers(consumer: Consumer) -> list[int]:
    return [int(record.value or b"") for record in await consumer.getmany(timeout_ms=POLL_MS)]


async def delayed_member(
    broker: EmbeddedCluster, listener: Losses, settings: dict[str, Any]
) -> Consumer:
    """A member that has read ten records and was then delayed, while ten more were written."""
    consumer = consumer_of(broker, group_id="g", **settings)
    consumer.subscribe([TOPIC], listener=listener)
    await consumer.start()
    await fill(broker, 10)
    read = 0
    while read < 10:
        read += len(await consumer.getmany(timeout_ms=POLL_MS))
    await consumer.commit()
    await fill(broker, 10, first=10)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.jump(SESSION_S + 1)
    return consumer


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_that_was_delayed_asks_before_it_returns_records(
    broker: EmbeddedCluster, protocol: str
) -> None:
    api, settings = PROTOCOLS[protocol]
    broker.create_topic(TOPIC, 1)
    answer, listener = asyncio.Event(), Losses()
    consumer = await delayed_member(broker, listener, settings)
    try:
        broker.on(api, hold(answer))
        for _ in range(3):
            assert not await consumer.getmany(timeout_ms=POLL_MS)
        answer.set()
        read: list[int] = []
        while len(read) < 10:
            read += await numbers(consumer)
        assert listener.lost == [TopicPartition(TOPIC, 0)]
        assert read == list(range(10, 20))
    finally:
        await consumer.close()


async def test_a_coordinator_that_fails_does_not_keep_records_back(
    broker: EmbeddedCluster,
) -> None:
    _, settings = PROTOCOLS["eager"]
    broker.create_topic(TOPIC, 1)
    listener = Losses()
    consumer = await delayed_member(broker, listener, settings)
    try:
        rule = broker.on(ApiKey.HEARTBEAT, drop_before(), times=None)
        read: list[int] = []
        while len(read) < 10:
            read += await numbers(consumer)
        assert rule.used
        assert listener.lost == []
    finally:
        broker.clear_rules()
        await consumer.close()

"""A member that was cut off from all brokers for longer than its session returns no records before
its coordinator has answered: other members may have read them. If only the coordinator is away, it
reads on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import Consumer, TopicPartition
from aioprod.consumer.group.poll_watch import GRACE_S
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from aioprod.testing.simulation import SimulatedLoop
from tests.consumer.number_topics import TOPIC, consumer_of, fill
from tests.consumer.test_delayed_members import Losses

pytestmark = pytest.mark.virtual_time

SESSION_S = 6.0
MEMBER = "member"
SETTINGS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ("range",)},
    "cooperative": {"partition_assignment_strategy": ("cooperative-sticky",)},
    "static": {"group_instance_id": "one"},
}


def network() -> Any:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop.network


async def read(consumer: Consumer, seconds: float, count: int = 10) -> list[int]:
    """Return the next numbers; fewer if they do not come in time."""
    found: list[int] = []
    deadline = asyncio.get_running_loop().time() + seconds
    while len(found) < count and asyncio.get_running_loop().time() < deadline:
        records = await consumer.getmany(timeout_ms=250)
        found += [int(record.value or b"") for record in records]
    return found


@asynccontextmanager
async def member(
    broker: EmbeddedCluster, listener: Losses, settings: dict[str, Any]
) -> AsyncIterator[Consumer]:
    """A member that has read and committed ten records."""
    broker.create_topic(TOPIC, 1)
    with network().host(MEMBER):
        consumer = consumer_of(
            broker,
            group_id="g",
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=1_000,
            **settings,
        )
        consumer.subscribe([TOPIC], listener=listener)
        await consumer.start()
        try:
            await fill(broker, 10)
            assert await read(consumer, 30) == list(range(10))
            await consumer.commit()
            yield consumer
        finally:
            broker.clear_rules()
            await consumer.close()


async def cut_off(broker: EmbeddedCluster, consumer: Consumer) -> None:
    """Cut the member off for longer than its session; ten records are written meanwhile."""
    cut = network().black_hole(MEMBER)
    assert await read(consumer, 1) == []
    with network().host("writer"):
        await fill(broker, 10, first=10)
    assert await read(consumer, SESSION_S + 1) == []
    cut.heal()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
async def test_records_wait_for_the_coordinator_after_a_cut(
    broker: EmbeddedCluster, settings: dict[str, Any]
) -> None:
    listener, answer = Losses(), asyncio.Event()
    async with member(broker, listener, settings) as consumer:
        broker.on(ApiKey.HEARTBEAT, hold(answer), times=None)
        fetched = broker.request_count(ApiKey.FETCH)
        await cut_off(broker, consumer)
        assert await read(consumer, GRACE_S / 2) == []
        assert broker.request_count(ApiKey.FETCH) > fetched
        assert listener.lost == []
        answer.set()
        # Read again from the committed position on, each record once.
        assert await read(consumer, 20) == list(range(10, 20))
        assert listener.lost == [TopicPartition(TOPIC, 0)]


async def test_a_coordinator_that_stays_away_after_a_cut_keeps_records_for_a_moment(
    broker: EmbeddedCluster,
) -> None:
    listener = Losses()
    async with member(broker, listener, SETTINGS["eager"]) as consumer:
        broker.on(ApiKey.HEARTBEAT, hold(asyncio.Event()), times=None)
        await cut_off(broker, consumer)
        assert await read(consumer, GRACE_S + 1) == list(range(10, 20))
        assert listener.lost == []


async def test_a_member_reads_on_if_only_its_coordinator_is_away(
    broker: EmbeddedCluster,
) -> None:
    listener = Losses()
    async with member(broker, listener, SETTINGS["eager"]) as consumer:
        rule = broker.on(ApiKey.HEARTBEAT, hold(asyncio.Event()), times=None)
        for first in range(10, 50, 10):
            assert await read(consumer, SESSION_S) == []
            with network().host("writer"):
                await fill(broker, 10, first=first)
            assert await read(consumer, 1) == list(range(first, first + 10))
        assert rule.used
        assert listener.lost == []

"""Records that the application keeps while it asks for further ones: their locks are renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from aioprod import (
    AcknowledgeType,
    ConfigError,
    ConsumerStateError,
    KafkaError,
    ShareConsumer,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster
from tests.consumer.share.share_groups import ShareTopic, lag, numbers, take

KEEPS = {
    "share_acknowledgement_mode": "explicit",
    "share_acquire_mode": "record_limit",
    "max_lock_renewal_ms": 60_000,
}


async def test_records_are_kept_while_others_are_read(share_broker: str) -> None:
    topic = ShareTopic(share_broker)
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write(range(4))
    tp = TopicPartition(topic.topic, 0)
    reported: list[tuple[Mapping[TopicPartition, Collection[int]], KafkaError | None]] = []
    keeps = topic.consumer(
        acknowledgement_commit_callback=lambda offsets, error: reported.append((offsets, error)),
        **KEEPS,
    )
    async with keeps, topic.consumer() as other:
        first, second = await take(keeps, 2, max_records=2)
        loop = asyncio.get_running_loop()
        end = loop.time() + 2.5  # more than two locks
        keeps.acknowledge(second)
        third, fourth = await take(keeps, 2, max_records=2)
        while loop.time() < end:
            assert await keeps.getmany(timeout_ms=200, fetch=False) == []
            assert await other.getmany(timeout_ms=100) == []
        assert not any(0 in found or 2 in found for each, _ in reported for found in each.values())
        for record in (first, third, fourth):
            assert record.delivery_count == 1
            keeps.acknowledge(record)
        assert set((await keeps.commit()).values()) == {None}
        assert sorted(each for found, _ in reported for each in found[tp]) == [0, 1, 2, 3]
        assert {error for _, error in reported} == {None}
    assert await lag(topic) == 0


@pytest.mark.virtual_time
async def test_locks_are_renewed_for_the_limit_only(broker: EmbeddedCluster) -> None:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create()
    await topic.write([0])
    loop = asyncio.get_running_loop()
    async with topic.consumer(**KEEPS) as keeps, topic.consumer() as other:
        (kept,) = await take(keeps, 1)
        begun = loop.time()
        (again,) = await other.getmany(timeout_ms=600_000)
        # Renewed after 15, 30, 45 and not after 60 s.
        assert 70 < loop.time() - begun < 95
        assert again.delivery_count == 2
        keeps.acknowledge(kept)
        (error,) = (await keeps.commit()).values()
        assert error is not None
        assert broker.request_count(ApiKey.SHARE_ACKNOWLEDGE) < 10


@pytest.mark.virtual_time
async def test_records_that_are_released_too_late_refuse_no_other_acknowledgement(
    broker: EmbeddedCluster,
) -> None:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write(range(3))
    async with topic.consumer(**KEEPS) as keeps, topic.consumer() as other:
        (kept,) = await take(keeps, 1, max_records=1)
        assert numbers(await take(other, 2)) == [1, 2]  # their lock was not renewed
        keeps.acknowledge(kept)
        keeps.subscribe(["another"])  # releases what was fetched
        assert set((await keeps.commit()).values()) == {None}


@pytest.mark.virtual_time
async def test_a_lost_session_renews_nothing(broker: EmbeddedCluster) -> None:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create()
    await topic.write([0])
    async with topic.consumer(**KEEPS) as keeps:
        (kept,) = await take(keeps, 1)
        await broker.kill_node(1)
        await broker.start_node(1)
        (again,) = await keeps.getmany(timeout_ms=600_000)
        if again.delivery_count != kept.delivery_count:
            with pytest.raises(ConsumerStateError):
                keeps.acknowledge(kept)
        keeps.acknowledge(again)
        assert set((await keeps.commit()).values()) == {None}


@pytest.mark.virtual_time
async def test_what_has_arrived_is_returned_and_the_member_stays(broker: EmbeddedCluster) -> None:
    topic = ShareTopic(broker.bootstrap_servers)
    await topic.create()
    await topic.write([0, 1])
    async with topic.consumer(**KEEPS, max_poll_interval_ms=10_000) as keeps:
        (kept,) = await take(keeps, 1, max_records=1)
        assert numbers(await keeps.getmany(fetch=False)) == [1]
        await topic.write([2])
        assert await keeps.getmany(timeout_ms=45_000, fetch=False) == []
        joined = broker.request_count(ApiKey.SHARE_GROUP_HEARTBEAT)
        assert numbers(await take(keeps, 1)) == [2]
        assert broker.request_count(ApiKey.SHARE_GROUP_HEARTBEAT) <= joined + 1
        keeps.acknowledge(kept, AcknowledgeType.REJECT)
    assert await lag(topic) == 2


def test_it_wants_explicit_mode() -> None:
    with pytest.raises(ConfigError, match=r"max_lock_renewal_ms=1: requires share_ack.*explicit"):
        ShareConsumer(group_id="g", max_lock_renewal_ms=1)

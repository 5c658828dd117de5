"""Records that were fetched, and whose locks are gone before the application gets them, are not
returned: other members may have them. They come again.
"""

from __future__ import annotations

import asyncio

import pytest

from aioprod import BrokerConnectionError, ShareConsumer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold_answer
from tests.consumer.share.share_groups import ShareTopic, numbers, take
from tests.waiting import until


async def three_records(servers: str) -> ShareTopic:
    topic = ShareTopic(servers)
    await topic.create(share_record_lock_duration_ms="60000")
    await topic.write(range(3))
    return topic


async def start_to_read(consumer: ShareConsumer) -> None:
    """Get the first of three records; the others are fetched, too."""
    (first,) = await take(consumer, 1, max_records=1)
    assert first.delivery_count == 1
    assert set((await consumer.commit()).values()) == {None}
    assert consumer.metrics()["records-buffered"] == 2


async def buffer_is_empty(consumer: ShareConsumer) -> None:
    await until(lambda: not consumer.metrics()["records-buffered"], 10)


async def others_come_again(consumer: ShareConsumer, delivery_count: int = 2) -> None:
    again = await take(consumer, 2)
    assert numbers(again) == [1, 2]
    assert {record.delivery_count for record in again} == {delivery_count}
    assert set((await consumer.commit()).values()) == {None}


async def test_the_connection_closes(share_broker: str) -> None:
    topic = await three_records(share_broker)
    async with topic.consumer() as consumer:
        await start_to_read(consumer)
        connection = consumer._core._requests._brokers.live(1)
        assert connection is not None
        connection.abort(BrokerConnectionError("cut by the test"))
        await buffer_is_empty(consumer)
        await others_come_again(consumer)


@pytest.mark.virtual_time
async def test_the_broker_restarts(broker: EmbeddedCluster) -> None:
    topic = await three_records(broker.bootstrap_servers)
    async with topic.consumer() as consumer:
        await start_to_read(consumer)
        await broker.kill_node(1)
        await broker.start_node(1)
        await buffer_is_empty(consumer)
        await others_come_again(consumer)


@pytest.mark.virtual_time
async def test_another_leads_for_a_while() -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        topic = await three_records(cluster.bootstrap_servers)
        async with topic.consumer() as consumer:
            await start_to_read(consumer)
            leader = cluster.leader(topic.topic, 0)
            cluster.move_leader(topic.topic, 0, 3 - leader)
            consumer._core.runtime.metadata.request_update()
            await buffer_is_empty(consumer)
            cluster.move_leader(topic.topic, 0, leader)
            # A leader that is new does not know what the former one has delivered.
            await others_come_again(consumer, delivery_count=1)


@pytest.mark.virtual_time
async def test_the_response_comes_when_another_leads() -> None:
    async with EmbeddedCluster(nodes=2) as cluster:
        topic = await three_records(cluster.bootstrap_servers)
        leader, answer = cluster.leader(topic.topic, 0), asyncio.Event()
        cluster.on(ApiKey.SHARE_FETCH, hold_answer(answer), node=leader)
        async with topic.consumer() as consumer:
            reading = asyncio.create_task(consumer.getmany())
            await cluster.wait_for_request(ApiKey.SHARE_FETCH, node=leader)
            cluster.move_leader(topic.topic, 0, 3 - leader)
            consumer._core.runtime.metadata.request_update()
            records = await reading  # of the new leader
            answer.set()
            # The next call waits for the response of the former leader.
            assert await consumer.getmany(timeout_ms=500) == []
            assert numbers(records) == [0, 1, 2]

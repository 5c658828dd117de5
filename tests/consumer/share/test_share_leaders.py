"""Leaders of a share group's partitions move, and brokers end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from aioprod import (
    Admin,
    BrokerError,
    ErrorCode,
    KafkaError,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from aioprod.admin import ElectionType
from aioprod.testing.real_cluster import RealCluster
from tests.consumer.share.share_groups import ShareTopic, lag, take

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
SETTINGS = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
}


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[RealCluster]:
    """For both tests; the last kills a node."""
    with RealCluster(3, version="4.4.0", settings=SETTINGS) as running:
        yield running


async def leader_of(admin: Admin, tp: TopicPartition) -> int:
    found = (await admin.describe_topics(tp.topic)).partitions[tp.partition].leader
    assert found is not None
    return found.node_id


async def test_acknowledgements_of_a_partition_that_moved_fail(three_nodes: RealCluster) -> None:
    topic = ShareTopic(three_nodes.bootstrap_servers)
    await topic.create()
    await topic.write(range(5))
    tp = TopicPartition(topic.topic, 0)
    reported: list[tuple[set[int], KafkaError | None]] = []
    async with (
        Admin(topic.kafka) as admin,
        topic.consumer(
            **EXPLICIT,
            acknowledgement_commit_callback=lambda offsets, error: reported.append(
                (set(offsets[tp]), error)
            ),
        ) as consumer,
    ):
        records = await take(consumer, 5)
        consumer.acknowledge(records[0])
        assert await consumer.commit() == {tp: None}
        old = await leader_of(admin, tp)
        await admin.alter_partition_reassignments({tp: [old % 3 + 1, old]})
        async with asyncio.timeout(30):
            while await leader_of(admin, tp) == old:
                await admin.elect_leaders(ElectionType.PREFERRED, [tp])
                await asyncio.sleep(0.2)
        for record in records[1:]:
            consumer.acknowledge(record)
        outcome = (await consumer.commit())[tp]
        assert isinstance(outcome, BrokerError)
        # Kafka 4.4 answers the second: the old leader has forgotten the share partition.
        assert outcome.code in (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert reported[0] == ({0}, None)
        assert reported[1][0] == {1, 2, 3, 4}
        assert isinstance(reported[1][1], BrokerError)
        # The new leader delivers them again.
        again = await take(consumer, 4)
        assert [record.offset for record in again] == [1, 2, 3, 4]
        for record in again:
            consumer.acknowledge(record)
        assert await consumer.commit() == {tp: None}
    assert await lag(topic) == 0


async def accept_some(consumer: ShareConsumer, sure: list[tuple[int, int]]) -> None:
    """Accept a few records, and note those that are confirmed."""
    records: list[ShareRecord] = await consumer.getmany(20, timeout_ms=1_000)
    for record in records:
        consumer.acknowledge(record)
    outcomes = await consumer.commit()
    sure += [
        (record.partition, record.offset)
        for record in records
        if outcomes[TopicPartition(record.topic, record.partition)] is None
    ]


async def test_a_broker_that_is_killed_loses_and_doubles_nothing(three_nodes: RealCluster) -> None:
    topic = ShareTopic(three_nodes.bootstrap_servers)
    await topic.create(partitions=3, share_delivery_count_limit="10")
    for partition in range(3):
        await topic.write(range(300), partition)
    sure: list[tuple[int, int]] = []
    settings = {**EXPLICIT, "default_api_timeout_ms": 60_000, "request_timeout_ms": 10_000}
    async with topic.consumer(**settings) as consumer:
        while len(sure) < 200:
            await accept_some(consumer, sure)
        three_nodes.kill(2)
        async with asyncio.timeout(120):
            while await lags(topic) != [0, 0, 0]:
                await accept_some(consumer, sure)
    assert len(set(sure)) == len(sure)
    # A few were stored although the response was lost.
    assert 900 - 60 <= len(sure) <= 900


async def lags(topic: ShareTopic) -> list[int]:
    """The lag of each partition; nothing while it is unknown."""
    try:
        return [await lag(topic, partition) for partition in range(3)]
    except (AssertionError, KafkaError):  # the coordinator moves
        return []

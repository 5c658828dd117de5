"""librdkafka's admin client returns the same results as ours, and sees its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource as TheirResource
from confluent_kafka.admin._listoffsets import OffsetSpec as TheirSpec
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import NewTopic as TheirTopic

from aioprod import Admin, OffsetAndMetadata, Producer, TopicPartition
from aioprod.admin import ConfigResource, NewTopic, OffsetSpec
from tests.waiting import until

LIMIT_S = 20
EARLIEST: Any = TheirSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = TheirSpec.latest()  # type: ignore[no-untyped-call]


async def answers(asked: dict[Any, Future[Any]]) -> list[Any]:
    """Wait for the results of librdkafka's admin client, each in a thread."""
    return [await asyncio.to_thread(each.result, LIMIT_S) for each in asked.values()]


@pytest.mark.real_time
async def test_both_see_and_do_the_same(
    admin: Admin, bootstrap: str, new_name: Callable[[str], str]
) -> None:
    theirs = await asyncio.to_thread(AdminClient, {"bootstrap.servers": bootstrap})
    ours, other = new_name("ours"), new_name("theirs")

    made = await admin.create_topics(NewTopic(ours, 2, 1, {"retention.ms": 70_000}))
    await answers(theirs.create_topics([TheirTopic(other, 3, 1, config={"retention.ms": "80000"})]))

    async def is_known() -> bool:  # Kafka's controller answers before the broker knows the topic
        known = (await asyncio.to_thread(theirs.list_topics, timeout=LIMIT_S)).topics
        return all(name in known and known[name].partitions for name in (ours, other))

    await until(is_known)
    for name, partitions, retention in ((ours, 2, "70000"), (other, 3, "80000")):
        metadata = await asyncio.to_thread(theirs.list_topics, name, LIMIT_S)
        described = await admin.describe_topics(name)
        assert len(metadata.topics[name].partitions) == len(described.partitions) == partitions
        for partition in described.partitions:
            reported = metadata.topics[name].partitions[partition.partition]
            assert (reported.leader, tuple(reported.replicas), tuple(reported.isrs)) == (
                partition.leader and partition.leader.node_id, partition.replicas, partition.isr
            )  # fmt: skip
        (settings,) = await answers(
            theirs.describe_configs([TheirResource(TheirResource.Type.TOPIC, name)])
        )
        own = await admin.describe_configs(ConfigResource.topic(name))
        assert {key: each.value for key, each in settings.items()} == {
            key: each.value for key, each in own.items()
        }
        assert own["retention.ms"].value == retention
    assert made.configs["retention.ms"].value == "70000"

    async with Producer(bootstrap) as producer:
        for number in range(10):
            await producer.send(ours, b"x", partition=number % 2)
    (await admin.delete_records({TopicPartition(ours, 0): 2})).check()
    found = await answers(theirs.list_offsets({Place(ours, 0): EARLIEST, Place(ours, 1): LATEST}))
    places = await admin.list_offsets(
        {TopicPartition(ours, 0): OffsetSpec.EARLIEST, TopicPartition(ours, 1): OffsetSpec.LATEST}
    )
    assert [each.offset for each in found] == [each.offset for each in places.values()] == [2, 5]

    group = new_name("group")
    (
        await admin.alter_consumer_group_offsets(
            group, {TopicPartition(ours, 0): OffsetAndMetadata(3, "ours")}
        )
    ).check()
    await answers(
        theirs.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [Place(ours, 1, 4)])]
        )
    )
    (reported,) = await answers(
        theirs.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    )
    assert {(each.partition, each.offset) for each in reported.topic_partitions} == {(0, 3), (1, 4)}
    assert await admin.list_consumer_group_offsets(group) == {
        TopicPartition(ours, 0): OffsetAndMetadata(3, "ours"),
        TopicPartition(ours, 1): OffsetAndMetadata(4),
    }
    (description,) = await answers(theirs.describe_consumer_groups([group]))
    assert (
        description.state.name
        == (await admin.describe_consumer_groups(group)).state.upper()
        == "EMPTY"
    )

    await answers(theirs.create_partitions([NewPartitions(ours, 4)]))

    async def has_grown() -> bool:
        return len((await admin.describe_topics(ours)).partitions) == 4

    await until(has_grown)
    (await admin.delete_consumer_groups([group])).check()
    (await admin.delete_topics([ours, other])).check()

    async def are_gone() -> bool:
        return (
            not {ours, other}
            & (await asyncio.to_thread(theirs.list_topics, timeout=LIMIT_S)).topics.keys()
        )

    await until(are_gone)

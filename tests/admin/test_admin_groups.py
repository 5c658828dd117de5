"""The admin client's calls for groups and their offsets, with members of other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer as ConfluentConsumer

from aioprod import (
    Admin,
    BrokerError,
    ErrorCode,
    KafkaTimeoutError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from aioprod.admin import AclOperation, NewTopic, OffsetSpec
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

NewName = Callable[[str], str]
LIMIT_S = 60


@asynccontextmanager
async def member(
    bootstrap: str, topic: str, group: str, **settings: object
) -> AsyncIterator[AIOKafkaConsumer]:
    """A member of a classic group that has its partitions."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", **settings
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def filled_topic(
    admin: Admin, bootstrap: str, name: str, partitions: int = 2, records: int = 10
) -> list[TopicPartition]:
    await admin.create_topics(NewTopic(name, partitions))
    async with Producer(bootstrap) as producer:
        for partition in range(partitions):
            for number in range(records):
                await producer.send(name, b"%d" % number, partition=partition)
    return [TopicPartition(name, partition) for partition in range(partitions)]


async def test_a_classic_group_is_listed_and_described(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    topic, group = new_name("orders"), new_name("group")
    partitions = await filled_topic(admin, bootstrap, topic)
    async with member(bootstrap, topic, group, client_id="reader", group_instance_id="one"):
        listed = (await admin.list_groups())[group]
        assert (listed.type, listed.protocol_type, listed.state) == (
            "classic",
            "consumer",
            "Stable",
        )
        described = await admin.describe_consumer_groups(group, include_authorized_operations=True)
        assert (described.group_id, described.type, described.state) == (group, "classic", "Stable")
        assert (described.assignor, described.protocol_type) == ("roundrobin", "consumer")
        assert (
            described.authorized_operations is not None
            and AclOperation.READ in described.authorized_operations
        )
        (only,) = described.members
        assert (only.client_id, only.group_instance_id, only.assignment) == (
            "reader",
            "one",
            frozenset(partitions),
        )
        assert "127.0.0.1" in only.host and only.member_id
        assert topic.encode() in only.member_metadata and topic.encode() in only.member_assignment
        assert group in await admin.list_groups(states=["Stable"], types=["classic"])
        assert group not in await admin.list_groups(states=["Empty"])
        assert group not in await admin.list_groups(types=["consumer"])


async def test_a_group_with_members_is_not_deleted_and_its_offsets_not_changed(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    topic, group = new_name("orders"), new_name("group")
    partitions = await filled_topic(admin, bootstrap, topic)
    async with member(bootstrap, topic, group) as consumer:
        await consumer.commit(dict.fromkeys(consumer.assignment(), 1))
        with pytest.raises(BrokerError, match=f"group {group}") as raised:
            await admin.delete_consumer_groups(group)
        assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
        altered = await admin.alter_consumer_group_offsets(group, dict.fromkeys(partitions, 5))
        with pytest.raises(BrokerError, match=r"the group has members: stop them first"):
            altered.check()
        deleted = await admin.delete_consumer_group_offsets(group, partitions)
        assert {
            error.code for error in deleted.errors.values() if isinstance(error, BrokerError)
        } == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        assert {
            place.offset
            for place in (await admin.list_consumer_group_offsets(group)).values()
            if place
        } == {1}
    await admin.delete_consumer_groups(group)
    with pytest.raises(BrokerError) as raised:
        await admin.describe_consumer_groups(group)
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_are_altered_listed_and_deleted(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    group = new_name("group")
    first, second = await filled_topic(admin, bootstrap, new_name("orders"))
    altered = await admin.alter_consumer_group_offsets(
        group, {first: 3, second: OffsetAndMetadata(4, "by hand"), TopicPartition("missing", 0): 1}
    )
    assert list(altered.successes) == [first, second]
    assert list(altered.errors) == [TopicPartition("missing", 0)]
    assert await admin.list_consumer_group_offsets(group) == {
        first: OffsetAndMetadata(3),
        second: OffsetAndMetadata(4, "by hand"),
    }
    other = TopicPartition(first.topic, 7)
    assert await admin.list_consumer_group_offsets(group, [second, other], require_stable=True) == {
        second: OffsetAndMetadata(4, "by hand"),
        other: None,
    }
    described = await admin.describe_consumer_groups(group)
    assert (described.state, described.members) == ("Empty", ())
    (await admin.delete_consumer_group_offsets(group, [first])).check()
    assert await admin.list_consumer_group_offsets(group) == {
        second: OffsetAndMetadata(4, "by hand")
    }
    assert await admin.list_consumer_group_offsets(new_name("unknown")) == {}


async def test_each_group_has_its_own_outcome(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    group, missing = new_name("group"), new_name("missing")
    (partition,) = await filled_topic(admin, bootstrap, new_name("orders"), 1)
    (await admin.alter_consumer_group_offsets(group, {partition: 3})).check()
    described = await admin.describe_consumer_groups([group, missing])
    assert list(described.successes) == [group] and list(described.errors) == [missing]
    deleted = await admin.delete_consumer_groups([missing, group])
    assert list(deleted) == [missing, group] and list(deleted.errors) == [missing]


async def test_static_members_are_removed(admin: Admin, bootstrap: str, new_name: NewName) -> None:
    topic, group = new_name("orders"), new_name("group")
    await filled_topic(admin, bootstrap, topic)
    async with member(
        bootstrap,
        topic,
        group,
        group_instance_id="one",
        session_timeout_ms=30_000,
        enable_auto_commit=False,
    ):
        removed = await admin.remove_members_from_consumer_group(group, ["one", "two"])
        assert list(removed.successes) == ["one"] and list(removed.errors) == ["two"]


async def test_offsets_of_partitions(admin: Admin, bootstrap: str, new_name: NewName) -> None:
    topic = new_name("orders")
    await admin.create_topics(NewTopic(topic, 1))
    partition = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer:
        for number in range(5):
            await producer.send(topic, b"x", timestamp_ms=1_000_000 + number * 1000)
    for spec, expected in (
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 5),
        (OffsetSpec.MAX_TIMESTAMP, 4),
        (1_001_500, 2),
        (9_000_000, -1),
    ):
        found = (await admin.list_offsets({partition: spec}, isolation_level="read_committed"))[
            partition
        ]
        assert found.offset == expected, spec
    assert (await admin.list_offsets({partition: 1_001_500}))[partition].timestamp == 1_002_000
    some = await admin.list_offsets(
        {partition: OffsetSpec.LATEST, TopicPartition(topic, 9): OffsetSpec.LATEST}
    )
    assert some[partition].offset == 5
    with pytest.raises(BrokerError, match=rf"{topic}-9 \(the topic has 1 partition\)"):
        some.check()


async def test_groups_of_all_brokers(new_name: NewName) -> None:
    async with EmbeddedCluster(nodes=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        cluster.create_topic("orders", 1)
        groups = [f"group-{number}" for number in range(20)]
        for group in groups:
            (
                await admin.alter_consumer_group_offsets(group, {TopicPartition("orders", 0): 0})
            ).check()
        assert set(await admin.list_groups()) == set(groups)
        coordinators = {group: await admin.find_coordinator(group) for group in groups}
        assert set(coordinators.values()) == {1, 2, 3}
        for number in (1, 2, 3):
            own = {group for group, node in coordinators.items() if node == number}
            assert set(await admin.list_groups(brokers=[number])) == own
        assert set(await admin.list_groups(brokers=(1, 2, 3))) == set(groups)
        assert not await admin.list_groups(brokers=())
        assert await admin.find_coordinator("t", transactional=True) in (1, 2, 3)
        assert (await admin.describe_consumer_groups(groups)).check().keys() == set(groups)
        (await admin.delete_consumer_groups(groups)).check()
        assert not await admin.list_groups()


async def test_a_coordinator_that_moves_is_found() -> None:
    async with EmbeddedCluster(nodes=2) as cluster, Admin(cluster.bootstrap_servers) as admin:
        before = await admin.find_coordinator("group")
        cluster.move_coordinator("group", "group", 3 - before)
        assert await admin.find_coordinator("group") == 3 - before
        await cluster.stop_node(before)
        with pytest.raises(KafkaTimeoutError):
            await admin.list_groups(brokers=[before], timeout_ms=300)


async def test_a_group_of_the_new_protocol(kafka: str, new_name: NewName) -> None:
    topic, group = new_name("orders"), new_name("group")
    async with Admin(kafka) as admin:
        partitions = await filled_topic(admin, kafka, topic)
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": kafka,
                "group.id": group,
                "group.protocol": "consumer",
                "client.id": "reader",
            }
        )
        consumer.subscribe([topic])

        async def has_all() -> bool:
            await asyncio.to_thread(consumer.poll, 0.1)
            try:
                described = await admin.describe_consumer_groups(group)
            except BrokerError:  # not there yet
                return False
            return [member.assignment for member in described.members] == [frozenset(partitions)]

        try:
            await until(has_all)
            described = await admin.describe_consumer_groups(
                group, include_authorized_operations=True
            )
            assert (described.type, described.state, described.assignor) == (
                "consumer",
                "Stable",
                "uniform",
            )
            assert described.group_epoch is not None and described.group_epoch >= 1
            assert described.assignment_epoch == described.group_epoch
            (only,) = described.members
            assert (only.client_id, only.subscription, only.target_assignment) == (
                "reader",
                frozenset({topic}),
                frozenset(partitions),
            )
            assert only.member_epoch == described.group_epoch
            assert (await admin.list_groups(types=["consumer"]))[group].state == "Stable"
            altered = await admin.alter_consumer_group_offsets(group, dict.fromkeys(partitions, 5))
            assert (
                all("has members" in str(error) for error in altered.errors.values())
                and len(altered.errors) == 2
            )
        finally:
            await asyncio.to_thread(consumer.close)
        await admin.delete_consumer_groups(group)

"""The admin client's calls for share groups: describing them, and listing, setting and deleting
their offsets.
"""

from __future__ import annotations

import pytest

from aioprod import Admin, BrokerError, ConfigError, ErrorCode, TopicPartition
from aioprod.admin import AclOperation, GroupListing, ShareGroupOffset
from aioprod.errors import UnsupportedVersionError
from aioprod.testing import EmbeddedCluster
from tests.consumer.share.conftest import share_broker as share_broker
from tests.consumer.share.share_groups import ShareTopic, numbers, take


@pytest.fixture
def topic(share_broker: str) -> ShareTopic:
    return ShareTopic(share_broker)


async def test_members_and_their_partitions(topic: ShareTopic) -> None:
    await topic.create(2)
    await topic.write(range(3))
    async with Admin(topic.kafka) as admin, topic.consumer(client_id="first") as first:
        await take(first, 3)
        described = await admin.describe_share_groups(
            topic.group, include_authorized_operations=True
        )
        (member,) = described.members
        assert (described.group_id, described.state) == (topic.group, "Stable")
        assert described.assignor == "simple"
        assert described.group_epoch >= described.assignment_epoch > 0
        assert described.authorized_operations is not None
        assert AclOperation.DELETE in described.authorized_operations
        assert member.client_id == "first"
        assert member.host == "/127.0.0.1"
        assert member.member_epoch > 0
        assert member.subscription == {topic.topic}
        assert member.assignment == {TopicPartition(topic.topic, n) for n in (0, 1)}
        listed = await admin.list_groups(types=["share"])
        assert listed[topic.group] == GroupListing(topic.group, "share", "share", "Stable")
    async with Admin(topic.kafka) as admin:
        described = await admin.describe_share_groups(topic.group)
        assert (described.state, described.members) == ("Empty", ())
        assert described.authorized_operations is None


async def test_offsets_are_listed_set_and_deleted(topic: ShareTopic) -> None:
    await topic.create(2)
    await topic.write(range(10))
    zero, one = TopicPartition(topic.topic, 0), TopicPartition(topic.topic, 1)
    async with Admin(topic.kafka) as admin:
        async with topic.consumer() as consumer:
            await take(consumer, 6, max_records=6)
            await consumer.commit()
            refused = await admin.alter_share_group_offsets(topic.group, {zero: 1})
            with pytest.raises(BrokerError) as caught:
                refused.check()
            assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
            with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
                (await admin.delete_share_group_offsets(topic.group, [topic.topic])).check()
        found = await admin.list_share_group_offsets(topic.group)
        assert found[zero] in [ShareGroupOffset(6, 4, epoch) for epoch in (None, 0)]
        assert await admin.list_share_group_offsets(topic.group, [zero]) == {zero: found[zero]}

        (await admin.alter_share_group_offsets(topic.group, {zero: 8, one: 0})).check()
        moved = await admin.list_share_group_offsets(topic.group)
        assert moved[zero] in [ShareGroupOffset(8, 2, epoch) for epoch in (None, 0)]
        async with topic.consumer() as consumer:
            assert numbers(await take(consumer, 2)) == [8, 9]
            await consumer.commit()

        (await admin.delete_share_group_offsets(topic.group, [topic.topic])).check()
        assert await admin.list_share_group_offsets(topic.group, [zero]) == {zero: None}
        async with topic.consumer() as consumer:
            assert numbers(await take(consumer, 10)) == list(range(10))
        (await admin.delete_consumer_groups([topic.group])).check()
        assert topic.group not in await admin.list_groups()


async def test_what_does_not_exist(topic: ShareTopic) -> None:
    tp = TopicPartition("no-such-topic", 0)
    async with Admin(topic.kafka) as admin:
        with pytest.raises(BrokerError, match=f"share group {topic.group}") as caught:
            await admin.describe_share_groups(topic.group)
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
        assert await admin.list_share_group_offsets(topic.group) == {}
        altered = await admin.alter_share_group_offsets(topic.group, {tp: 0})
        with pytest.raises(BrokerError, match="no-such-topic-0") as caught:
            altered.check()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await topic.create()
        for call in (
            admin.alter_share_group_offsets(topic.group, {TopicPartition(topic.topic, 0): 0}),
            admin.delete_share_group_offsets(topic.group, [topic.topic]),
        ):
            (await call).check()
        absent = [TopicPartition(topic.topic, 9), tp, TopicPartition(topic.topic, 0)]
        listed = await admin.list_share_group_offsets(topic.group, absent, timeout_ms=20_000)
        assert listed == dict.fromkeys(absent)
        assert await admin.list_share_group_offsets(topic.group, absent[:1]) == {absent[0]: None}
        missing = await admin.delete_share_group_offsets(topic.group, ["no-such-topic"])
        with pytest.raises(BrokerError, match="topic no-such-topic"):
            missing.check()


async def test_a_cluster_without_share_groups(kafka_3_9: str) -> None:
    tp = TopicPartition("orders", 0)
    async with Admin(kafka_3_9) as admin:
        with pytest.raises(UnsupportedVersionError, match="share groups need Kafka"):
            await admin.describe_share_groups("group")
        with pytest.raises(UnsupportedVersionError, match="share groups need Kafka"):
            await admin.list_share_group_offsets("group")
        for call in (
            admin.alter_share_group_offsets("group", {tp: 0}),
            admin.delete_share_group_offsets("group", ["orders"]),
        ):
            with pytest.raises(UnsupportedVersionError, match="share groups need Kafka"):
                (await call).check()


async def test_offsets_are_checked(kafka_broker: EmbeddedCluster) -> None:
    async with Admin(kafka_broker.bootstrap_servers) as admin:
        with pytest.raises(ConfigError, match="offset -1 of"):
            await admin.alter_share_group_offsets("group", {TopicPartition("orders", 0): -1})

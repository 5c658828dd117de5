"""Members of groups of the new protocol (KIP-848) against the embedded broker and Kafka 4.4."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

from aioprod.cluster.client import ClusterClient
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError, UnsupportedVersionError
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.api_versions import ApiVersionsResponse
from aioprod.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    DescribedGroup,
)
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from aioprod.testing import EmbeddedCluster, change_answer
from aioprod.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from tests.consumer.group.group_driver import Driver, Listener, shared_out
from tests.consumer.group.group_readers import make_topic

NEW: dict[str, Any] = {"group_protocol": "consumer"}


@pytest.fixture
async def topic(bootstrap: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    await make_topic(bootstrap, name, 4)
    return name


def tps(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


async def describe(bootstrap: str, group_id: str) -> DescribedGroup:
    async with ClusterClient(bootstrap) as client:
        reply = await client.request(ConsumerGroupDescribeRequest([group_id]))
        return reply.groups[0]


async def test_members_share_the_partitions_and_one_that_leaves_releases_its_own(
    bootstrap: str, topic: str
) -> None:
    listener = Listener()
    async with Driver(
        bootstrap,
        topic,
        listener=listener,
        enable_auto_commit=False,
        group_remote_assignor="range",
        **NEW,
    ) as first:
        await shared_out([first.subscribe(topic)], 4)
        metadata = first.member.group_metadata()
        assert (metadata.group_id, metadata.generation_id > 0, len(metadata.member_id)) == (
            topic,
            True,
            22,
        )
        async with Driver(bootstrap, topic, enable_auto_commit=False, **NEW) as second:
            await shared_out([first, second.subscribe(topic)], 4)
            described = await describe(bootstrap, topic)
            assert (described.group_state, described.assignor_name, len(described.members)) == (
                "Stable",
                "range",
                2,
            )
            await second.commit({tps(topic, 0)[0]: OffsetAndMetadata(5, "note", 1)})
        await shared_out([first], 4)
        assert (await first.committed(*tps(topic, 0, 1))) == {
            tps(topic, 0)[0]: OffsetAndMetadata(5, "note", 1),
            tps(topic, 1)[0]: None,
        }
    assert [name for name, _ in listener.calls if name == "lost"] == []
    assert listener.calls[-1] == ("revoked", tps(topic, 0, 1, 2, 3))
    assert (await describe(bootstrap, topic)).group_state == "Empty"


async def test_a_static_member_comes_back_to_its_partitions_and_a_second_one_is_refused(
    bootstrap: str, topic: str
) -> None:
    async with Driver(bootstrap, topic, group_instance_id="a", **NEW) as first:
        async with Driver(bootstrap, topic, group_instance_id="b", **NEW) as second:
            await shared_out([first.subscribe(topic), second.subscribe(topic)], 4)
            before = second.assigned
            async with Driver(bootstrap, topic, group_instance_id="b", **NEW) as third:
                third.subscribe(topic)
                with pytest.raises(BrokerError) as caught:
                    await third.poll_until(lambda: False, first, second)
                assert caught.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
            await shared_out([first, second], 4)
        async with Driver(bootstrap, topic, group_instance_id="b", **NEW) as again:
            await again.subscribe(topic).poll_until(lambda: again.assigned == before, first)


async def test_new_partitions_and_topics_of_an_expression_of_the_broker_come_by_themselves(
    bootstrap: str, topic: str
) -> None:
    async with Driver(bootstrap, topic, **NEW) as driver:
        driver.subscription.subscribe_pattern(SubscriptionPattern(f"{topic}.*"), None)
        driver.member.subscription_changed()
        await shared_out([driver], 4)
        async with ClusterClient(bootstrap) as client:
            await client.request(
                CreatePartitionsRequest([CreatePartitionsTopic(topic, 6, None)], 10_000)
            )
        await driver.poll_until(lambda: len(driver.assigned) == 6)
        await driver.member.unsubscribe(asyncio.get_running_loop().time() + 5)
        assert not driver.assigned
        driver.subscription.unsubscribe()
        driver.subscribe(topic)
        await shared_out([driver], 6)


async def test_who_does_not_poll_leaves_and_comes_back(bootstrap: str, topic: str) -> None:
    listener = Listener()
    async with (
        Driver(bootstrap, topic, **NEW) as first,
        Driver(bootstrap, topic, listener=listener, max_poll_interval_ms=1_000, **NEW) as slow,
    ):
        await shared_out([first.subscribe(topic), slow.subscribe(topic)], 4)
        await shared_out([first], 4)
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await slow.commit({tps(topic, 0)[0]: OffsetAndMetadata(1)})
        await shared_out([first, slow], 4)
        assert "lost" in [name for name, _ in listener.calls]


async def test_a_member_that_the_coordinator_puts_out_joins_again_with_the_same_id(
    bootstrap: str, topic: str
) -> None:
    listener = Listener()
    async with Driver(bootstrap, topic, listener=listener, **NEW) as driver:
        await shared_out([driver.subscribe(topic)], 4)
        member_id = driver.member.group_metadata().member_id
        # Another client sends in its name that it leaves.
        async with ClusterClient(bootstrap) as client:
            reply = await client.request(ConsumerGroupHeartbeatRequest(topic, member_id, -1))
            assert reply.error_code == 0
        driver.subscribe(topic)  # has a heartbeat go out now
        await driver.poll_until(
            lambda: [name for name, _ in listener.calls] == ["assigned", "lost", "assigned"]
        )
        assert driver.member.group_metadata().member_id == member_id
        await shared_out([driver], 4)


async def test_an_assignor_that_the_broker_does_not_have_is_refused(
    bootstrap: str, topic: str
) -> None:
    async with Driver(bootstrap, topic, group_remote_assignor="mine", **NEW) as driver:
        driver.subscribe(topic)
        with pytest.raises(BrokerError) as caught:
            await driver.poll_until(lambda: False)
        assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR


def without_new_groups(answer: ApiVersionsResponse) -> None:
    answer.api_keys = [
        api for api in answer.api_keys if api.api_key != ApiKey.CONSUMER_GROUP_HEARTBEAT
    ]


async def test_an_old_broker_is_named_as_such(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    broker.on_every(ApiKey.API_VERSIONS, change_answer(without_new_groups))
    async with Driver(broker, **NEW) as driver:
        driver.subscribe("t")
        with pytest.raises(
            UnsupportedVersionError, match=r'group_protocol="consumer" needs Kafka 4\.0'
        ):
            await driver.poll_until(lambda: False)

"""The admin client with older brokers: older versions of requests, missing requests, and missing
fields in responses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import (
    Admin,
    BrokerError,
    ErrorCode,
    OffsetAndMetadata,
    ProtocolError,
    TopicPartition,
    UnsupportedVersionError,
)
from aioprod.admin import ConfigResource, NewTopic, OffsetSpec
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, change_answer

#: The newest versions of Kafka 2.1, the oldest broker that Kafka 4's own clients speak to.
KAFKA_2_1 = {
    ApiKey.LIST_OFFSETS: 4,
    ApiKey.METADATA: 7,
    ApiKey.OFFSET_COMMIT: 6,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.DESCRIBE_GROUPS: 2,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.API_VERSIONS: 2,
    ApiKey.CREATE_TOPICS: 3,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.LEAVE_GROUP: 2,
}


@pytest.fixture
async def old() -> AsyncIterator[Admin]:
    """An admin client of a broker that claims to be Kafka 2.1."""

    def forget(answer: Any) -> None:
        answer.api_keys = [api for api in answer.api_keys if api.api_key in KAFKA_2_1]
        for api in answer.api_keys:
            api.max_version = min(api.max_version, KAFKA_2_1[ApiKey(api.api_key)])

    async with EmbeddedCluster() as cluster:
        cluster.on_every(ApiKey.API_VERSIONS, change_answer(forget))
        async with Admin(cluster.bootstrap_servers) as admin:
            yield admin


async def test_what_an_old_broker_can_do(old: Admin) -> None:
    made = await old.create_topics(NewTopic("orders", 2, 1))
    assert (made.topic_id, made.num_partitions, made.configs) == (None, -1, {})
    described = await old.describe_topics("orders")
    assert (described.topic_id, len(described.partitions)) == (None, 2)
    cluster = await old.describe_cluster()
    assert cluster.controller in cluster.nodes
    (await old.create_partitions({"orders": 3})).check()
    assert (await old.describe_configs(ConfigResource.topic("orders")))[
        "retention.ms"
    ].value == "604800000"
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    (await old.alter_consumer_group_offsets("group", {first: 0})).check()
    assert await old.list_consumer_group_offsets("group") == {first: OffsetAndMetadata(0)}
    assert await old.list_consumer_group_offsets("group", [first, second]) == {
        first: OffsetAndMetadata(0),
        second: None,
    }
    group = (await old.list_groups())["group"]
    assert (group.state, group.type) == ("", "")
    assert (await old.describe_consumer_groups("group")).state == "Empty"
    with pytest.raises(BrokerError) as raised:
        await old.describe_consumer_groups("missing")
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (await old.list_offsets({first: OffsetSpec.LATEST}))[first].offset == 0
    await old.delete_consumer_groups("group")
    await old.delete_topics("orders")
    assert await old.list_topics() == {}


async def test_what_an_old_broker_can_not_do(old: Admin) -> None:
    with pytest.raises(UnsupportedVersionError, match="IncrementalAlterConfigs"):
        (
            await old.incremental_alter_configs(
                {ConfigResource.topic("orders"): {"retention.ms": 1}}
            )
        ).check()
    with pytest.raises(UnsupportedVersionError, match="ListTransactions"):
        await old.list_transactions()
    with pytest.raises(UnsupportedVersionError, match="DescribeCluster"):
        await old.describe_cluster(include_authorized_operations=True)
    with pytest.raises(UnsupportedVersionError, match="too old to remove static members"):
        (await old.remove_members_from_consumer_group("group", ["one"])).check()
    with pytest.raises(ProtocolError, match="states_filter is set, but version 2 does not have it"):
        await old.list_groups(states=["Stable"])
    with pytest.raises(
        ProtocolError,
        match="include_topic_authorized_operations is set, but version 7 does not have it",
    ):
        await old.describe_topics("orders", include_authorized_operations=True)


async def test_an_answer_without_an_item(broker: EmbeddedCluster) -> None:
    broker.create_topic("orders", 1)
    async with Admin(broker.bootstrap_servers) as admin:
        broker.on(ApiKey.DESCRIBE_CONFIGS, change_answer(lambda answer: answer.results.clear()))
        with pytest.raises(
            ProtocolError, match=r"describe_configs: .* does not contain topic orders"
        ):
            await admin.describe_configs(ConfigResource.topic("orders"))
        broker.on(ApiKey.DESCRIBE_GROUPS, change_answer(lambda answer: answer.groups.clear()))
        with pytest.raises(ProtocolError, match="group mine: 0 answers to a request about one"):
            await admin.describe_consumer_groups("mine")


async def test_unknown_codes_and_kinds_are_accepted(broker: EmbeddedCluster) -> None:
    def from_the_future(answer: Any) -> None:
        for setting in answer.results[0].configs:
            setting.config_source = setting.config_type = 99

    def unknown_code(answer: Any) -> None:
        answer.topics[0].error_code = 12_345

    broker.create_topic("orders", 1)
    async with Admin(broker.bootstrap_servers) as admin:
        broker.on(ApiKey.DESCRIBE_CONFIGS, change_answer(from_the_future))
        settings = await admin.describe_configs(ConfigResource.topic("orders"))
        assert {(entry.source.name, entry.type.name) for entry in settings.values()} == {
            ("UNKNOWN", "UNKNOWN")
        }
        broker.on(ApiKey.CREATE_TOPICS, change_answer(unknown_code))
        with pytest.raises(BrokerError) as raised:
            await admin.create_topics(NewTopic("clicks", 1))
        assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

"""The admin client's calls for settings, with an embedded and a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioprod import Admin, BrokerError, ConfigError, ErrorCode
from aioprod.admin import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewTopic,
    Subtract,
)
from tests.waiting import until

NewName = Callable[[str], str]


async def test_settings_of_a_topic_are_described_with_their_source(
    admin: Admin, new_name: NewName
) -> None:
    name = new_name("orders")
    await admin.create_topics(NewTopic(name, 1, configs={"retention.ms": 1000}))
    settings = await admin.describe_configs(ConfigResource.topic(name), include_synonyms=True)
    own, default = settings["retention.ms"], settings["max.message.bytes"]
    assert (own.value, own.source, own.type, own.is_default) == (
        "1000",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigType.LONG,
        False,
    )
    assert (default.value, default.source, default.is_default) == (
        "1048588",
        ConfigSource.DEFAULT_CONFIG,
        True,
    )
    assert own.synonyms[0].name == "retention.ms" and own.synonyms[0].value == "1000"
    assert not own.sensitive and not own.read_only
    only = await admin.describe_configs(ConfigResource.topic(name), names=["cleanup.policy"])
    assert {each.name: each.value for each in only.values()} == {"cleanup.policy": "delete"}


async def test_single_settings_change_and_the_others_stay(admin: Admin, new_name: NewName) -> None:
    name = new_name("orders")
    await admin.create_topics(NewTopic(name, 1, configs={"retention.ms": 1000, "segment.ms": 5000}))
    topic = ConfigResource.topic(name)

    async def change_and_look(changes: dict[str, object], expected: dict[str, str]) -> None:
        (await admin.incremental_alter_configs({topic: changes})).check()  # type: ignore[dict-item]

        async def is_so() -> bool:
            settings = await admin.describe_configs(topic)
            return {key: settings[key].value for key in expected} == expected

        await until(is_so)

    await change_and_look(
        {"max.message.bytes": 2000, "segment.ms": None, "preallocate": True},
        {
            "max.message.bytes": "2000",
            "segment.ms": "604800000",
            "retention.ms": "1000",
            "preallocate": "true",
        },
    )
    await change_and_look(
        {"cleanup.policy": Append("compact")}, {"cleanup.policy": "delete,compact"}
    )
    await change_and_look({"cleanup.policy": Subtract("delete")}, {"cleanup.policy": "compact"})


async def test_each_resource_has_its_own_outcome(admin: Admin, new_name: NewName) -> None:
    good, bad = ConfigResource.topic(new_name("orders")), ConfigResource.topic(new_name("orders"))
    await admin.create_topics([NewTopic(good.name, 1), NewTopic(bad.name, 1)])
    changed = await admin.incremental_alter_configs(
        {good: {"retention.ms": 1}, bad: {"retention.ms": "soon"}}
    )
    assert list(changed.successes) == [good] and list(changed.errors) == [bad]
    with pytest.raises(BrokerError, match=f"topic {bad.name}.*retention.ms") as raised:
        changed.check()
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    missing = ConfigResource.topic("missing")
    described = await admin.describe_configs([good, missing])
    assert described[good] and list(described.errors) == [missing]


async def test_validate_only_changes_nothing(admin: Admin, new_name: NewName) -> None:
    topic = ConfigResource.topic(new_name("orders"))
    await admin.create_topics(NewTopic(topic.name, 1))
    (
        await admin.incremental_alter_configs({topic: {"retention.ms": 1}}, validate_only=True)
    ).check()
    assert (await admin.describe_configs(topic))["retention.ms"].is_default


async def test_a_broker_is_asked_for_its_own_settings(admin: Admin) -> None:
    node = (await admin.describe_cluster()).nodes[0].node_id
    one, everyone = ConfigResource.broker(node), ConfigResource.broker()
    described = await admin.describe_configs([one, everyone])
    assert described[one]["num.partitions"] == ConfigEntry(
        "num.partitions",
        described[one]["num.partitions"].value,
        described[one]["num.partitions"].source,
        type=ConfigType.INT,
        read_only=True,
    )
    assert "num.partitions" not in described[everyone]


async def test_settings_of_several_brokers(new_name: NewName) -> None:
    from aioprod.testing import EmbeddedCluster

    async with EmbeddedCluster(nodes=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        brokers = [
            ConfigResource.broker(node.node_id) for node in (await admin.describe_cluster()).nodes
        ]
        assert len(brokers) == 3
        described = await admin.describe_configs(brokers, names=["broker.id", "node.id"])
        assert [next(iter(described[each].values())).value for each in brokers] == [
            each.name for each in brokers
        ]


async def test_a_broker_is_named_by_its_number() -> None:
    from aioprod.testing import EmbeddedCluster

    async with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        with pytest.raises(
            ConfigError, match="broker first: the name of a broker must be its node id"
        ):
            await admin.describe_configs(ConfigResource(ConfigResource.broker(1).type, "first"))
        with pytest.raises(ConfigError, match=r"retention\.ms=\["):
            await admin.incremental_alter_configs(
                {ConfigResource.topic("t"): {"retention.ms": [1]}}  # type: ignore[dict-item]
            )


async def test_kafkas_own_description_of_a_setting(kafka: str, new_name: NewName) -> None:
    async with Admin(kafka) as admin:
        name = new_name("orders")
        await admin.create_topics(NewTopic(name, 1))
        settings = await admin.describe_configs(
            ConfigResource.topic(name), include_documentation=True
        )
        assert "retain" in (settings["retention.ms"].documentation or "")


async def test_settings_of_a_group(kafka: str, new_name: NewName) -> None:
    async with Admin(kafka) as admin:
        group = ConfigResource.group(new_name("group"))
        (
            await admin.incremental_alter_configs({group: {"consumer.session.timeout.ms": 50_000}})
        ).check()

        async def is_so() -> bool:
            return (await admin.describe_configs(group))[
                "consumer.session.timeout.ms"
            ].value == "50000"

        await until(is_so)

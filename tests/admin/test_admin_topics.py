"""The admin client's calls for topics, with an embedded and a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aioprod import Admin, BrokerError, ConfigError, ErrorCode, Producer
from aioprod.admin import AclOperation, ConfigSource, NewPartitions, NewTopic
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

NewName = Callable[[str], str]


def code_of(error: BaseException) -> ErrorCode:
    assert isinstance(error, BrokerError), error
    return error.code


async def test_a_topic_is_created_described_listed_and_deleted(
    admin: Admin, new_name: NewName
) -> None:
    name = new_name("orders")
    made = await admin.create_topics(
        NewTopic(name, 3, 1, {"retention.ms": 3_600_000, "preallocate": True})
    )
    assert (made.name, made.num_partitions, made.replication_factor) == (name, 3, 1)
    assert (
        made.configs["retention.ms"].value == "3600000"
        and made.configs["preallocate"].value == "true"
    )
    assert made.configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert made.topic_id is not None

    described = await admin.describe_topics(name)
    assert (described.name, described.topic_id, described.internal) == (name, made.topic_id, False)
    assert described.authorized_operations is None
    assert [each.partition for each in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader is not None
        assert partition.replicas == partition.isr == (partition.leader.node_id,)
        assert partition.offline_replicas == ()

    listed = await admin.list_topics()
    assert listed[name].topic_id == made.topic_id
    await admin.delete_topics(name)

    async def is_gone() -> bool:
        return name not in await admin.list_topics()

    await until(is_gone)


async def test_one_bad_topic_of_several_does_not_stop_the_others(
    admin: Admin, new_name: NewName
) -> None:
    good, bad, greedy = new_name("good"), "not/legal", new_name("greedy")
    made = await admin.create_topics([NewTopic(good, 1), NewTopic(bad, 1), NewTopic(greedy, 1, 50)])
    assert list(made) == [good, bad, greedy] and list(made.successes) == [good]
    assert {name: code_of(error) for name, error in made.errors.items()} == {
        bad: ErrorCode.INVALID_TOPIC_EXCEPTION,
        greedy: ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    with pytest.raises(BrokerError, match=bad):
        made[bad]
    with pytest.raises(BrokerError) as raised:
        made.check()
    assert raised.value.__notes__ == [f"2 of 3 failed: {bad}, {greedy}"]

    described = await admin.describe_topics([good, new_name("missing")])
    assert described[good].partitions
    assert [code_of(error) for error in described.errors.values()] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    deleted = await admin.delete_topics([good, "missing"])
    assert {name: code_of(error) for name, error in deleted.errors.items()} == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def test_the_error_of_one_topic_is_raised_and_names_it(
    admin: Admin, new_name: NewName
) -> None:
    name = new_name("orders")
    await admin.create_topics(NewTopic(name, 1))
    with pytest.raises(BrokerError, match=f"topic {name}") as raised:
        await admin.create_topics(NewTopic(name, 1))
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(BrokerError, match=r"retention\.ms") as raised:
        await admin.create_topics(NewTopic(new_name("orders"), 1, configs={"retention.ms": "soon"}))
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    for call in (admin.describe_topics, admin.delete_topics):
        with pytest.raises(BrokerError, match="topic missing") as raised:
            await call("missing")
        assert raised.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_validate_only_changes_nothing(admin: Admin, new_name: NewName) -> None:
    name = new_name("orders")
    made = await admin.create_topics(NewTopic(name, 2), validate_only=True)
    assert made.num_partitions == 2
    assert name not in await admin.list_topics()
    await admin.create_topics(NewTopic(name, 2))
    (await admin.create_partitions({name: 5}, validate_only=True)).check()
    assert len((await admin.describe_topics(name)).partitions) == 2


async def test_partitions_are_added(admin: Admin, new_name: NewName) -> None:
    name, other = new_name("orders"), new_name("orders")
    (await admin.create_topics([NewTopic(name, 2), NewTopic(other, 2)])).check()
    node = (await admin.describe_topics(name)).partitions[0].replicas[0]
    (await admin.create_partitions({name: 3, other: NewPartitions(3, [[node]])})).check()

    async def have_grown() -> bool:
        return [len((await admin.describe_topics(each)).partitions) for each in (name, other)] == [
            3,
            3,
        ]

    await until(have_grown)
    shrunk = await admin.create_partitions({name: 1})
    assert code_of(shrunk.errors[name]) is ErrorCode.INVALID_PARTITIONS


async def test_replicas_can_be_assigned_by_hand(admin: Admin, new_name: NewName) -> None:
    node = (await admin.describe_cluster()).nodes[0].node_id
    made = await admin.create_topics(NewTopic(new_name("placed"), assignments=[[node], [node]]))
    assert (made.num_partitions, made.replication_factor) == (2, 1)


async def test_internal_topics_are_listed_on_demand(
    admin: Admin, new_name: NewName, bootstrap: str
) -> None:
    name = new_name("orders")
    await admin.create_topics(NewTopic(name, 1))
    async with (
        Producer(bootstrap, transactional_id=new_name("sink")) as producer,
        producer.transaction(),
    ):
        await producer.send(name, b"x")
    everything = await admin.list_topics(list_internal=True)
    assert {each.name for each in everything.values() if each.internal} <= {
        "__transaction_state",
        "__consumer_offsets",
        "__share_group_state",  # other tests may have used share groups
    }
    assert not any(each.internal for each in (await admin.list_topics()).values())


async def test_authorized_operations_are_included_on_demand(
    admin: Admin, new_name: NewName
) -> None:
    name = new_name("orders")
    await admin.create_topics(NewTopic(name, 1))
    described = await admin.describe_topics(name, include_authorized_operations=True)
    assert described.authorized_operations is not None
    assert {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
    } <= described.authorized_operations


async def test_a_setting_of_a_wrong_type_is_refused_before_anything_is_sent(
    broker: EmbeddedCluster,
) -> None:
    async with Admin(broker.bootstrap_servers) as admin:
        with pytest.raises(ConfigError, match=r"retention\.ms=None"):
            await admin.create_topics(NewTopic("orders", configs={"retention.ms": None}))  # type: ignore[dict-item]
    assert not broker.topics


async def test_an_item_that_is_not_a_new_topic_is_refused_before_anything_is_sent(
    broker: EmbeddedCluster,
) -> None:
    async with Admin(broker.bootstrap_servers) as admin:
        for wrong in ("orders", ["orders"], [NewTopic("clicks"), 5]):
            with pytest.raises(ConfigError, match="must be a list of NewTopic"):
                await admin.create_topics(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="each name may occur only once: orders, orders"):
            await admin.create_topics([NewTopic("orders", 1), NewTopic("orders", 3)])
        for call in (admin.describe_topics, admin.delete_topics):
            with pytest.raises(
                ConfigError, match="topics: must be a list of names; 5 does not fit"
            ):
                await call([5])  # type: ignore[list-item]
        with pytest.raises(ConfigError, match="create_topics: name=5: must be a string"):
            await admin.create_topics(NewTopic(5))  # type: ignore[arg-type]
    assert not broker.topics

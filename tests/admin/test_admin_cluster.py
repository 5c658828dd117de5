"""The admin client's calls for records, transactions, replicas and the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from aioprod import Admin, BrokerError, ErrorCode, Producer, ProducerFencedError, TopicPartition
from aioprod.admin import TO_THE_END, AclOperation, ElectionType, NewTopic, OffsetSpec
from aioprod.testing import EmbeddedCluster

NewName = Callable[[str], str]


@pytest.fixture
async def three() -> AsyncIterator[tuple[EmbeddedCluster, Admin]]:
    """Three embedded brokers and an admin client."""
    async with EmbeddedCluster(nodes=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        yield cluster, admin


async def test_records_before_an_offset_are_deleted(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    topic = new_name("orders")
    await admin.create_topics(NewTopic(topic, 3))
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    async with Producer(bootstrap) as producer:
        for number in range(30):
            await producer.send(topic, b"x", partition=number % 3)
    deleted = await admin.delete_records(
        {first: 4, second: TO_THE_END, third: 99, TopicPartition(topic, 9): 0}
    )
    assert deleted.successes == {first: 4, second: 10}
    assert [error.code for error in deleted.errors.values() if isinstance(error, BrokerError)] == [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    with pytest.raises(BrokerError, match=f"records of {topic}-2 before offset 99"):
        deleted.check()
    begins = await admin.list_offsets(dict.fromkeys((first, second, third), OffsetSpec.EARLIEST))
    assert [place.offset for place in begins.values()] == [4, 10, 0]


async def test_records_of_several_leaders_are_deleted(three: tuple[EmbeddedCluster, Admin]) -> None:
    cluster, admin = three
    cluster.create_topic("orders", 6)
    partitions = [TopicPartition("orders", number) for number in range(6)]
    async with Producer(cluster.bootstrap_servers) as producer:
        for partition in partitions:
            await producer.send("orders", b"x", partition=partition.partition)
    assert {cluster.leader("orders", number) for number in range(6)} == {1, 2, 3}
    assert dict(await admin.delete_records(dict.fromkeys(partitions, 1))) == dict.fromkeys(
        partitions, 1
    )


async def test_an_open_transaction_is_listed_described_and_fenced(
    admin: Admin, bootstrap: str, new_name: NewName
) -> None:
    topic, transactional_id = new_name("orders"), new_name("sink")
    await admin.create_topics(NewTopic(topic, 2))
    async with Producer(
        bootstrap, transactional_id=transactional_id, transaction_timeout_ms=50_000
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"open", partition=1)

        listed = (await admin.list_transactions(states=["Ongoing"]))[transactional_id]
        assert listed.state == "Ongoing"
        assert transactional_id in await admin.list_transactions(
            producer_ids=[listed.producer_id], pattern=f"{transactional_id[:4]}.*"
        )
        assert transactional_id not in await admin.list_transactions(duration_ms=3_600_000)
        described = await admin.describe_transactions(transactional_id)
        assert (described.state, described.producer_id, described.transaction_timeout_ms) == (
            "Ongoing",
            listed.producer_id,
            50_000,
        )
        assert described.partitions == {TopicPartition(topic, 1)}
        assert described.transaction_start_time_ms is not None

        written = await admin.describe_producers(
            [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        )
        assert written[TopicPartition(topic, 0)] == ()
        (writer,) = written[TopicPartition(topic, 1)]
        assert (writer.producer_id, writer.producer_epoch) == (
            described.producer_id,
            described.producer_epoch,
        )
        assert (writer.last_sequence, writer.transaction_start_offset) == (0, 0)

        fenced = await admin.fence_producers(transactional_id)
        assert (
            fenced.producer_epoch > described.producer_epoch
            or fenced.producer_id != described.producer_id
        )
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
    both = await admin.describe_transactions([transactional_id, "missing"])
    assert both[transactional_id].state in ("PrepareAbort", "CompleteAbort", "Empty")
    assert [error.code for error in both.errors.values() if isinstance(error, BrokerError)] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    ]


async def test_the_cluster_is_described(admin: Admin) -> None:
    described = await admin.describe_cluster(include_authorized_operations=True)
    assert described.cluster_id
    assert described.controller in described.nodes
    assert [(node.host, node.port > 0) for node in described.nodes] == [("127.0.0.1", True)]
    assert (
        described.authorized_operations is not None
        and AclOperation.CREATE in described.authorized_operations
    )
    assert (await admin.describe_cluster()).authorized_operations is None


async def test_log_directories(admin: Admin, bootstrap: str, new_name: NewName) -> None:
    topic = new_name("orders")
    await admin.create_topics(NewTopic(topic, 1))
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"x" * 1000)
    node = (await admin.describe_cluster()).nodes[0].node_id
    (directory,) = (await admin.describe_log_dirs([node]))[node].values()
    assert directory.error is None
    assert directory.replicas[TopicPartition(topic, 0)].size > 1000


async def test_preferred_leaders_are_elected(three: tuple[EmbeddedCluster, Admin]) -> None:
    cluster, admin = three
    await admin.create_topics(NewTopic("orders", assignments=[[1, 2], [2, 3]]))
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    cluster.move_leader("orders", 0, 2)
    assert dict(await admin.elect_leaders(ElectionType.PREFERRED, [first, second])) == {
        first: True,
        second: False,
    }
    assert cluster.leader("orders", 0) == 1
    cluster.move_leader("orders", 1, 3)
    assert dict(await admin.elect_leaders(ElectionType.PREFERRED)) == {second: True}
    missing = TopicPartition("missing", 0)
    assert list((await admin.elect_leaders(ElectionType.PREFERRED, [missing])).errors) == [missing]


async def test_replicas_are_moved(three: tuple[EmbeddedCluster, Admin]) -> None:
    _, admin = three
    await admin.create_topics(NewTopic("orders", assignments=[[1, 2], [2, 3]]))
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    moved = await admin.alter_partition_reassignments({first: [3, 1], second: [9]})
    assert list(moved.successes) == [first] and list(moved.errors) == [second]
    assert (await admin.describe_topics("orders")).partitions[0].replicas == (3, 1)
    assert await admin.list_partition_reassignments() == {}


async def test_nothing_is_moved_in_a_real_cluster_at_rest(kafka: str, new_name: NewName) -> None:
    async with Admin(kafka) as admin:
        topic = new_name("orders")
        await admin.create_topics(NewTopic(topic, 1))
        partition = TopicPartition(topic, 0)
        node = (await admin.describe_cluster()).nodes[0].node_id
        assert (await admin.elect_leaders(ElectionType.PREFERRED, [partition]))[partition] is False
        (await admin.alter_partition_reassignments({partition: [node]})).check()
        stopped = await admin.alter_partition_reassignments({partition: None})
        assert [
            error.code for error in stopped.errors.values() if isinstance(error, BrokerError)
        ] == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
        assert await admin.list_partition_reassignments([partition]) == {}

"""A topic that is deleted and created again: no record of the new one is skipped or read twice,
however its partitions are read; ``auto_offset_reset`` decides where they begin, or the call raises.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    CommitFailedError,
    Consumer,
    ConsumerObserver,
    ErrorCode,
    InvalidOffsetError,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
    TopicRecreatedError,
)
from aioprod.metrics import TopicRecreated
from aioprod.protocol.messages.api_versions import ApiVersionsResponse
from aioprod.protocol.messages.metadata import MetadataResponse
from aioprod.testing import Action, ApiKey, EmbeddedCluster, change_answer, fail, hold
from tests.consumer.recreated import (
    NEW,
    OLD,
    Got,
    create,
    create_again,
    places,
    topic_of,
    write,
)
from tests.selection import square_by_default

TP = TopicPartition("orders", 0)
WAYS: dict[str, dict[str, Any]] = {
    "assigned": {},
    "assigned, with a group": {"group_id": "readers"},
    "subscribed": {},
    "classic group": {"group_id": "readers", "group_protocol": "classic"},
    "KIP-848 group": {"group_id": "readers", "group_protocol": "consumer"},
}
STRATEGIES = ("earliest", "latest", "none")
PARTITIONS = 2
COUNTS = {"as many partitions": 2, "fewer": 1, "more": 3}


class Seen(RebalanceListener):
    """Begins with the first record, and notes for which partitions it was called."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        if not self.calls:
            for tp in partitions:
                self.consumer.seek(tp, 0)
        self.calls.append(("assigned", [tp.partition for tp in partitions]))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", [tp.partition for tp in partitions]))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", [tp.partition for tp in partitions]))


async def collect(consumer: Consumer, got: Got) -> None:
    """Read on until the task is cancelled. A partition without a position begins with its first
    record.
    """
    while True:
        try:
            for record in await consumer.getmany(timeout_ms=500):
                got.add(record.partition, record.value)
        except InvalidOffsetError as error:
            got.errors.append(error)
            consumer.seek(error.topic_partition, 0)
        except KafkaError as error:
            got.errors.append(error)


@asynccontextmanager
async def reader(
    bootstrap: str, topic: str, way: str, got: Got, **settings: Any
) -> AsyncIterator[tuple[Consumer, Seen]]:
    """A consumer whose records are collected, from the first one on."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        allow_auto_create_topics=False,
        **{"metadata_max_age_ms": 2_000, "auto_commit_interval_ms": 200, **WAYS[way], **settings},
    )
    listener = Seen(consumer)
    if way.startswith("assigned"):
        consumer.assign(places(topic, range(PARTITIONS)))
        for tp in consumer.assignment():
            consumer.seek(tp, 0)
    else:
        consumer.subscribe([topic], listener=listener)
    async with consumer:
        task = asyncio.create_task(collect(consumer, got))
        try:
            yield consumer, listener
        finally:
            task.cancel()
            await asyncio.wait([task])


async def read_across(
    bootstrap: str, topic: str, way: str, strategy: str, count: int, group: str = "readers"
) -> tuple[Got, Seen]:
    """Read a topic that is created again with ``count`` partitions."""
    got = Got()
    settings = {"auto_offset_reset": strategy, **({"group_id": group} if "group" in way else {})}
    read = min(count, PARTITIONS) if way.startswith("assigned") else count
    async with topic_of(bootstrap, topic, PARTITIONS) as admin:
        async with reader(bootstrap, topic, way, got, **settings) as (_, listener):
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, bootstrap, topic, count)
            await got.until(lambda got: got.is_done(read))
        got.check(read, from_the_first=strategy != "latest")
        if "group" in way:
            partitions = places(topic, range(read))
            committed = await admin.list_consumer_group_offsets(group, partitions)
            assert {tp: at and at.offset for tp, at in committed.items()} == dict.fromkeys(
                partitions, NEW
            )
    return got, listener


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("way", "strategy", "count"), square_by_default(list(WAYS), STRATEGIES, list(COUNTS))
)
async def test_no_record_of_the_new_topic_is_skipped(
    broker: EmbeddedCluster, way: str, strategy: str, count: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    got, listener = await read_across(
        broker.bootstrap_servers, "orders", way, strategy, COUNTS[count]
    )
    present = broker.topics["orders"].topic_id
    invalid = [error for error in got.errors if isinstance(error, InvalidOffsetError)]
    assert bool(invalid) == (strategy == "none")
    if count == "as many partitions":  # else groups rebalance before the call raises
        assert all(
            isinstance(error, TopicRecreatedError) and error.topic_id == present
            for error in invalid
        )
    (reported,) = [
        line for line in caplog.messages if "was deleted and created again (topic" in line
    ]
    assert str(present) in reported
    assert "0 at offset 5, 1 at offset 5" in reported
    if strategy != "none" and count == "as many partitions":  # else some groups rebalance, too
        resumed = f": orders-0 continues at offset {got.new[0][0]} of the new topic"
        assert any(line.endswith(resumed) for line in caplog.messages)
    if not way.startswith("assigned"):
        assert listener.calls[0] == ("assigned", [0, 1])
        assert listener.calls[1:3] == [("lost", [0, 1]), ("assigned", [0, 1])]


def newest(**versions: int) -> Action:
    """Announce no later version of these APIs."""

    def limit(answer: ApiVersionsResponse) -> None:
        for api in answer.api_keys:
            api.max_version = min(versions.get(ApiKey(api.api_key).name, 99), api.max_version)

    return change_answer(limit)


@pytest.mark.virtual_time
@pytest.mark.parametrize("way", WAYS)
async def test_a_topic_that_is_missing_for_a_while(broker: EmbeddedCluster, way: str) -> None:
    got = Got()
    servers = broker.bootstrap_servers
    async with topic_of(servers, "orders", PARTITIONS) as admin:
        async with reader(servers, "orders", way, got, auto_offset_reset="earliest"):
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, servers, "orders", PARTITIONS, missing_s=5)
            await got.until(lambda got: got.is_done(PARTITIONS))
        got.check(PARTITIONS, from_the_first=True)


@pytest.mark.virtual_time
@pytest.mark.parametrize("way", WAYS)
async def test_brokers_that_fetch_by_name_skip_nothing_either(
    broker: EmbeddedCluster, way: str
) -> None:
    """Kafka 2.8 to 3.0: metadata has ids, and no other request has. What was read before the
    metadata came is read again.
    """
    names = newest(FETCH=12, OFFSET_FETCH=8, OFFSET_COMMIT=8, PRODUCE=11)
    broker.on_every(ApiKey.API_VERSIONS, names)
    got = Got()
    servers = broker.bootstrap_servers
    async with topic_of(servers, "orders", PARTITIONS) as admin:
        async with reader(servers, "orders", way, got, auto_offset_reset="earliest"):
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, servers, "orders", PARTITIONS)
            await got.until(lambda got: got.is_done(PARTITIONS) and len(got.new[0]) >= NEW)
    for number in range(PARTITIONS):
        begin = len(got.new[number]) - NEW
        assert got.new[number][begin:] == list(range(NEW)), got.new[number]


@pytest.mark.virtual_time
async def test_without_topic_ids_only_the_offset_says_that_a_topic_is_another(
    broker: EmbeddedCluster,
) -> None:
    """Kafka before 2.8, as documented: an offset that the new topic does not have is reset."""
    broker.on_every(
        ApiKey.API_VERSIONS,
        newest(METADATA=9, FETCH=11, OFFSET_FETCH=7, OFFSET_COMMIT=8, PRODUCE=9),
    )
    got = Got()
    servers = broker.bootstrap_servers
    async with topic_of(servers, "orders", 1) as admin:
        async with reader(servers, "orders", "subscribed", got, auto_offset_reset="earliest"):
            await got.until(lambda got: got.has_old(1))
            await admin.delete_topics("orders")
            await create(admin, "orders", 1)
            async with Producer(servers) as producer:
                await write(producer, "orders", 0, "new", range(2))
            await got.until(lambda got: len(got.new[0]) == 2)
    assert got.new[0] == [0, 1]


@asynccontextmanager
async def committing(broker: EmbeddedCluster, **settings: Any) -> AsyncIterator[Consumer]:
    """A consumer that has read the old records, and commits them itself."""
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="readers",
        enable_auto_commit=False,
        allow_auto_create_topics=False,
        auto_offset_reset="earliest",
        **settings,
    )
    consumer.assign([TP])
    async with topic_of(broker.bootstrap_servers, "orders", 1), consumer:
        for _ in range(OLD):
            await consumer.getone(timeout_ms=5_000)
        yield consumer


async def replace(broker: EmbeddedCluster, records: int) -> None:
    """Create the topic again, with records."""
    broker.delete_topic("orders")
    broker.create_topic("orders", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await write(producer, "orders", 0, "new", range(records))


async def until_noticed(consumer: Consumer) -> None:
    """Wait until the consumer has a position in the new topic."""
    for _ in range(200):
        if await consumer.position(TP) != OLD:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the consumer has not noticed the new topic")


@pytest.mark.virtual_time
@pytest.mark.parametrize("call", ["commit", "commit_async"])
async def test_offsets_of_the_deleted_topic_are_not_committed_for_the_new_one(
    broker: EmbeddedCluster, call: str
) -> None:
    async with committing(broker) as consumer:
        await replace(broker, 8)
        await until_noticed(consumer)
        for _ in range(2):
            with pytest.raises(CommitFailedError, match="offset 5 of orders-0 is not committed"):
                await getattr(consumer, call)({TP: OLD})
        assert "readers" not in broker.group_ids
        await consumer.commit()  # the position
        assert int((await consumer.getone(timeout_ms=5_000)).value.split()[1]) == 0
        await getattr(consumer, call)({TP: 1})
        assert broker.committed_offsets("readers")[TP] == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize("by", ["id", "name"])
async def test_a_commit_that_is_on_its_way_does_not_reach_the_new_topic(
    broker: EmbeddedCluster, by: str
) -> None:
    if by == "name":
        broker.on_every(ApiKey.API_VERSIONS, newest(OFFSET_COMMIT=9))
    async with committing(broker) as consumer:
        rule = broker.on_every(ApiKey.OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        commit = consumer.commit_async()
        await asyncio.sleep(0.5)
        await replace(broker, 8)
        await until_noticed(consumer)
        rule.cancel()
        with pytest.raises(CommitFailedError, match="offset 5 of orders-0 is not committed"):
            await commit
        assert TP not in broker.committed_offsets("readers")


@pytest.mark.virtual_time
@pytest.mark.parametrize("by", ["id", "name"])
async def test_committed_offsets_that_were_asked_of_the_deleted_topic_do_not_count(
    broker: EmbeddedCluster, by: str
) -> None:
    if by == "name":
        broker.on_every(ApiKey.API_VERSIONS, newest(OFFSET_FETCH=9))
    async with committing(broker) as consumer:
        await consumer.commit()
    rule = broker.on(ApiKey.OFFSET_FETCH, hold())
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
        metadata_max_age_ms=200,
    ) as consumer:
        consumer.assign([TP])
        await rule.wait()
        await replace(broker, 8)
        await asyncio.sleep(1)
        rule.release()
        assert (await consumer.getone(timeout_ms=5_000)).offset == 0


@pytest.mark.virtual_time
async def test_a_committed_offset_of_a_deleted_topic_is_not_a_truncation(
    broker: EmbeddedCluster,
) -> None:
    """A coordinator that has kept it can't say so by name. A log is truncated only under a newer
    leader: reading on from its end would skip all records.
    """
    broker.on_every(ApiKey.API_VERSIONS, newest(OFFSET_FETCH=9, OFFSET_COMMIT=9))
    servers = broker.bootstrap_servers
    async with topic_of(servers, "orders", 1) as admin:
        await admin.alter_consumer_group_offsets("readers", {TP: OffsetAndMetadata(100, "", 0)})
        async with Consumer(
            "orders", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone(timeout_ms=5_000)).offset == 0


@pytest.mark.virtual_time
async def test_a_broker_with_old_metadata_does_not_bring_the_deleted_topic_back(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    former = uuid.UUID(int=0)

    def as_before(answer: MetadataResponse) -> None:
        for topic in answer.topics:
            topic.topic_id = former

    async with committing(broker, metadata_max_age_ms=100) as consumer:
        former = broker.topics["orders"].topic_id
        await replace(broker, 8)
        await until_noticed(consumer)
        broker.on(ApiKey.METADATA, change_answer(as_before), times=3)
        read = [(await consumer.getone(timeout_ms=5_000)).offset for _ in range(4)]
        await asyncio.sleep(1)
        read += [(await consumer.getone(timeout_ms=5_000)).offset for _ in range(4)]
    assert read == list(range(8))
    assert sum("was deleted and created again" in line for line in caplog.messages) == 1


@pytest.mark.virtual_time
async def test_a_seek_while_the_topic_is_gone_is_one_in_the_new_topic(
    broker: EmbeddedCluster,
) -> None:
    async with committing(broker, metadata_max_age_ms=100) as consumer:
        broker.delete_topic("orders")
        await asyncio.sleep(1)
        consumer.seek(TP, 3)
        consumer.pause(TP)  # a fetch before the write would find no offset 3
        broker.create_topic("orders", 1)
        async with Producer(broker.bootstrap_servers) as producer:
            await write(producer, "orders", 0, "new", range(8))
        consumer.resume(TP)
        assert (await consumer.getone(timeout_ms=5_000)).offset == 3


@pytest.mark.virtual_time
async def test_observers_learn_of_it(broker: EmbeddedCluster) -> None:
    events: list[TopicRecreated] = []

    class Observer(ConsumerObserver):
        def on_topic_recreated(self, event: TopicRecreated) -> None:
            events.append(event)

    async with committing(broker, observers=[Observer()]) as consumer:
        former = broker.topics["orders"].topic_id
        await replace(broker, 1)
        await consumer.getone(timeout_ms=5_000)
    assert events == [TopicRecreated("orders", (TP,), former, broker.topics["orders"].topic_id)]


@pytest.mark.parametrize(
    ("way", "strategy"),
    [
        ("assigned", "earliest"),
        ("KIP-848 group", "none"),
        # Six seconds each.
        pytest.param("assigned", "none", marks=pytest.mark.interop),
        pytest.param("KIP-848 group", "earliest", marks=pytest.mark.interop),
        pytest.param("classic group", "earliest", marks=pytest.mark.interop),
        pytest.param("classic group", "none", marks=pytest.mark.interop),
    ],
)
async def test_the_same_with_a_real_broker(kafka: str, way: str, strategy: str) -> None:
    topic = f"recreated-{way}-{strategy}".replace(" ", "-")
    await read_across(kafka, topic, way, strategy, 2, group=topic)

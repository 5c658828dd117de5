"""The share consumer against Apache Kafka 4.4, and against the embedded broker."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from typing import Any

import pytest

from aioprod import (
    AcknowledgeType,
    Admin,
    BrokerConnectionError,
    BrokerError,
    ConcurrentUseError,
    Consumer,
    ConsumerClosedError,
    ConsumerStateError,
    ConsumerStatus,
    DeserializationError,
    ErrorCode,
    KafkaError,
    Producer,
    ShareConsumerObserver,
    ShareRecord,
    TopicPartition,
    UnsupportedVersionError,
)
from aioprod.consumer.share.acknowledgements import PartitionAcknowledgements
from aioprod.metrics import AcknowledgementsDone, RecordsDelivered
from aioprod.testing import cancel_at_each_point
from tests.consumer.share.share_groups import ShareTopic, lag, numbers, take

EXPLICIT = {"share_acknowledgement_mode": "explicit"}
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT, RENEW = AcknowledgeType.REJECT, AcknowledgeType.RENEW


@pytest.fixture
def topic(share_broker: str) -> ShareTopic:
    return ShareTopic(share_broker)


async def nothing_left(topic: ShareTopic) -> bool:
    """Return whether a new member gets no record."""
    async with topic.consumer() as consumer:
        return await consumer.getmany(timeout_ms=1_500) == []


async def test_records_are_accepted_by_the_next_call(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(10))
    async with topic.consumer() as consumer:
        records = await take(consumer, 10)
        assert numbers(records) == list(range(10))
        assert records[3][:3] == (topic.topic, 0, 3)
        assert {record.delivery_count for record in records} == {1}
        assert await consumer.getmany(timeout_ms=500) == []
    assert await nothing_left(topic)


async def test_async_for_accepts_each_record_when_the_next_is_asked_for(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(10))
    seen = []
    with pytest.raises(ZeroDivisionError):
        async with topic.consumer() as consumer:
            async for record in consumer:
                seen.append(int(record.value))
                if len(seen) == 4:
                    raise ZeroDivisionError
    assert seen == [0, 1, 2, 3]
    async with topic.consumer() as consumer:
        again = await take(consumer, 7)
    # Record 3 was not accepted, and the records after it were not returned.
    assert numbers(again) == [3, 4, 5, 6, 7, 8, 9]


async def test_commit_accepts_and_close_alone_does_not(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(6))
    async with topic.consumer() as consumer:
        assert numbers(await take(consumer, 4, max_records=4)) == [0, 1, 2, 3]
        assert await consumer.commit() == {TopicPartition(topic.topic, 0): None}
        assert await consumer.commit() == {}
        assert numbers(await take(consumer, 2)) == [4, 5]
    async with topic.consumer() as consumer:
        again = await take(consumer, 2)
        assert numbers(again) == [4, 5]
        assert {record.delivery_count for record in again} == {2}
        await consumer.commit()
    assert await nothing_left(topic)


async def test_every_type_of_acknowledgement(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(6))
    async with topic.consumer(**EXPLICIT) as consumer:
        types = itertools.cycle([ACCEPT, RELEASE, REJECT])
        for record, kind in zip(await take(consumer, 6), types, strict=False):
            consumer.acknowledge(record, kind)
        again = await take(consumer, 2)
        assert numbers(again) == [1, 4]
        assert {record.delivery_count for record in again} == {2}
        for record in again:
            consumer.acknowledge(record)
        assert await consumer.commit() == {TopicPartition(topic.topic, 0): None}
    assert await nothing_left(topic)


async def test_what_was_delivered_and_acknowledged_is_counted_and_reported(
    topic: ShareTopic,
) -> None:
    await topic.create()
    await topic.write(range(6))
    delivered: list[ShareRecord] = []
    outcomes: Counter[AcknowledgeType] = Counter()

    class Watch(ShareConsumerObserver):
        def on_records(self, event: RecordsDelivered) -> None:
            delivered.extend(event.records)

        def on_acknowledged(self, event: AcknowledgementsDone) -> None:
            assert event.error is None
            outcomes.update(event.numbers)

    async with topic.consumer(**EXPLICIT, observers=[Watch()]) as consumer:
        states = [consumer.state.status]
        records = await take(consumer, 6)
        states.append(consumer.state.status)
        for record in records:
            consumer.acknowledge(record, (ACCEPT, RELEASE, REJECT)[record.offset % 3])
        again = await take(consumer, 2)
        for record in again:
            consumer.acknowledge(record, RENEW)
        assert set((await consumer.commit()).values()) == {None}
        for record in again:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}
        metrics = consumer.metrics()
    assert delivered == [*records, *again]
    assert states == [ConsumerStatus.REBALANCING, ConsumerStatus.READING]
    assert outcomes == {ACCEPT: 4, RELEASE: 2, REJECT: 2, RENEW: 2}
    expected = {
        "records-consumed-total": 8,
        "acknowledgements-send-total": 10,
        "acknowledgements-error-total": 0,
        "acknowledgements-renew-total": 2,
        "assigned-partitions": 1,
        "records-in-hand": 0,
    }
    assert {name: metrics[name] for name in expected} == expected
    assert metrics["bytes-consumed-total"] > 0
    assert metrics["rebalance-total"] >= 1


async def test_explicit_mode_wants_each_record_acknowledged(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(3))
    async with topic.consumer(**EXPLICIT) as consumer:
        records = await take(consumer, 3)
        consumer.acknowledge(records[0])
        with pytest.raises(ConsumerStateError, match=f"offset 1 of {topic.topic}-0 is not ackn"):
            await consumer.getmany()
        with pytest.raises(ConsumerStateError, match="is already acknowledged"):
            consumer.acknowledge(records[0])
        consumer.acknowledge(records[1])
        consumer.acknowledge(records[2], RELEASE)
        assert numbers(await take(consumer, 1)) == [2]
    async with topic.consumer() as consumer:
        (record,) = await take(consumer, 1)
        with pytest.raises(ConsumerStateError, match="share_acknowledgement_mode"):
            consumer.acknowledge(record)


async def test_a_record_is_delivered_up_to_the_limit(topic: ShareTopic) -> None:
    await topic.create(share_delivery_count_limit="3")
    await topic.write([7])
    async with topic.consumer(**EXPLICIT) as consumer:
        for count in (1, 2, 3):
            (record,) = await take(consumer, 1)
            assert (record.value, record.delivery_count) == (b"7", count)
            consumer.acknowledge(record, RELEASE)
        assert await consumer.getmany(timeout_ms=1_000) == []


async def test_a_lock_times_out_and_the_late_acknowledgement_fails(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write(range(3))
    reported: list[tuple[object, KafkaError | None]] = []
    async with (
        topic.consumer(
            **EXPLICIT,
            acknowledgement_commit_callback=lambda offsets, error: reported.append(
                (offsets, error)
            ),
        ) as slow,
        topic.consumer() as other,
    ):
        records = await take(slow, 3)
        assert slow.acquisition_lock_timeout_ms == 1_000
        again = await take(other, 3)
        assert numbers(again) == [0, 1, 2]
        assert {record.delivery_count for record in again} == {2}
        assert await other.commit() == {TopicPartition(topic.topic, 0): None}
        for record in records:
            slow.acknowledge(record)
        tp = TopicPartition(topic.topic, 0)
        outcome = (await slow.commit())[tp]
        assert isinstance(outcome, BrokerError)
        assert outcome.code is ErrorCode.INVALID_RECORD_STATE
        ((offsets, error),) = reported
        assert offsets == {tp: frozenset([0, 1, 2])}
        assert isinstance(error, BrokerError)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_broker_confirms_what_is_said_of_a_record_that_is_done(
    topic: ShareTopic, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So two members may have a confirmation. Ours does not send what is late, if it knows that."""
    none = PartitionAcknowledgements(0.0)
    monkeypatch.setattr(PartitionAcknowledgements, "pop_late", lambda *_: none)
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write([0])
    async with topic.consumer(**EXPLICIT) as slow, topic.consumer(**EXPLICIT) as other:
        (late,) = await take(slow, 1)
        (again,) = await take(other, 1)
        assert again.delivery_count == 2
        if is_done:
            other.acknowledge(again)
            assert set((await other.commit()).values()) == {None}
        slow.acknowledge(late)
        (outcome,) = (await slow.commit()).values()
        if is_done:
            assert outcome is None
        else:
            assert isinstance(outcome, BrokerError)
            assert outcome.code == ErrorCode.INVALID_RECORD_STATE
            other.acknowledge(again)


async def test_records_whose_lock_has_ended_are_not_returned(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write(range(3))
    async with topic.consumer() as slow, topic.consumer() as other:
        assert numbers(await take(slow, 1, max_records=1)) == [0]
        await asyncio.sleep(1.2)  # longer than the locks of the records that are not returned yet
        assert numbers(await take(other, 3)) == [0, 1, 2]
        assert await slow.getmany(timeout_ms=300) == []


async def test_renewing_keeps_a_record_longer_than_its_lock(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="2000")
    await topic.write([0])
    async with topic.consumer(**EXPLICIT) as keeper, topic.consumer() as other:
        (record,) = await take(keeper, 1)
        for _ in range(5):
            keeper.acknowledge(record, RENEW)
            assert set((await keeper.commit()).values()) == {None}
            # A renewed record need not be acknowledged before the next call.
            assert await keeper.getmany(timeout_ms=0) == []
            assert await other.getmany(timeout_ms=800) == []
        keeper.acknowledge(record)
        assert set((await keeper.commit()).values()) == {None}
        with pytest.raises(ConsumerStateError, match="already acknowledged"):
            keeper.acknowledge(record, RENEW)
    assert await nothing_left(topic)


async def test_two_members_share_one_partition(topic: ShareTopic) -> None:
    await topic.create()
    async with (
        topic.consumer(max_poll_records=20, share_acquire_mode="record_limit") as one,
        topic.consumer(max_poll_records=20, share_acquire_mode="record_limit") as two,
    ):
        # Both have joined before there are records.
        await asyncio.gather(one.getmany(timeout_ms=1_000), two.getmany(timeout_ms=1_000))
        await topic.write(range(400))
        found: list[list[int]] = [[], []]

        async def read(index: int) -> None:
            consumer = (one, two)[index]
            while sum(map(len, found)) < 400:
                found[index] += numbers(await consumer.getmany(timeout_ms=200))
                await asyncio.sleep(0.01)
            await consumer.commit()

        async with asyncio.timeout(60):
            await asyncio.gather(read(0), read(1))
    assert sorted(found[0] + found[1]) == list(range(400))
    assert min(map(len, found)) >= 20
    assert await nothing_left(topic)


async def test_close_releases_at_once_what_is_not_acknowledged(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="60000")
    await topic.write(range(5))
    async with topic.consumer(**EXPLICIT) as consumer:
        records = await take(consumer, 5)
        consumer.acknowledge(records[0])
        consumer.acknowledge(records[1], REJECT)
    async with topic.consumer() as consumer:
        assert numbers(await take(consumer, 3)) == [2, 3, 4]


async def test_a_dropped_connection_releases_the_records(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="60000")
    await topic.write(range(3))
    async with topic.consumer(**EXPLICIT) as consumer:
        records = await take(consumer, 3)
        consumer.acknowledge(records[0])
        assert set((await consumer.commit()).values()) == {None}
        connection = consumer._core._requests._brokers.live(1)
        assert connection is not None
        connection.abort(BrokerConnectionError("cut by the test"))
        consumer.acknowledge(records[1])
        (outcome,) = (await consumer.commit()).values()
        assert isinstance(outcome, KafkaError)
        consumer.acknowledge(records[2])  # its session is lost: it fails at once
        (outcome,) = (await consumer.commit()).values()
        assert isinstance(outcome, KafkaError)
        again = await take(consumer, 2)
        assert [(int(record.value), record.delivery_count) for record in again] == [(1, 2), (2, 2)]
        for record in again:
            consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}
    assert await nothing_left(topic)


async def test_record_limit_acquires_no_more_than_asked_for(topic: ShareTopic) -> None:
    await topic.create()
    async with Producer(topic.kafka, linger_ms=100) as producer:
        await producer.send_many(topic.topic, [b"%d" % value for value in range(10)])
    settings = {"share_acquire_mode": "record_limit", "max_poll_records": 3}
    async with topic.consumer(**settings) as consumer, topic.consumer() as other:
        first = await take(consumer, 3)
        assert numbers(first) == [0, 1, 2]
        # They are of the same batch, and free for the other member.
        assert numbers(await take(other, 7)) == [3, 4, 5, 6, 7, 8, 9]


async def test_aborted_and_control_records_are_skipped(topic: ShareTopic) -> None:
    await topic.create(share_isolation_level="read_committed")
    async with Producer(topic.kafka, transactional_id=topic.group) as producer:
        for start in range(0, 40, 10):
            await producer.begin_transaction()
            for value in range(start, start + 10):
                await producer.send(topic.topic, b"%d" % value)
            if start == 10:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    expected = [*range(10), *range(20, 40)]
    async with topic.consumer(max_poll_records=7) as consumer:
        found = await take(consumer, 30)
        assert numbers(found) == expected
        assert set((await consumer.commit()).values()) == {None}
        assert await consumer.getmany(timeout_ms=500) == []
    assert await lag(topic) == 0


async def test_a_record_that_cannot_be_read_is_released(topic: ShareTopic) -> None:
    await topic.create(share_delivery_count_limit="2")
    await topic.write(range(4))

    def value_of(_topic: str, _headers: object, data: bytes | None) -> int:
        if data == b"1":
            raise ValueError("a bad number")
        return int(data or b"")

    found: list[ShareRecord] = []
    errors = 0
    async with topic.consumer(value_deserializer=value_of) as consumer:
        async with asyncio.timeout(30):
            while len(found) < 3 or errors < 2:
                try:
                    found += await consumer.getmany(timeout_ms=1_000)
                except DeserializationError as error:
                    errors += 1
                    assert "offset 1 of" in str(error)
                    assert "it is released" in str(error)
        assert [record.value for record in found] == [0, 2, 3]
        assert await consumer.getmany(timeout_ms=1_000) == []


async def test_a_cancelled_call_loses_no_record(topic: ShareTopic) -> None:
    await topic.create()
    found: list[int] = []
    async with topic.consumer() as consumer:
        await consumer.getmany(timeout_ms=1_000)
        writing = asyncio.create_task(topic.write(range(300)))
        async with asyncio.timeout(60):
            while len(set(found)) < 300:
                try:
                    async with asyncio.timeout(0.003):
                        found += numbers(await consumer.getmany())
                except TimeoutError:
                    pass
        await writing
        assert sorted(found) == list(range(300))
        await consumer.commit()
    assert await nothing_left(topic)


async def test_unsubscribe_releases_and_leaves(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="60000")
    await topic.write(range(5))
    async with topic.consumer() as consumer:
        assert numbers(await take(consumer, 2, max_records=2)) == [0, 1]
        await consumer.unsubscribe()
        with pytest.raises(ConsumerStateError, match="nothing to read"):
            await consumer.getmany()
        async with topic.consumer() as other:
            assert numbers(await take(other, 3)) == [2, 3, 4]
        consumer.subscribe([topic.topic])
        assert numbers(await take(consumer, 3)) == [2, 3, 4]


async def test_another_subscription_releases_the_records_of_the_first(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(5))
    second = ShareTopic(topic.kafka)
    second.group = topic.group
    await second.create()
    await second.write(range(5, 8))
    async with topic.consumer() as consumer:
        assert numbers(await take(consumer, 2, max_records=2)) == [0, 1]
        consumer.subscribe(second.topic)
        assert numbers(await take(consumer, 3)) == [5, 6, 7]
        await consumer.commit()
        async with topic.consumer() as other:
            assert numbers(await take(other, 3)) == [2, 3, 4]
            await other.commit()
    assert await nothing_left(topic)


async def test_several_topics_and_partitions(topic: ShareTopic) -> None:
    further = ShareTopic(topic.kafka)
    await topic.create(partitions=3)
    await further.create(partitions=2)
    for partition in range(3):
        await topic.write(range(partition * 100, partition * 100 + 50), partition)
    for partition in range(2):
        await further.write(range(1_000 + partition * 100, 1_050 + partition * 100), partition)
    async with topic.consumer(topics=[topic.topic, further.topic]) as consumer:
        found = await take(consumer, 250)
        assert len(set(numbers(found))) == 250
        results = await consumer.commit()
    assert set(results.values()) <= {None}


async def test_commit_also_shows_acknowledgements_that_were_sent_before(
    topic: ShareTopic,
) -> None:
    await topic.create(share_record_lock_duration_ms="1000")
    await topic.write([0, 1])
    tp, reported = TopicPartition(topic.topic, 0), asyncio.Event()
    async with topic.consumer(
        **EXPLICIT, acknowledgement_commit_callback=lambda offsets, error: reported.set()
    ) as consumer:
        first, second = await take(consumer, 2)
        consumer.acknowledge(first)
        await reported.wait()
        assert await consumer.commit() == {tp: None}
        reported.clear()
        await asyncio.sleep(1.1)  # the lock ends
        consumer.acknowledge(second)
        await reported.wait()
        error = (await consumer.commit())[tp]
        assert isinstance(error, BrokerError)
        assert error.code == ErrorCode.INVALID_RECORD_STATE
        assert await consumer.commit() == {}


@pytest.mark.kafka
@pytest.mark.parametrize(
    "fixture", ["kafka_3_9", pytest.param("kafka_4_1", marks=pytest.mark.interop)]
)
async def test_a_cluster_without_share_groups(fixture: str, request: pytest.FixtureRequest) -> None:
    old = request.getfixturevalue(fixture)
    async with ShareTopic(old).consumer() as consumer:
        with pytest.raises(UnsupportedVersionError, match=r"Kafka 4\.1 or newer.*share\.version=1"):
            await consumer.getmany(timeout_ms=20_000)


async def test_any_task_acknowledges_while_another_waits(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write([0])
    async with topic.consumer(**EXPLICIT) as consumer:
        (record,) = await take(consumer, 1)
        consumer.acknowledge(record, RENEW)
        waiting = asyncio.create_task(consumer.getmany(timeout_ms=20_000))
        await asyncio.sleep(0.1)
        consumer.acknowledge(record, RELEASE)
        # It is sent without a call of commit, and the waiting call gets the record again.
        (again,) = await waiting
        assert (again.offset, again.delivery_count) == (0, 2)
        consumer.acknowledge(again)


async def test_close_ends_the_call_of_another_task(topic: ShareTopic) -> None:
    await topic.create()
    consumer = topic.consumer()
    await consumer.start()
    waiting = asyncio.create_task(consumer.getmany())
    await asyncio.sleep(0.5)
    with pytest.raises(ConcurrentUseError):
        await consumer.commit()
    began = asyncio.get_running_loop().time()
    await consumer.close()
    assert asyncio.get_running_loop().time() - began < 2
    with pytest.raises(ConsumerClosedError):
        await waiting
    with pytest.raises(ConsumerClosedError):
        await consumer.getmany()


async def test_one_that_is_dropped_is_released_and_so_are_its_records(topic: ShareTopic) -> None:
    await topic.create(share_record_lock_duration_ms="60000")
    await topic.write(range(3))
    consumer = topic.consumer()
    await consumer.start()
    assert len(await take(consumer, 3)) == 3
    with pytest.warns(ResourceWarning, match="unclosed share consumer"):
        del consumer
    async with topic.consumer() as other:
        assert numbers(await take(other, 3)) == [0, 1, 2]


async def test_cancelled_at_each_point_it_loses_nothing_and_leaves_nothing(
    topic: ShareTopic,
) -> None:
    await topic.create(share_record_lock_duration_ms="60000", share_delivery_count_limit="10")
    await topic.write(range(200))
    seen: set[int] = set()
    sure: set[int] = set()

    async def scenario(number: int) -> None:
        settings = {"share_acquire_mode": "record_limit", "max_poll_records": 3}
        async with topic.consumer(**settings) as consumer:
            records = numbers(await consumer.getmany())
            seen.update(records)
            outcomes = await consumer.commit()
            assert outcomes == {TopicPartition(topic.topic, 0): None}
            sure.update(records)
            seen.update(numbers(await consumer.getmany(2)))

    async def check(number: int, cancelled: bool) -> None:
        tasks = [task for task in asyncio.all_tasks() if "aioprod" in task.get_name()]
        assert not tasks or not (await asyncio.wait(tasks, timeout=5))[1]

    assert await cancel_at_each_point(scenario, check) >= 6
    left: set[int] = set()
    async with topic.consumer() as consumer, asyncio.timeout(30):
        while await lag(topic) != 0:
            left.update(numbers(await consumer.getmany(timeout_ms=100)))
            await consumer.commit()
    assert left & sure == set()
    assert left | seen == set(range(200))
    assert sure


async def test_the_admin_client_lists_and_deletes_a_share_group(topic: ShareTopic) -> None:
    await topic.create()
    await topic.write(range(5))
    async with Admin(topic.kafka) as admin:
        async with topic.consumer() as consumer:
            assert len(await take(consumer, 5)) == 5
            assert set((await consumer.commit()).values()) == {None}
            listed = (await admin.list_groups(types=["share"]))[topic.group]
            assert (listed.type, listed.state) == ("share", "Stable")
        await admin.delete_consumer_groups(topic.group)
        assert topic.group not in await admin.list_groups()
    # The group begins again.
    async with topic.consumer() as consumer:
        assert {record.delivery_count for record in await take(consumer, 5)} == {1}


async def test_a_group_of_another_type_is_named_as_such(topic: ShareTopic) -> None:
    await topic.create()
    classic = {"bootstrap_servers": topic.kafka, "group_id": topic.group}
    new: dict[str, Any] = {**classic, "group_protocol": "consumer"}
    text = "a group of another type has this id: choose another group_id"
    async with Admin(topic.kafka) as admin:
        async with Consumer(topic.topic, **classic) as member:  # type: ignore[call-overload]
            while topic.group not in await admin.list_groups():
                await member.getmany(timeout_ms=100)
            async with topic.consumer() as consumer:
                with pytest.raises(BrokerError, match=text):
                    await consumer.getmany()
        await admin.delete_consumer_groups(topic.group)
        async with topic.consumer() as consumer:
            while topic.group not in await admin.list_groups():
                await consumer.getmany(timeout_ms=100)
            async with Consumer(topic.topic, **new) as member:
                with pytest.raises(BrokerError, match=text):
                    await member.getmany()

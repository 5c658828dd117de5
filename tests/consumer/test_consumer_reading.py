"""Reading without a group: every record once and in order, by each way of asking, from one broker
and from several.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from aioprod import (
    ConcurrentUseError,
    ConfigError,
    Consumer,
    ConsumerClosedError,
    ConsumerInterceptor,
    ConsumerRecord,
    ConsumerStateError,
    ConsumerStatus,
    DeserializationError,
    KafkaTimeoutError,
    OffsetAndTimestamp,
    Producer,
    RebalanceListener,
    StringDeserializer,
    SubscriptionPattern,
    TopicPartition,
    WakeupError,
)
from aioprod.consumer.requests import Requests
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import FetchRequest
from aioprod.testing import EmbeddedCluster, hold
from tests.consumer.number_topics import FAST, TOPIC, TP, consumer_of, fill, numbers, reading, take
from tests.waiting import until


async def test_async_for_getone_and_getmany_return_every_record_once(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 100)
    async with reading(broker, max_poll_records=7) as consumer:
        found: list[ConsumerRecord] = []
        async for record in consumer:
            found.append(record)
            if len(found) == 25:
                break
        found.append(await consumer.getone())
        found += await consumer.getmany(10)
        while len(found) < 100:
            found += await consumer.getmany()
    assert numbers(found) == list(range(100))
    assert found[42] == ConsumerRecord(TOPIC, 0, 42, 1_042, 0, None, b"42", (), 0)


async def test_getmany_returns_what_is_there_up_to_its_limit(broker: EmbeddedCluster) -> None:
    await fill(broker, 25)
    async with reading(broker) as consumer:
        assert numbers(await consumer.getmany(10)) == list(range(10))
        assert numbers(await consumer.getmany(1_000)) == list(range(10, 25))
        assert await consumer.getmany(timeout_ms=0) == []
        assert await consumer.getmany(timeout_ms=30) == []
        with pytest.raises(ConfigError, match="max_records=0"):
            await consumer.getmany(0)


async def test_getmany_is_bounded_by_max_poll_records(broker: EmbeddedCluster) -> None:
    await fill(broker, 25)
    async with reading(broker, max_poll_records=4) as consumer:
        assert [len(await consumer.getmany()) for _ in range(6)] == [4] * 6


async def test_getone_shows_that_there_is_nothing(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        with pytest.raises(KafkaTimeoutError, match="no record from numbers within 30 ms, after 0"):
            await consumer.getone(timeout_ms=30)


async def test_a_record_that_comes_while_a_call_waits_ends_it(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker, fetch_max_wait_ms=5_000) as consumer:
        waiting = asyncio.ensure_future(consumer.getone())
        await broker.wait_for_request(ApiKey.FETCH)
        await fill(broker, 1)
        assert (await asyncio.wait_for(waiting, 2)).value == b"0"


async def test_topics_without_a_group_are_read_as_a_whole(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 3)
    for partition in range(3):
        await fill(broker, 10, first=100 * partition, partition=partition)
    async with consumer_of(broker, TOPIC) as consumer:
        found = await take(consumer, 30)
        assert sorted(numbers(found)) == [*range(10), *range(100, 110), *range(200, 210)]
        assert consumer.assignment() == {TopicPartition(TOPIC, number) for number in range(3)}
        assert consumer.subscription() == {TOPIC}
    for partition in range(3):
        mine = [record for record in found if record.partition == partition]
        assert [record.offset for record in mine] == list(range(10))


async def test_partitions_that_are_added_are_read_too(broker: EmbeddedCluster) -> None:
    await fill(broker, 1)
    async with consumer_of(broker, TOPIC, metadata_max_age_ms=50) as consumer:
        await take(consumer, 1)
        broker.add_partitions(TOPIC, 2)
        await fill(broker, 1, first=7, partition=1)
        assert numbers(await take(consumer, 1)) == [7]


async def test_a_pattern_reads_the_topics_that_match_also_later_ones(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 1, topic="orders-1")
    await fill(broker, 1, topic="old-orders-1")
    reported: list[list[TopicPartition]] = []

    class Listener(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            reported.append(partitions)

    async with consumer_of(broker, metadata_max_age_ms=50) as consumer:
        consumer.subscribe(pattern="orders-.*", listener=Listener())
        assert [record.topic for record in await take(consumer, 1)] == ["orders-1"]
        await fill(broker, 1, topic="orders-2")
        assert [record.topic for record in await take(consumer, 1)] == ["orders-2"]
        assert consumer.subscription() == {"orders-1", "orders-2"}
        with pytest.raises(KafkaTimeoutError):
            await consumer.getone(timeout_ms=50)
        with pytest.raises(ConfigError, match="pattern="):
            consumer.subscribe(pattern="(")
        with pytest.raises(ConfigError, match="only brokers resolve it"):
            consumer.subscribe(pattern=SubscriptionPattern("a.*"))
        await consumer.unsubscribe()
        consumer.subscribe(["old-orders-1"])
        assert [record.topic for record in await take(consumer, 1)] == ["old-orders-1"]
    assert reported == [[TopicPartition("orders-1", 0)], [TopicPartition("orders-2", 0)]]


async def test_records_of_three_brokers_are_read_gather_outcomes() -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, 6)
        for partition in range(6):
            await fill(broker, 20, first=1_000 * partition, partition=partition)
        async with consumer_of(broker, TOPIC, max_partition_fetch_bytes=300) as consumer:
            found = await take(consumer, 120)
        assert sorted(numbers(found)) == [
            1_000 * partition + number for partition in range(6) for number in range(20)
        ]
        assert {seen.node_id for seen in broker.requests if seen.api_key == ApiKey.FETCH} == set(
            broker.node_ids
        )


async def test_what_is_fetched_ahead_is_bounded_in_bytes(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 4)
    async with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(400):
            await producer.send(TOPIC, b"%0999d" % number, partition=number % 4)
            if number % 8 == 7:
                await producer.flush()
    async with consumer_of(
        broker,
        TOPIC,
        max_buffered_bytes=20_000,
        max_partition_fetch_bytes=8_000,
        metrics_num_samples=2,
    ) as consumer:
        seen = [await consumer.getone()]
        most = 0.0
        while len(seen) < 400:
            await asyncio.sleep(0.001)
            most = max(most, consumer.metrics()["buffered-bytes"])
            seen += await consumer.getmany(5)
        assert 8_000 < most <= 20_000 + 3_000  # a batch has two records
    assert sorted(numbers(seen)) == list(range(400))


async def test_a_paused_partition_keeps_what_was_fetched(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 2)
    other = TopicPartition(TOPIC, 1)
    await fill(broker, 20)
    await fill(broker, 20, first=100, partition=1)
    async with reading(broker, TP, other, max_poll_records=5) as consumer:
        first = await take(consumer, 3)
        stopped = TopicPartition(TOPIC, first[0].partition)
        running = other if stopped == TP else TP
        consumer.pause(stopped)
        assert consumer.paused() == {stopped}
        assert {record.partition for record in await take(consumer, 20)} == {running.partition}
        assert await consumer.getmany(timeout_ms=50) == []
        fetches = broker.request_count(ApiKey.FETCH)
        consumer.resume(stopped)
        rest = await take(consumer, 17)
        assert [record.offset for record in rest] == list(range(3, 20))
        assert broker.request_count(ApiKey.FETCH) <= fetches + 2, (
            "what was there is returned; it is not fetched again"
        )


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> list[FetchRequest]:
    """The Fetch requests as they were asked for."""
    seen: list[FetchRequest] = []
    post = Requests.post

    def noted(
        self: Requests, node_id: int, message: Any, handler: Any, newest: int | None = None
    ) -> None:
        if isinstance(message, FetchRequest):
            seen.append(message)
        post(self, node_id, message, handler, newest)

    monkeypatch.setattr(Requests, "post", noted)
    return seen


async def test_a_fetch_is_sent_before_the_records_of_the_last_one_are_read(
    broker: EmbeddedCluster, fetches: list[FetchRequest]
) -> None:
    broker.create_topic(TOPIC, 1)
    async with Producer(broker.bootstrap_servers, linger_ms=0, batch_size=4_000) as producer:
        for number in range(200):
            await producer.send(TOPIC, b"%0999d" % number)
    async with reading(broker, max_partition_fetch_bytes=20_000) as consumer:
        first = await consumer.getone()

        def offsets() -> list[int]:
            return [
                partition.fetch_offset
                for request in fetches
                for topic in request.topics
                for partition in topic.partitions
            ]

        await until(lambda: consumer.metrics()["buffered-bytes"] >= 30_000, 10)
        assert offsets() == sorted(set(offsets())), "no record is fetched twice"
        assert consumer.metrics()["buffered-bytes"] <= 3 * 20_000
        assert numbers([first, *await take(consumer, 199)]) == list(range(200))


async def test_large_responses_are_read_from_the_memory_where_they_were_received(
    broker: EmbeddedCluster,
) -> None:
    """The buffer counts a response once, whole, until the last of its partitions is read."""
    broker.create_topic(TOPIC, 2)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(200):
            await producer.send(TOPIC, b"%0999d" % number, partition=number % 2)
    both = [TP, TopicPartition(TOPIC, 1)]
    async with reading(broker, *both, fetch_min_bytes=150_000) as consumer:
        found = list(await consumer.getmany(1))
        assert consumer.metrics()["buffered-bytes"] >= 200_000
        found += await take(consumer, 199)
        assert await consumer.getmany(timeout_ms=0) == []
        assert consumer.metrics()["buffered-bytes"] == 0
    assert sorted(numbers(found)) == list(range(200))


async def test_partitions_that_are_paused_do_not_starve_the_others(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 5)
    for partition in range(5):
        await fill(broker, 100, first=1_000 * partition, partition=partition)
    partitions = [TopicPartition(TOPIC, number) for number in range(5)]
    async with reading(
        broker, *partitions, max_buffered_bytes=1_200, max_partition_fetch_bytes=600
    ) as consumer:
        await take(consumer, 1)
        consumer.pause(*partitions[:4])
        found = [record for record in await take(consumer, 100) if record.partition == 4]
        assert numbers(found) == list(range(4_000, 4_000 + len(found)))
        consumer.resume(*partitions[:4])
        rest = await take(consumer, 399)
        assert {record.partition for record in rest} == set(range(4))


def test_what_is_read_may_be_said_before_there_is_an_event_loop() -> None:
    consumer = Consumer()
    consumer.assign([TP])
    consumer.seek(TP, 5)
    consumer.pause(TP)
    assert (consumer.assignment(), consumer.paused()) == (frozenset({TP}), frozenset({TP}))
    with pytest.raises(ConsumerStateError):
        consumer.subscribe(["t"])


async def test_fetch_settings_reach_the_broker(
    broker: EmbeddedCluster, fetches: list[FetchRequest]
) -> None:
    broker.create_topic(TOPIC)
    settings = {
        "fetch_min_bytes": 7,
        "fetch_max_bytes": 5_000,
        "fetch_max_wait_ms": 33,
        "max_partition_fetch_bytes": 900,
        "client_rack": "r1",
    }
    async with reading(broker, isolation_level="read_committed", **settings):
        await broker.wait_for_request(ApiKey.FETCH)
    asked = fetches[0]
    assert (
        asked.min_bytes,
        asked.max_bytes,
        asked.max_wait_ms,
        asked.rack_id,
        asked.isolation_level,
    ) == (7, 5_000, 33, "r1", 1)
    assert asked.topics[0].partitions[0].partition_max_bytes == 900


def sizes_asked(fetches: list[FetchRequest]) -> list[int]:
    """The sizes that requests asked for from partition 0, without repetitions."""
    sizes = [
        each.partition_max_bytes
        for fetch in fetches
        for topic in fetch.topics
        for each in topic.partitions
        if each.partition == 0
    ]
    return [size for place, size in enumerate(sizes) if place == 0 or sizes[place - 1] != size]


@pytest.mark.virtual_time  # on a busy machine, the broker would count as far away
@pytest.mark.parametrize(
    ("settings", "partitions", "expected"),
    [
        ({"max_partition_fetch_bytes": 100}, 1, [100]),  # a size of the user's is a limit
        ({"max_partition_fetch_bytes": 100, "largest_partition_fetch_bytes": 100}, 1, [100]),
        (
            {"max_partition_fetch_bytes": 100, "largest_partition_fetch_bytes": 500},
            1,
            [100, 400, 500],
        ),
        # What a request asks for stays within the limit, unless that is less than Java's.
        (
            {"max_partition_fetch_bytes": 100, "largest_partition_fetch_bytes": 500},
            2,
            [100, 250],
        ),
        ({"max_partition_fetch_bytes": 100, "largest_partition_fetch_bytes": 500}, 6, [100]),
    ],
)
async def test_fetches_grow_while_responses_are_full(
    broker: EmbeddedCluster,
    fetches: list[FetchRequest],
    settings: dict[str, Any],
    partitions: int,
    expected: list[int],
) -> None:
    broker.create_topic(TOPIC, partitions)
    for partition in range(partitions):
        await fill(broker, 400, partition=partition)
    everything = [TopicPartition(TOPIC, partition) for partition in range(partitions)]
    async with reading(broker, *everything, **settings) as consumer:
        found = await take(consumer, 400 * partitions)
        assert len(set(numbers(found))) == 400
    assert sizes_asked(fetches) == expected


async def test_fetches_from_another_position_are_small_again(
    broker: EmbeddedCluster, fetches: list[FetchRequest]
) -> None:
    await fill(broker, 400)
    settings = {"max_partition_fetch_bytes": 100, "largest_partition_fetch_bytes": 500}
    async with reading(broker, **settings) as consumer:
        await take(consumer, 400)
        del fetches[:]
        consumer.seek(TP, 370)
        await take(consumer, 30)
    assert sizes_asked(fetches)[0] == 100


async def test_an_unfilled_response_does_not_make_fetches_grow(
    broker: EmbeddedCluster, fetches: list[FetchRequest]
) -> None:
    settings = {"max_partition_fetch_bytes": 5_000, "largest_partition_fetch_bytes": 50_000}
    async with reading(broker, **settings) as consumer:
        for first in range(0, 300, 10):
            await fill(broker, 10, first=first)
            await take(consumer, 10)
    assert sizes_asked(fetches) == [5_000]


async def test_an_idle_consumer_names_no_partitions_in_its_requests(
    broker: EmbeddedCluster, fetches: list[FetchRequest]
) -> None:
    await fill(broker, 1)
    async with reading(broker) as consumer:
        await take(consumer, 1)
        await broker.wait_for_request(ApiKey.FETCH, len(fetches) + 3)
        assert fetches[-1].session_epoch > 2
        assert fetches[-1].topics == []


async def test_a_consumer_that_is_closed_leaves_no_fetch_session_behind(
    fetches: list[FetchRequest],
) -> None:
    async with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, 6)
        consumer = consumer_of(cluster, TOPIC)
        await consumer.start()
        async with asyncio.timeout(10):
            while len({fetch.session_id for fetch in fetches} - {0}) < 3:
                await consumer.getmany(timeout_ms=10)
        store = cluster._store
        assert [len(store.fetch_sessions(node_id)) for node_id in (1, 2, 3)] == [1, 1, 1]
        await consumer.close()
        assert [len(store.fetch_sessions(node_id)) for node_id in (1, 2, 3)] == [0, 0, 0]


async def test_only_committed_records_are_read_where_that_is_asked_for(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers, transactional_id="x", linger_ms=0) as producer:
        for number in range(6):
            producer_ends = producer.transaction()
            try:
                async with producer_ends:
                    await producer.send(TOPIC, b"%d" % number)
                    await producer.flush()
                    if number % 2:
                        raise LookupError
            except LookupError:
                pass
    async with reading(broker, isolation_level="read_committed") as consumer:
        assert numbers(await take(consumer, 3)) == [0, 2, 4]
        assert consumer.last_stable_offset(TP) == 12
        assert await consumer.getmany(timeout_ms=50) == []
        assert await consumer.position(TP) == 12, "it is after the last marker"
    async with reading(broker) as consumer:
        assert numbers(await take(consumer, 6)) == list(range(6))


async def test_deserializers_get_topic_headers_and_bytes(broker: EmbeddedCluster) -> None:
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait(TOPIC, b"v", key="k\u00e4".encode(), headers=[("h", b"1")])
        await producer.send_and_wait(TOPIC, None)

    def value(topic: str, headers: object, data: bytes | None) -> object:
        return topic, headers, data

    async with reading(
        broker, key_deserializer=StringDeserializer(), value_deserializer=value
    ) as consumer:
        first, second = await take(consumer, 2)
    assert (first.key, first.value) == ("kä", (TOPIC, (("h", b"1"),), b"v"))
    assert (second.key, second.value) == (None, (TOPIC, (), None))


@pytest.mark.parametrize("way", ["getone", "getmany", "async for"])
async def test_a_record_that_can_not_be_read_is_named_and_can_be_left_out(
    broker: EmbeddedCluster, way: str
) -> None:
    await fill(broker, 20)

    def picky(topic: str, headers: object, data: bytes | None) -> int:
        number = int(data or b"")
        if number in (0, 7, 8):
            raise LookupError(f"number {number}")
        return number

    found: list[int] = []
    places: list[int] = []
    async with reading(broker, value_deserializer=picky) as consumer:
        while len(found) < 17:
            try:
                if way == "getone":
                    found.append((await consumer.getone(timeout_ms=5_000)).value)
                elif way == "getmany":
                    found += [
                        record.value for record in await consumer.getmany(6, timeout_ms=5_000)
                    ]
                else:
                    async for record in consumer:
                        found.append(record.value)
                        if len(found) == 17:
                            break
            except DeserializationError as error:
                places.append(error.offset)
                assert await consumer.position(error.topic_partition) == error.offset
                assert (error.value, error.timestamp, error.topic_partition) == (
                    b"%d" % error.offset,
                    1_000 + error.offset,
                    TP,
                )
                assert f"offset {error.offset} of numbers-0: LookupError" in str(error)
                if len(places) % 2 == 0:
                    consumer.seek(error.topic_partition, error.offset + 1)
    assert found == [number for number in range(20) if number not in (0, 7, 8)]
    assert places == [0, 0, 7, 7, 8, 8], "it is raised again until a seek past it"


async def test_interceptors_see_and_change_what_is_returned(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, 10)
    events: list[str] = []

    class Odd(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            events.append("odd")
            return [record for record in records if int(record.value) % 2]

        def close(self) -> None:
            events.append("closed")

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
            raise LookupError

    async with reading(broker, interceptors=[Broken(), Odd()]) as consumer:
        assert numbers(await take(consumer, 5)) == [1, 3, 5, 7, 9]
        assert await consumer.position(TP) == 10
    assert events[-1] == "closed"
    assert "Broken.on_consume failed" in caplog.text


async def test_a_second_task_is_refused(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        waiting = asyncio.create_task(consumer.getone(), name="the first")
        await broker.wait_for_request(ApiKey.FETCH)
        for call in (
            consumer.getone(),
            consumer.getmany(),
            consumer.position(TP),
            consumer.end_offsets([TP]),
        ):
            with pytest.raises(ConcurrentUseError, match="'the first'"):
                await call
        with pytest.raises(ConcurrentUseError):
            consumer.seek(TP, 0)
        assert consumer.assignment() == {TP}
        assert consumer.state.status is ConsumerStatus.READING
        waiting.cancel()
        await asyncio.wait([waiting])
        assert await consumer.getmany(timeout_ms=0) == []


async def test_wakeup_ends_one_call_once(broker: EmbeddedCluster) -> None:
    await fill(broker, 3)
    async with reading(broker) as consumer:
        await take(consumer, 3)
        waiting = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(0)
        consumer.wakeup()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await waiting
        assert await consumer.getmany(timeout_ms=0) == []
        consumer.seek(TP, 0)
        assert numbers(await take(consumer, 1)) == [0]
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await consumer.getone()
        assert numbers(await take(consumer, 2)) == [1, 2], "nothing is lost by it"


async def test_wakeup_ends_other_calls_that_wait(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        broker.on(ApiKey.LIST_OFFSETS, hold(), times=None)
        waiting = asyncio.ensure_future(consumer.end_offsets([TP]))
        await broker.wait_for_request(ApiKey.LIST_OFFSETS)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await waiting


async def test_close_ends_a_call_of_another_task(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        waiting = asyncio.ensure_future(consumer.getone())
        await broker.wait_for_request(ApiKey.FETCH)
        began = time.monotonic()
        await consumer.close()
        assert time.monotonic() - began < 2
        with pytest.raises(ConsumerClosedError):
            await waiting
        with pytest.raises(ConsumerClosedError):
            await consumer.getone()
        await consumer.close()
        assert consumer.state.status is ConsumerStatus.STOPPED
        with pytest.raises(ConsumerClosedError):
            await consumer.start()


async def test_calls_at_the_wrong_time_say_what_is_wrong(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    consumer = consumer_of(broker)
    assert consumer.state.status is ConsumerStatus.STOPPED
    with pytest.raises(ConsumerStateError, match="not started"):
        await consumer.getone()
    async with consumer:
        with pytest.raises(ConsumerStateError, match="nothing to read"):
            await consumer.getone()
        consumer.subscribe(TOPIC)
        with pytest.raises(ConsumerStateError, match="unsubscribe"):
            consumer.assign([TP])
        with pytest.raises(ConfigError, match="give topics, or a pattern"):
            consumer.subscribe()
        for call in (consumer.commit(), consumer.committed(TP)):
            with pytest.raises(ConsumerStateError, match="set group_id"):
                await call
        with pytest.raises(ConsumerStateError, match="numbers-5 is not assigned"):
            await consumer.position(TopicPartition(TOPIC, 5))
    with pytest.raises(ConfigError, match="did you mean 'group_id'"):
        Consumer(groupid="g")  # type: ignore[call-overload]


async def test_questions_about_topics_and_offsets(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 2)
    await fill(broker, 30)
    broker.delete_records(TOPIC, 0, 5)
    other = TopicPartition(TOPIC, 1)
    async with consumer_of(broker, allow_auto_create_topics=False) as consumer:
        assert await consumer.topics() == {TOPIC}
        assert await consumer.partitions_for_topic(TOPIC) == {0, 1}
        assert await consumer.partitions_for_topic("nowhere") == frozenset()
        assert await consumer.beginning_offsets([TP, other]) == {TP: 5, other: 0}
        assert await consumer.end_offsets([TP, other]) == {TP: 30, other: 0}
        assert await consumer.offsets_for_times({TP: 1_017, other: 0}) == {
            TP: OffsetAndTimestamp(17, 1_017, 0),
            other: None,
        }
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await consumer.end_offsets([TopicPartition("nowhere", 0)], timeout_ms=200)
        with pytest.raises(ConfigError, match="timestamp -3"):
            await consumer.offsets_for_times({TP: -3})


async def test_metrics_count_what_was_read(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)
    async with reading(broker, max_poll_records=10) as consumer:
        await take(consumer, 3)
        assert (
            consumer.metrics()["records-consumed-total"]
            == consumer.metrics_by_topic()[TOPIC]["records-consumed-total"]
            == 3
        )
        await take(consumer, 7)
        await consumer.getmany()
        metrics = consumer.metrics()
        assert metrics["records-consumed-total"] == 20
        assert metrics["records-lag-max"] == 10
        assert consumer.lag(TP) == 10
        assert metrics["bytes-consumed-total"] > 30
        assert metrics["fetch-total"] >= 1
        assert consumer.metrics_by_topic()[TOPIC]["records-consumed-total"] == 20


async def test_from_config_takes_kafkas_own_names(broker: EmbeddedCluster) -> None:
    await fill(broker, 1)
    settings = {
        **{name.replace("_", "."): str(value) for name, value in FAST.items()},
        "bootstrap.servers": broker.bootstrap_servers,
    }
    text = "org.apache.kafka.common.serialization.StringDeserializer"
    async with Consumer.from_config({**settings, "value.deserializer": text}, TOPIC) as consumer:
        assert (await consumer.getone()).value == "0"

"""The positions at which a consumer begins and continues: resets, seeks, deleted offsets, truncated
logs.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from aioprod import (
    ConfigError,
    KafkaTimeoutError,
    LogTruncationError,
    NoOffsetError,
    OffsetAndMetadata,
    OffsetOutOfRangeError,
    TopicPartition,
)
from aioprod.config.offset_reset import OffsetReset
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, change_answer, hold
from tests.consumer.number_topics import TOPIC, TP, consumer_of, fill, numbers, reading, take

OTHER = TopicPartition(TOPIC, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earliest", OffsetReset("earliest")),
        ("Latest", OffsetReset("latest")),
        ("none", OffsetReset("none")),
        ("by_duration:P1DT6H", OffsetReset("by_duration", 30 * 3_600_000)),
        ("by_duration:PT0.5S", OffsetReset("by_duration", 500)),
        ("by_duration:PT1M30S", OffsetReset("by_duration", 90_000)),
        (timedelta(hours=1, microseconds=500), OffsetReset("by_duration", 3_600_000)),
        (timedelta(), OffsetReset("by_duration", 0)),
    ],
)
def test_reset_strategies(given: object, expected: OffsetReset) -> None:
    assert OffsetReset.parse(given) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "earliest:P1D",
        "by_duration",
        "by_duration:",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:1h",
        5,
        None,
        timedelta(seconds=-1),
    ],
)
def test_strategies_that_are_none(text: object) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset="):
        OffsetReset.parse(text)


async def test_earliest_begins_at_the_first_offset(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)
    broker.delete_records(TOPIC, 0, 13)
    async with reading(broker, auto_offset_reset="earliest") as consumer:
        assert await consumer.position(TP) == 13
        assert numbers(await take(consumer, 2)) == [13, 14]


async def test_a_topic_that_was_not_known_is_read_as_soon_as_it_is(broker: EmbeddedCluster) -> None:
    await fill(broker, 3)
    async with consumer_of(
        broker, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000
    ) as consumer:
        consumer.assign([TP])
        assert numbers([await consumer.getone(timeout_ms=10_000)]) == [0]


async def test_latest_begins_with_what_comes(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)
    async with reading(broker, auto_offset_reset="latest") as consumer:
        assert await consumer.position(TP) == 30
        await fill(broker, 1, first=99)
        assert numbers(await take(consumer, 1)) == [99]


async def test_by_duration_begins_at_that_time_or_else_at_the_end(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)  # at 1.000 s to 1.029 s after 1970
    async with reading(
        broker, auto_offset_reset="by_duration:PT1S", clock=lambda: 2.013
    ) as consumer:
        assert await consumer.position(TP) == 13
    async with reading(
        broker, auto_offset_reset=timedelta(seconds=1), clock=lambda: 2.013
    ) as consumer:
        assert await consumer.position(TP) == 13
    async with reading(
        broker, auto_offset_reset="by_duration:PT1S", clock=lambda: 9_000.0
    ) as consumer:
        assert await consumer.position(TP) == 30


async def test_none_is_an_error_until_a_seek(broker: EmbeddedCluster) -> None:
    await fill(broker, 5)
    async with reading(broker, auto_offset_reset="none") as consumer:
        for _ in range(2):
            with pytest.raises(
                NoOffsetError, match="numbers-0 has neither a position nor a committed offset"
            ) as caught:
                await consumer.getone(timeout_ms=2_000)
            assert caught.value.topic_partition == TP
        with pytest.raises(NoOffsetError):
            await consumer.position(TP)
        consumer.seek(TP, 3)
        assert numbers(await take(consumer, 2)) == [3, 4]


async def test_none_of_one_partition_does_not_delay_the_others(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC, 2)
    await fill(broker, 5)
    async with reading(broker, TP, OTHER, auto_offset_reset="none") as consumer:
        consumer.seek(TP, 0)
        found: list[int] = []
        errors = 0
        while len(found) < 5:
            try:
                found += numbers(await consumer.getmany(1, timeout_ms=2_000))
            except NoOffsetError:
                errors += 1
        assert found == list(range(5))
        assert errors >= 1


@pytest.mark.parametrize(("strategy", "expected"), [("earliest", 13), ("latest", 30)])
async def test_an_offset_that_is_gone_is_reset(
    broker: EmbeddedCluster, strategy: str, expected: int
) -> None:
    await fill(broker, 30)
    async with reading(broker, auto_offset_reset=strategy) as consumer:
        await consumer.position(TP)
        broker.delete_records(TOPIC, 0, 13)
        consumer.seek(TP, 5)
        waiting = asyncio.ensure_future(consumer.getone())
        await broker.wait_for_request(ApiKey.LIST_OFFSETS, 2)
        if strategy == "latest":
            await asyncio.sleep(0.05)
            await fill(broker, 1, first=30)
        assert int((await asyncio.wait_for(waiting, 5)).value) == expected


async def test_an_offset_that_is_gone_is_an_error_without_a_reset(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 30)
    broker.delete_records(TOPIC, 0, 13)
    async with reading(broker, auto_offset_reset="none") as consumer:
        consumer.seek(TP, 5)
        with pytest.raises(OffsetOutOfRangeError, match="numbers-0 has no offset 5") as caught:
            await consumer.getone(timeout_ms=2_000)
        assert (caught.value.offset, caught.value.topic_partition) == (5, TP)
        consumer.seek(TP, 13)
        assert numbers(await take(consumer, 1)) == [13]


async def test_seeks(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)
    async with reading(broker, max_poll_records=4) as consumer:
        assert numbers(await take(consumer, 2)) == [0, 1]
        assert await consumer.position(TP) == 2
        consumer.seek(TP, 20)
        assert await consumer.position(TP) == 20
        assert numbers(await take(consumer, 6)) == list(range(20, 26))
        consumer.seek(TP, OffsetAndMetadata(3, "note", 0))
        assert numbers(await take(consumer, 1)) == [3]
        await consumer.seek_to_end()
        assert await consumer.position(TP) == 30
        await consumer.seek_to_beginning(TP)
        assert numbers(await take(consumer, 1)) == [0]
        with pytest.raises(ConfigError, match="offset -1"):
            consumer.seek(TP, -1)


async def test_a_seek_beats_a_response_in_flight(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)
    async with reading(broker) as consumer:
        await consumer.position(TP)
        rule = broker.on(ApiKey.FETCH, hold(), times=1)
        consumer.seek(TP, 5)
        await rule.wait()
        consumer.seek(TP, 12)
        rule.release()
        assert numbers(await take(consumer, 2)) == [12, 13]


async def test_a_position_that_can_not_be_had_is_reported_in_time(broker: EmbeddedCluster) -> None:
    broker.create_topic(TOPIC)
    async with reading(broker) as consumer:
        await consumer.position(TP)
        broker.on(ApiKey.LIST_OFFSETS, hold(), times=None)
        with pytest.raises(KafkaTimeoutError, match="no position of numbers-0"):
            consumer._subscription.seek_by([TP], OffsetReset("latest"))
            await consumer.position(TP, timeout_ms=50)


async def test_a_leader_confirms_a_position_before_it_is_read_on_from() -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC)
        await fill(broker, 20)
        async with reading(broker, max_poll_records=5) as consumer:
            await take(consumer, 5)
            broker.move_leader(
                TOPIC, 0, next(node for node in broker.node_ids if node != broker.leader(TOPIC, 0))
            )
            await fill(broker, 5, first=20)
            assert numbers(await take(consumer, 20)) == list(range(5, 25))
            assert broker.request_count(ApiKey.OFFSET_FOR_LEADER_EPOCH) >= 1


def cut_off_at(offset: int) -> object:
    def change(answer: object) -> None:
        for topic in answer.topics:  # type: ignore[attr-defined]
            for partition in topic.partitions:
                partition.leader_epoch, partition.end_offset = (
                    (0, offset) if offset >= 0 else (-1, -1)
                )

    return change


async def move(broker: EmbeddedCluster) -> None:
    broker.move_leader(
        TOPIC, 0, next(node for node in broker.node_ids if node != broker.leader(TOPIC, 0))
    )


@pytest.mark.parametrize(("divergent", "expected"), [(3, 3), (-1, 0)])
async def test_a_log_that_was_cut_off_is_read_on_from_where_it_differs(
    divergent: int, expected: int
) -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC)
        await fill(broker, 10)
        async with reading(broker) as consumer:
            await take(consumer, 10)
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, change_answer(cut_off_at(divergent)), times=1)  # type: ignore[arg-type]
            await move(broker)
            assert numbers(await take(consumer, 1)) == [expected]


@pytest.mark.parametrize("divergent", [3, -1])
async def test_a_log_that_was_cut_off_is_an_error_without_a_reset(divergent: int) -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC)
        await fill(broker, 10)
        async with reading(broker, auto_offset_reset="none") as consumer:
            consumer.seek(TP, 0)
            await take(consumer, 10)
            broker.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, change_answer(cut_off_at(divergent)), times=1)  # type: ignore[arg-type]
            await move(broker)
            with pytest.raises(
                LogTruncationError, match="numbers-0 was truncated before offset 10"
            ) as caught:
                await consumer.getone(timeout_ms=5_000)
            assert (caught.value.offset, caught.value.divergent_offset) == (10, divergent)
            consumer.seek(TP, 4)
            assert numbers(await take(consumer, 1)) == [4]


async def test_records_that_only_the_old_leader_had_are_not_read_on_from() -> None:
    """A real truncation: what was read is gone, other records have its offsets."""
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC)
        await fill(broker, 10)
        async with reading(broker, auto_offset_reset="none") as consumer:
            consumer.seek(TP, OffsetAndMetadata(15, "", 0))
            with pytest.raises(LogTruncationError) as caught:
                await consumer.getone(timeout_ms=5_000)
            assert caught.value.divergent_offset == 10


async def test_a_partition_that_does_not_exist_is_reported_by_the_state(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 1)
    async with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(TOPIC, 7)])
        with pytest.raises(
            KafkaTimeoutError,
            match=(
                r"the last error: numbers-7 \(the topic has 1 partition\): "
                r"UNKNOWN_TOPIC_OR_PARTITION"
            ),
        ):
            await consumer.getone(timeout_ms=100)
        assert consumer.state.status == "failing"
        assert "numbers-7" in str(consumer.state.error)
        broker.add_partitions(TOPIC, 8)
        await fill(broker, 1, partition=7)
        assert numbers(await take(consumer, 1)) == [0]
        assert consumer.state.status == "reading"

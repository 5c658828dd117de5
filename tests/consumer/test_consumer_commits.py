"""A consumer with a group commits only records that the application has received, whenever it is
asked to.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import (
    ConfigError,
    Consumer,
    ConsumerInterceptor,
    ConsumerStateError,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from tests.consumer.number_topics import TOPIC, TP, consumer_of, fill, numbers, take

GROUP: dict[str, Any] = {"group_id": "g", "session_timeout_ms": 6_000, "heartbeat_interval_ms": 50}


def member(broker: EmbeddedCluster, *topics: str, **settings: Any) -> Consumer:
    return consumer_of(broker, *topics, **{**GROUP, **settings})


async def committed(broker: EmbeddedCluster) -> OffsetAndMetadata | None:
    """Return the offset at which another member of the group would begin."""
    async with member(broker, enable_auto_commit=False) as consumer:
        return (await consumer.committed(TP))[TP]


async def test_a_commit_takes_the_returned_record_and_not_those_that_are_prepared(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 20)
    async with member(broker, TOPIC, enable_auto_commit=False) as consumer:
        async for record in consumer:
            await consumer.commit()
            assert (await consumer.committed(TP))[TP] == OffsetAndMetadata(record.offset + 1, "", 0)
            if record.offset == 6:
                break
        assert numbers(await take(consumer, 2)) == [7, 8], "a commit takes nothing away"
    assert await committed(broker) == OffsetAndMetadata(7, "", 0)


async def test_offsets_of_ones_own_choice(broker: EmbeddedCluster) -> None:
    await fill(broker, 20)
    async with member(broker, enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        await consumer.commit({TP: 4})
        assert await committed(broker) == OffsetAndMetadata(4, "", -1)
        await consumer.commit({TP: (5, "note")})
        assert await committed(broker) == OffsetAndMetadata(5, "note", -1)
        await consumer.commit({TP: OffsetAndMetadata(6, "x", 0)})
        await take(consumer, 1)
        assert await consumer.seek_to_committed() == {TP: OffsetAndMetadata(6, "x", 0)}
        assert numbers(await take(consumer, 1)) == [6]
        for wrong in (-1, True, "3", None, (1, 2, 3, 4)):
            with pytest.raises(ConfigError, match="offset"):
                await consumer.commit({TP: wrong})  # type: ignore[dict-item]
        with pytest.raises(ConsumerStateError, match="numbers-9"):
            await consumer.seek_to_committed(TopicPartition(TOPIC, 9))


async def test_the_end_commits_what_was_returned(broker: EmbeddedCluster) -> None:
    await fill(broker, 20)
    async with member(broker, TOPIC, auto_commit_interval_ms=60_000) as consumer:
        await take(consumer, 7)
    assert await committed(broker) == OffsetAndMetadata(7, "", 0)
    async with member(broker, TOPIC, auto_commit_interval_ms=60_000) as consumer:
        assert numbers(await consumer.getmany(5)) == [7, 8, 9, 10, 11]
    assert await committed(broker) == OffsetAndMetadata(12, "", 0)


async def test_commits_in_the_background_go_together(broker: EmbeddedCluster) -> None:
    await fill(broker, 50)
    async with member(broker, TOPIC, enable_auto_commit=False) as consumer:
        await take(consumer, 1)
        rule = broker.on(ApiKey.OFFSET_COMMIT, hold(), times=1)
        outcomes = [consumer.commit_async()]
        await rule.wait()
        for _ in range(30):
            await consumer.getone()
            outcomes.append(consumer.commit_async())
        rule.release()
        await asyncio.gather(*outcomes)
        assert broker.request_count(ApiKey.OFFSET_COMMIT) == 2
        assert (await consumer.committed(TP))[TP] == OffsetAndMetadata(31, "", 0)


async def test_a_commit_in_the_background_that_fails_shows_in_the_state(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 5)
    async with member(broker, TOPIC, enable_auto_commit=False) as consumer:
        await take(consumer, 1)
        broker.on(ApiKey.OFFSET_COMMIT, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED), times=1)
        consumer.commit_async()
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await consumer.commit_async()
        await consumer.commit_async()
    assert await committed(broker) == OffsetAndMetadata(1, "", 0)


async def test_interceptors_learn_of_commits(broker: EmbeddedCluster) -> None:
    await fill(broker, 5)
    received: list[dict[TopicPartition, OffsetAndMetadata]] = []

    class Listening(ConsumerInterceptor):
        def on_commit(self, offsets: Any) -> None:
            received.append(dict(offsets))

    async with member(
        broker, TOPIC, interceptors=[Listening()], enable_auto_commit=False
    ) as consumer:
        await take(consumer, 3)
        await consumer.commit()
    assert received == [{TP: OffsetAndMetadata(3, "", 0)}]


async def test_a_listener_may_call_the_consumer_while_another_commit_is_in_flight(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 20)
    events: list[str] = []

    class Calling(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            consumer.seek(TP, 10)
            assert await consumer.position(TP) == 10
            assert await consumer.end_offsets([TP]) == {TP: 20}
            with pytest.raises(ConsumerStateError, match="can't ask for records"):
                await consumer.getone()
            events.append("assigned")

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            pending = consumer.commit_async({TP: 3})
            await consumer.commit()
            await pending
            events.append(f"revoked at {await consumer.position(TP)}")

    async with member(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe([TOPIC], listener=Calling())
        assert numbers(await take(consumer, 3)) == [10, 11, 12]
        await consumer.unsubscribe()
    assert events == ["assigned", "revoked at 13"]


@pytest.mark.parametrize("auto_offset_reset", ["earliest", "none"])
async def test_the_next_member_goes_on_where_the_last_one_was(
    broker: EmbeddedCluster, auto_offset_reset: str
) -> None:
    await fill(broker, 60)
    async with member(broker) as consumer:
        consumer.assign([TP])
        await consumer.commit({TP: 0})
    found: list[int] = []
    for _ in range(6):
        async with member(
            broker, TOPIC, auto_offset_reset=auto_offset_reset, max_poll_records=7
        ) as consumer:
            found += numbers(await take(consumer, 10))
    assert found == list(range(60))


async def test_a_loop_over_records_that_are_there_already_is_neither_silent_nor_uncommitted(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came with one answer, and each takes its time: the group learns of the loop all the
    same.
    """
    monkeypatch.setattr("aioprod.consumer.ready_records._SLOW_PATH_INTERVAL_S", 0.05)
    await fill(broker, 30)
    seen: list[int] = []
    async with member(
        broker, TOPIC, max_poll_interval_ms=1_000, auto_commit_interval_ms=50
    ) as consumer:
        while len(seen) < 30:
            record = await consumer.getone()
            seen.append(record.offset)
            await asyncio.sleep(0.05)  # the application's work
            assert broker.committed_offsets("g").get(TP, 0) <= record.offset, (
                "the record being processed is not processed yet"
            )
        assert broker.committed_offsets("g")[TP] >= 20
        assert broker.group("g").generation_id == 1
    assert seen == list(range(30))
    assert broker.committed_offsets("g") == {TP: 30}

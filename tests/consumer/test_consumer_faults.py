"""Brokers that move, die, hang, or respond with any code or with garbage: every record is returned
once and in order, or an error has the reason.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from aioprod import (
    BrokerConnectionError,
    BrokerError,
    Consumer,
    ConsumerRecord,
    ConsumerStatus,
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from aioprod.testing import (
    EmbeddedCluster,
    change_answer,
    close,
    cut_answer,
    delay,
    drop_after,
    drop_before,
    fail,
    throttle,
)
from tests.consumer.number_topics import FAST, TOPIC, TP, consumer_of, fill, numbers, reading, take
from tests.selection import shares_by_default
from tests.waiting import until

CODES = [code for code in ErrorCode if code != ErrorCode.NONE] + [
    cast("ErrorCode", number) for number in (134, 999, -7)
]


def other_node(broker: EmbeddedCluster, topic: str = TOPIC, partition: int = 0) -> int:
    return next(node for node in broker.node_ids if node != broker.leader(topic, partition))


async def read_on(consumer: Consumer, count: int) -> tuple[list[int], list[KafkaError]]:
    """This number of records, and the errors on the way."""
    found: list[int] = []
    errors: list[KafkaError] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            try:
                found += numbers(await consumer.getmany(7))
            except KafkaError as error:
                errors.append(error)
    return found, errors


async def test_a_leader_that_moves_again_and_again_loses_nothing() -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        async with reading(broker) as consumer:
            found: list[int] = []
            for turn in range(6):
                await fill(broker, 20, first=20 * turn)
                found += numbers(await take(consumer, 10))
                broker.move_leader(TOPIC, 0, other_node(broker))
                found += numbers(await take(consumer, 10))
        assert found == list(range(120))


async def test_a_leader_that_is_killed_loses_nothing() -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        await fill(broker, 50)
        async with reading(broker, max_partition_fetch_bytes=300) as consumer:
            found = numbers(await take(consumer, 15))
            await broker.kill_node(broker.leader(TOPIC, 0))
            found += numbers(await take(consumer, 35))
            await broker.wait_for_request(ApiKey.FETCH, broker.request_count(ApiKey.FETCH) + 2)
            assert consumer.state.status == "reading"
        assert found == list(range(50))


async def test_a_frozen_leader_is_left_when_another_leads() -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        await fill(broker, 20)
        async with reading(broker) as consumer:
            await take(consumer, 20)
            frozen = broker.leader(TOPIC, 0)
            broker.freeze_node(frozen)
            broker.move_leader(TOPIC, 0, other_node(broker))
            await fill(broker, 5, first=20)
            began = time.monotonic()
            assert numbers(await take(consumer, 5)) == list(range(20, 25))
            assert time.monotonic() - began < 5, "it does not wait for request_timeout_ms"


async def test_an_outage_of_all_brokers_is_reported_by_the_state_and_survived() -> None:
    async with EmbeddedCluster(nodes=2) as broker:
        broker.create_topic(TOPIC, replication_factor=2)
        await fill(broker, 10)
        async with reading(broker, max_poll_records=3) as consumer:
            await take(consumer, 10)
            await broker.stop_all()
            with pytest.raises(
                KafkaTimeoutError,
                match="within 300 ms, after 10 records so far; the last error: ",
            ) as caught:
                await consumer.getone(timeout_ms=300)
            assert isinstance(caught.value.__cause__, KafkaError)
            state = consumer.state
            assert state.status == "failing"
            assert state.error is not None
            assert abs(time.time() - state.since) < 5
            with pytest.raises(KafkaTimeoutError):
                await consumer.end_offsets([TP], timeout_ms=100)
            await broker.start()
            await fill(broker, 5, first=10)
            assert numbers(await take(consumer, 5)) == list(range(10, 15))
            assert consumer.state.status == "reading"


async def test_no_broker_at_all_is_reported_at_the_start() -> None:
    consumer = Consumer(TOPIC, bootstrap_servers="127.0.0.1:1", **FAST)
    began = time.monotonic()
    with pytest.raises(BrokerConnectionError, match=r"127\.0\.0\.1:1"):
        await consumer.start()
    assert time.monotonic() - began < 5
    assert consumer.state.status == "stopped"
    await consumer.close()


async def test_a_broker_that_says_nothing_is_reported_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = Consumer(
            TOPIC, bootstrap_servers=address, **{**FAST, "socket_connection_setup_timeout_ms": 300}
        )
        began = time.monotonic()
        with pytest.raises(
            BrokerConnectionError, match=f"no broker responds: {address}: no response"
        ):
            await consumer.start()
        assert 0.3 <= time.monotonic() - began < 5
        await consumer.close()


@pytest.mark.parametrize(
    "action",
    [drop_before(), drop_after(), close(), cut_answer(20), throttle(30), delay(0.05)],
    ids=lambda action: type(action).__name__,
)
async def test_fetches_that_are_lost_cut_off_or_slow_lose_no_record(
    broker: EmbeddedCluster, action: Any
) -> None:
    await fill(broker, 60)
    broker.on(ApiKey.FETCH, action, times=4)
    async with reading(broker, max_partition_fetch_bytes=300) as consumer:
        found, errors = await read_on(consumer, 60)
    assert found == list(range(60))
    assert all(isinstance(error, KafkaError) for error in errors)


async def test_garbage_in_place_of_answers_ends_the_connection_and_no_more(
    broker: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(broker, 60)
    rng = random.Random(7)

    def garbage(answer: FetchResponse) -> None:
        answer.session_id = rng.randrange(-(2**31), 2**31)
        for topic in answer.responses:
            topic.topic_id = type(topic.topic_id)(bytes=rng.randbytes(16))
            for partition in topic.partitions:
                partition.partition_index = rng.randrange(-5, 5)
                partition.records = rng.randbytes(rng.randrange(200))

    broker.on(ApiKey.FETCH, change_answer(garbage), times=20)
    async with reading(broker, max_partition_fetch_bytes=300) as consumer:
        found, _ = await read_on(consumer, 60)
    assert found == list(range(60))


def spoil(records: bytes, rng: random.Random) -> bytes:
    """The same with one bit changed, of those that a checksum or the batch's length show: not of
    the base offset or the leader epoch.
    """
    data = bytearray(records)
    starts = [0]
    while (
        following := starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12], "big")
    ) < len(data):
        starts.append(following)
    silent = {start + place for start in starts for place in (*range(8), *range(12, 16))}
    data[rng.choice([place for place in range(len(data)) if place not in silent])] ^= (
        1 << rng.randrange(8)
    )
    return bytes(data)


@pytest.mark.parametrize("seed", range(20))
async def test_broken_record_bytes_are_an_error_that_names_the_place(
    broker: EmbeddedCluster, seed: int
) -> None:
    await fill(broker, 60)
    rng = random.Random(seed)

    def broken(answer: FetchResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records:
                    partition.records = spoil(bytes(partition.records), rng)

    rule = broker.on(ApiKey.FETCH, change_answer(broken), times=5)
    async with reading(broker) as consumer:
        found, errors = await read_on(consumer, 60)
    assert found == list(range(60)), "none twice, none left out, none changed"
    assert rule.used
    for error in errors:
        assert isinstance(error, CorruptRecordError), repr(error)
        assert "numbers-0 at offset" in str(error)


async def test_bytes_without_a_whole_batch_are_an_error_and_not_requested_forever(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 30)

    def cut_off(answer: FetchResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.records = (partition.records or b"")[:40]

    rule = broker.on(ApiKey.FETCH, change_answer(cut_off), times=None)
    async with reading(broker) as consumer:
        for _ in range(2):
            with pytest.raises(
                CorruptRecordError,
                match="numbers-0 at offset 0: the broker sent 40 bytes without a complete batch",
            ):
                await consumer.getone(timeout_ms=5_000)
        assert rule.used < 10
        rule.cancel()
        assert numbers(await take_through_errors(consumer, 30)) == list(range(30))


async def test_a_batch_that_stays_corrupt_can_be_left_out(broker: EmbeddedCluster) -> None:
    await fill(broker, 30)

    def broken(answer: FetchResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.records:
                    data = bytearray(partition.records)
                    place = data.find(b"\x0417")
                    if place >= 0:
                        data[place + 1] = ord("x")
                    partition.records = bytes(data)

    broker.on(ApiKey.FETCH, change_answer(broken), times=None)
    async with reading(broker) as consumer:
        assert numbers(await take(consumer, 10)) == list(range(10))
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="numbers-0 at offset 10"):
                await consumer.getone(timeout_ms=5_000)
        assert await consumer.position(TP) == 10
        consumer.seek(TP, 20)
        assert numbers(await take(consumer, 10)) == list(range(20, 30))


@pytest.mark.parametrize(
    ("api", "codes"),
    [
        pytest.param(
            api,
            *share.values,
            id=f"{api.name}-{share.id}",
            marks=[*share.marks, *([] if api is ApiKey.FETCH else [pytest.mark.slow])],
        )
        for place, api in enumerate(
            (
                ApiKey.FETCH,
                ApiKey.LIST_OFFSETS,
                ApiKey.METADATA,
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
            )
        )
        for share in shares_by_default(CODES, 3, place)
    ],
)
async def test_an_answer_with_any_code_is_survived_or_reported(
    broker: EmbeddedCluster, api: ApiKey, codes: Sequence[ErrorCode]
) -> None:
    """One answer with each code. Who reads on gets every record."""
    await fill(broker, 14)
    for code in codes:
        rule = broker.on(api, fail(code), times=1)
        async with asyncio.timeout(10):
            async with reading(
                broker, auto_offset_reset="earliest", metadata_max_age_ms=50
            ) as consumer:
                if api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
                    await consumer.getone()
                    # Its epoch is known, so the leader is asked.
                    consumer.seek(TP, OffsetAndMetadata(0, "", 0))
                found, errors = await read_on(consumer, 14)
        assert found == list(range(14)), code
        assert rule.used == 1 or api is ApiKey.METADATA, code
        for error in errors:
            assert isinstance(error, BrokerError), code
            assert ErrorCode.of(code).name in str(error)
            assert not ErrorCode.of(code).retriable, code
        rule.cancel()


@pytest.mark.parametrize("code", CODES, ids=lambda code: str(int(code)))
async def test_a_fetch_refused_as_a_whole_is_survived_or_reported(
    broker: EmbeddedCluster, code: ErrorCode
) -> None:
    await fill(broker, 14)

    def refuse(answer: FetchResponse) -> None:
        answer.error_code = int(code)
        answer.responses = []

    broker.on(ApiKey.FETCH, change_answer(refuse), times=2)
    async with reading(broker) as consumer:
        found, errors = await read_on(consumer, 14)
    assert found == list(range(14))
    assert len(errors) <= 2
    assert all(isinstance(error, BrokerError) for error in errors)


async def test_what_is_not_allowed_is_reported_and_does_not_stop_the_others(
    broker: EmbeddedCluster,
) -> None:
    await fill(broker, 10)
    await fill(broker, 10, topic="secret")
    broker.on(ApiKey.FETCH, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="secret"), times=None)
    async with reading(broker, TP, TopicPartition("secret", 0)) as consumer:
        found, errors = await read_on(consumer, 10)
        assert found == list(range(10))
        while not errors:
            with pytest.raises(BrokerError) as caught:
                await consumer.getone(timeout_ms=5_000)
            errors.append(caught.value)
        assert "TOPIC_AUTHORIZATION_FAILED" in str(errors[0])
        assert "secret-0" in str(errors[0])
        assert consumer.state.status == "failing"
        broker.clear_rules()
        assert len(await take_through_errors(consumer, 10)) == 10


async def take_through_errors(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            try:
                found.append(await consumer.getone())
            except (BrokerError, CorruptRecordError):
                continue
    return found


async def test_a_follower_that_the_leader_names_is_read_from_until_it_fails() -> None:
    """KIP-392."""
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        await fill(broker, 20)
        leader, follower = broker.leader(TOPIC, 0), other_node(broker)

        def name_follower(answer: FetchResponse) -> None:
            for topic in answer.responses:
                for partition in topic.partitions:
                    partition.preferred_read_replica, partition.records = follower, b""

        broker.on(ApiKey.FETCH, change_answer(name_follower), node=leader, times=1)
        async with reading(broker, client_rack="near") as consumer:
            # The embedded follower refuses readers: that sends the consumer back to the leader.
            assert numbers(await take(consumer, 20)) == list(range(20))
            assert broker.request_count(ApiKey.FETCH, node=follower) == 1
        assert broker.request_count(ApiKey.FETCH, node=leader) >= 2


async def test_a_follower_that_was_away_is_read_from_when_the_leader_names_it() -> None:
    """The leader gives no records, so the consumer has to learn that it is back."""
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        await fill(broker, 20)
        leader, follower = broker.leader(TOPIC, 0), other_node(broker)
        await broker.stop_node(follower)

        def name_follower(answer: FetchResponse) -> None:
            for topic in answer.responses:
                for partition in topic.partitions:
                    partition.preferred_read_replica, partition.records = follower, b""

        async with reading(broker) as consumer:
            await take(consumer, 20)
            await broker.start_node(follower)
            broker.on(ApiKey.FETCH, change_answer(name_follower), node=leader, times=None)
            before = broker.request_count(ApiKey.FETCH, node=leader)
            consumer.seek(TP, 0)
            async with asyncio.timeout(10):
                while not broker.request_count(ApiKey.FETCH, node=follower):
                    assert await consumer.getmany(timeout_ms=1) == []
            assert broker.request_count(ApiKey.FETCH, node=leader) - before < 100


@pytest.mark.parametrize("way", ["out of range", "gone", "expired"])
async def test_a_follower_that_does_not_serve_gives_way_to_the_leader(way: str) -> None:
    async with EmbeddedCluster(nodes=3) as broker:
        broker.create_topic(TOPIC, replication_factor=3)
        await fill(broker, 20)
        leader, follower = broker.leader(TOPIC, 0), other_node(broker)

        def name_follower(answer: FetchResponse) -> None:
            for topic in answer.responses:
                for partition in topic.partitions:
                    partition.preferred_read_replica, partition.records = follower, b""

        broker.on(ApiKey.FETCH, change_answer(name_follower), node=leader, times=1)
        if way == "out of range":
            broker.on(ApiKey.FETCH, fail(ErrorCode.OFFSET_OUT_OF_RANGE), node=follower, times=1)
        elif way == "gone":
            broker.on(ApiKey.FETCH, drop_before(), node=follower, times=None)
        async with reading(
            broker, auto_offset_reset="none", metadata_max_age_ms=1 if way == "expired" else 300_000
        ) as consumer:
            consumer.seek(TP, 5)
            assert numbers(await take(consumer, 15)) == list(range(5, 20))


async def test_a_topic_that_is_made_again_is_read_on(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    async with reading(broker) as consumer:
        await take(consumer, 10)
        broker.delete_topic(TOPIC)
        broker.create_topic(TOPIC)
        await fill(broker, 5, first=50)
        assert numbers(await take(consumer, 5)) == list(range(50, 55))


async def test_lost_fetch_sessions_are_begun_again(broker: EmbeddedCluster) -> None:
    await fill(broker, 5)
    async with consumer_of(broker, TOPIC) as consumer:
        found = numbers(await take(consumer, 5))
        for turn, code in enumerate(
            (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        ):
            broker.on(
                ApiKey.FETCH,
                change_answer(lambda answer, code=code: setattr(answer, "error_code", code)),  # type: ignore[misc]
                times=1,
            )
            await fill(broker, 5, first=5 + 5 * turn)
            found += numbers(await take(consumer, 5))
    assert found == list(range(15))


async def test_a_partition_that_is_left_out_has_no_problem(broker: EmbeddedCluster) -> None:
    """A broker sends the partitions that have changed, and here also one that is not requested."""
    broker.create_topic(TOPIC)
    answers: list[FetchResponse] = []

    def change(answer: FetchResponse) -> None:
        answers.append(answer)
        if len(answers) == 1:
            return
        number, code = (0, ErrorCode.REPLICA_NOT_AVAILABLE) if len(answers) == 2 else (7, 0)
        data = PartitionData(partition_index=number, error_code=code)
        topic_id = answers[0].responses[0].topic_id
        answer.responses = [FetchableTopicResponse(topic_id=topic_id, partitions=[data])]

    broker.on(ApiKey.FETCH, change_answer(change), times=None)
    async with reading(broker, **FAST) as consumer:
        await until(lambda: consumer.state.status is ConsumerStatus.FAILING, 5)
        await until(lambda: consumer.state.status is ConsumerStatus.READING, 5)

"""send_arrow where memory is short, brokers fail, callers are cancelled and transactions end:
nothing is lost, doubled or left behind.
"""

from __future__ import annotations

import asyncio
import random
from array import array
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import (
    AbortableTransactionError,
    BrokerError,
    BufferExhaustedError,
    Deliveries,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerClosedError,
    TransactionStateError,
)
from aioprod.producer.batch import ProducerBatch
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, delay, drop_after, fail, hold
from aioprod.types import TopicPartition
from tests.producer.arrow_rows import assert_nothing_kept, number_of, numbered, where
from tests.producer.collaborators import NoEvents
from tests.waiting import until

NOW = 1_700_000_000_000
LIMIT_S = 30.0

__all__ = ["where"]


async def waits_for_memory(producer: Producer) -> None:
    await until(lambda: producer._pool.waiting, LIMIT_S)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
async def test_it_waits_for_room_and_keeps_the_order(
    broker: EmbeddedCluster, where: str, keyed: bool
) -> None:
    broker.create_topic("t", num_partitions=3 if keyed else 1)
    columns = {
        "value": numbered(5_000),
        **({"key": [b"%d" % (number % 50) for number in range(5_000)]} if keyed else {}),
    }
    async with Producer(
        broker.bootstrap_servers, buffer_memory=40_000, batch_size=4_000
    ) as producer:
        await producer.partitions_for("t")
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released), times=None)
        sending = asyncio.ensure_future(producer.send_arrow("t", pa.table(columns)))
        await waits_for_memory(producer)
        assert not sending.done()
        assert sum(batch.writer.size for batch in producer._accumulator.incomplete) <= 40_000
        broker.clear_rules()
        released.set()
        async with asyncio.timeout(LIMIT_S):
            await (await sending).wait()
        assert_nothing_kept(producer)
    for partition in range(3 if keyed else 1):
        found = [number_of(record) for record in broker.records("t", partition)]
        assert found == sorted(set(found))
    assert len(broker.records("t")) == 5_000


@pytest.mark.parametrize("keyed", [False, True])
async def test_without_memory_in_time_all_rows_that_are_left_fail(
    broker: EmbeddedCluster, keyed: bool
) -> None:
    keys = [b"%d" % (number % 50) for number in range(5_000)]
    broker.create_topic("t", num_partitions=3)
    async with Producer(
        broker.bootstrap_servers, buffer_memory=40_000, batch_size=4_000, max_block_ms=100
    ) as producer:
        # However long that takes, which max_block_ms would limit.
        producer._metadata.touch("t")
        await until(lambda: "t" in producer._accumulator.topics, LIMIT_S)
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released), times=None)
        async with asyncio.timeout(5):
            deliveries = await producer.send_arrow(
                "t", pa.table({"value": numbered(5_000), **({"key": keys} if keyed else {})})
            )
        assert len(deliveries) == 5_000
        broker.clear_rules()
        released.set()
        await producer.flush()
        found = deliveries.exceptions()
        assert {type(error) for error in found.values()} == {BufferExhaustedError}
        assert 4_500 < len(found) < 4_900 and list(found) == sorted(found)
        assert producer.metrics()["buffer-exhausted-total"] == 1
        with pytest.raises(BufferExhaustedError, match="max_block_ms"):
            await deliveries
        assert_nothing_kept(producer)
    assert sorted(number_of(record) for record in broker.records("t")) == [
        row for row in range(5_000) if row not in found
    ]


def test_others_are_found_by_their_number() -> None:
    async def check() -> None:
        refused = ProducerBatch.refused(TopicPartition("t", -1), KafkaError("no"), NoEvents())
        deliveries = Deliveries()
        deliveries.add_stretch(refused, 0, 2)
        deliveries.add_stretch(refused, 0, 2, array("Q", [4, 2]))
        deliveries.add_others(refused, 7)
        assert len(deliveries) == 7 and list(deliveries.exceptions()) == list(range(7))
        assert deliveries._numbers == array("Q", [0, 1, 4, 2, 3, 5, 6])
        assert [deliveries._position(number) for number in range(7)] == [0, 1, 3, 4, 2, 5, 6]

    asyncio.run(check())


# -- trouble ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_batch_that_is_too_large_for_the_topic_is_sent_in_parts(
    broker: EmbeddedCluster, keyed: bool
) -> None:
    broker.create_topic("t", num_partitions=2, configs={"max.message.bytes": "700"})
    times = [NOW + number % 7 for number in range(2_000)]
    columns = {
        "value": numbered(2_000, 30),
        "timestamp": times,
        **({"key": [b"%d" % (number % 50) for number in range(2_000)]} if keyed else {}),
    }
    async with Producer(broker.bootstrap_servers, batch_size=20_000) as producer:
        deliveries = await producer.send_arrow("t", pa.table(columns))
        async with asyncio.timeout(LIMIT_S):
            places = await deliveries
        assert producer.metrics()["batch-split-total"] > 0
        assert_nothing_kept(producer)
        assert [await delivery for delivery in deliveries] == places
    found = [broker.records("t", partition) for partition in range(2)]
    assert [
        (number_of(found[place.partition][place.offset]), place.timestamp) for place in places
    ] == list(enumerate(times))
    for records in found:
        assert [number_of(record) for record in records] == sorted(
            {number_of(record) for record in records}
        )


async def test_a_lost_answer_doubles_nothing(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=2)
    async with Producer(
        broker.bootstrap_servers, batch_size=2_000, retry_backoff_ms=1, reconnect_backoff_ms=1
    ) as producer:
        await producer.partitions_for("t")
        for _ in range(3):
            broker.on(ApiKey.PRODUCE, drop_after(), times=1)
            deliveries = await producer.send_arrow(
                "t",
                pa.table(
                    {"value": numbered(2_000), "key": [b"%d" % (n % 50) for n in range(2_000)]}
                ),
            )
            async with asyncio.timeout(LIMIT_S):
                await deliveries.wait()
    assert sorted(number_of(record) for record in broker.records("t")) == sorted(
        [*range(2_000)] * 3
    )
    for partition in range(2):
        found = [number_of(record) for record in broker.records("t", partition)]
        third = len(found) // 3
        assert found == sorted(set(found)) * 3 and len(set(found)) == third


@pytest.mark.parametrize("seed", range(6))
async def test_under_trouble_nothing_is_lost_doubled_or_reordered(
    broker: EmbeddedCluster, where: str, seed: int
) -> None:
    rng = random.Random(seed)
    broker.create_topic("t", num_partitions=3, configs={"max.message.bytes": "900"})
    async with Producer(
        broker.bootstrap_servers,
        batch_size=1_500,
        buffer_memory=rng.choice([10_000, 1 << 20]),
        linger_ms=1,
        retry_backoff_ms=2,
        retry_backoff_max_ms=10,
        reconnect_backoff_ms=2,
        reconnect_backoff_max_ms=10,
        rng=rng,
        compression_type=rng.choice(["none", "zstd"]),
    ) as producer:
        deliveries: list[Any] = []
        while len(deliveries) < 1_500:
            trouble = rng.choice(
                [
                    drop_after(),
                    delay(0.01),
                    fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
                    fail(ErrorCode.NOT_ENOUGH_REPLICAS),
                ]
            )
            broker.on(ApiKey.PRODUCE, trouble, times=rng.randrange(1, 3))
            numbers = range(len(deliveries), len(deliveries) + rng.randrange(1, 400))
            values = [b"%06d" % number + rng.randbytes(15).hex().encode() for number in numbers]
            if rng.random() < 0.2:
                deliveries += [
                    await producer.send("t", value, b"%d" % (number % 20))
                    for number, value in zip(numbers, values, strict=True)
                ]
            else:
                keys = [b"%d" % (number % 20) for number in numbers]
                deliveries += await producer.send_arrow(
                    "t", pa.table({"value": values, "key": keys})
                )
        async with asyncio.timeout(LIMIT_S):
            places = [await delivery for delivery in deliveries]
        assert_nothing_kept(producer)
    found = [
        [number_of(record) for record in broker.records("t", partition)] for partition in range(3)
    ]
    assert all(numbers == sorted(set(numbers)) for numbers in found)
    assert [found[place.partition][place.offset] for place in places] == list(range(len(places)))
    assert sum(map(len, found)) == len(places)


@pytest.mark.parametrize("keyed", [False, True])
async def test_rows_that_the_broker_refuses_are_reported_by_their_number(
    broker: EmbeddedCluster, keyed: bool
) -> None:
    broker.create_topic("t", num_partitions=3)
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD, topic="t", partition=1), times=None)
    columns = {
        "value": numbered(1_000),
        **({"key": [b"%d" % number for number in range(1_000)]} if keyed else {}),
    }
    async with Producer(
        broker.bootstrap_servers, batch_size=1_000, enable_idempotence=False
    ) as producer:
        deliveries = await producer.send_arrow("t", pa.table(columns))
        with pytest.raises(BrokerError, match="INVALID_RECORD"):
            await deliveries
        failed = deliveries.exceptions()
        stored = {number_of(record) for record in broker.records("t")}
        assert stored and failed and set(failed) == set(range(1_000)) - stored
        assert all((deliveries[row].exception() is None) == (row in stored) for row in range(1_000))


async def test_cancelling_at_each_point_leaves_nothing_behind(
    broker: EmbeddedCluster, where: str
) -> None:
    broker.create_topic("t", num_partitions=2)
    keys = [b"%d" % number for number in range(200)]
    async with Producer(
        broker.bootstrap_servers, batch_size=300, buffer_memory=2_000, linger_ms=0
    ) as producer:

        async def scenario(number: int) -> None:
            topic = "t" if number % 2 else f"new-{number}"
            broker.on(ApiKey.PRODUCE, delay(0.001), times=2)
            values = [b"%06d-%d" % (row, number) + b"x" * 50 for row in range(200)]
            await (
                await producer.send_arrow(topic, pa.table({"value": values, "key": keys}))
            ).wait()

        async def check(number: int, cancelled: bool) -> None:
            await producer.flush()
            assert_nothing_kept(producer)

        assert await cancel_at_each_point(scenario, check) > 10
        for topic in broker.topics:
            stored = [record.value for record in broker.records(topic)]
            assert len(stored) == len(set(stored)), "a row is taken once or not at all"
        places = await (
            await producer.send_arrow("t", pa.table({"value": numbered(200), "key": keys}))
        )
        assert len(places) == 200


# -- the producer's state --------------------------------------------------------------------------


async def test_a_closed_producer_takes_nothing(broker: EmbeddedCluster, where: str) -> None:
    table = pa.table({"value": numbered(5_000)})
    producer = Producer(broker.bootstrap_servers, buffer_memory=40_000, batch_size=4_000)
    with pytest.raises(ProducerClosedError, match="not started"):
        await producer.send_arrow("t", table)
    await producer.start()
    await producer.partitions_for("t")
    broker.on(ApiKey.PRODUCE, hold(asyncio.Event()), times=None)
    waiting = asyncio.ensure_future(producer.send_arrow("t", table))
    await waits_for_memory(producer)
    await producer.close(timeout_ms=10)
    with pytest.raises(ProducerClosedError):
        await waiting
    with pytest.raises(ProducerClosedError):
        await producer.send_arrow("t", table)
    assert_nothing_kept(producer)


async def test_in_a_transaction(broker: EmbeddedCluster, where: str) -> None:
    broker.create_topic("t", num_partitions=3)
    table = pa.table(
        {"value": numbered(2_000), "key": [b"%d" % (number % 50) for number in range(2_000)]}
    )
    async with Producer(
        broker.bootstrap_servers, transactional_id="arrow", batch_size=2_000
    ) as producer:
        with pytest.raises(TransactionStateError):
            await producer.send_arrow("t", table)
        async with producer.transaction():
            await producer.send_arrow("t", table)
        await producer.begin_transaction()
        await producer.send_arrow("t", table)
        await producer.abort_transaction()
        with pytest.raises(TransactionStateError):
            await producer.send_arrow("t", table)
        # What was refused may not be missing from a transaction that is committed.
        await producer.begin_transaction()
        await producer.send_arrow("t", pa.table({"value": numbered(2), "partition": [0, 9]}))
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_arrow("t", table)
        assert_nothing_kept(producer)
    assert sorted(
        number_of(record) for record in broker.records("t", committed_only=True)
    ) == sorted([*range(2_000)] * 2)


@pytest.mark.virtual_time
async def test_memory_that_is_not_there_fails_the_transaction(broker: EmbeddedCluster) -> None:
    settings: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 4_000, "max_block_ms": 100}
    async with Producer(broker.bootstrap_servers, transactional_id="arrow", **settings) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"x")
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released), times=None)
        # Few rows, for which no thread is used.
        deliveries = await producer.send_arrow("t", pa.table({"value": [bytes(200)] * 500}))
        broker.clear_rules()
        released.set()
        with pytest.raises((AbortableTransactionError, BufferExhaustedError)):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert deliveries.done() and deliveries.exceptions()
    assert broker.records("t", committed_only=True) == []

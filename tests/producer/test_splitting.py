"""Batches that are too large for the topic, and batches that may grow because compression makes
them small.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import pytest

from aioprod import BrokerError, Delivery, ErrorCode, Producer, RecordMetadata, RecordTooLargeError
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, drop_after, fail
from tests.waiting import stored


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_batch_that_is_too_large_is_sent_in_parts(
    broker: EmbeddedCluster, idempotent: bool
) -> None:
    broker.create_topic("t", configs={"max.message.bytes": "500"})
    seen: list[int] = []
    async with Producer(
        broker.bootstrap_servers,
        batch_size=100_000,
        linger_ms=20,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=1,
    ) as producer:
        values = [b"%04d" % number * 5 for number in range(400)]
        deliveries = [
            await producer.send("t", value, headers=[("n", value)] if number % 3 else ())
            for number, value in enumerate(values)
        ]
        deliveries[7].add_done_callback(lambda delivery: seen.append(delivery.result().offset))
        deliveries[399].add_done_callback(lambda delivery: seen.append(delivery.result().offset))
        # Waiting before the split and after it.
        waiting = [asyncio.ensure_future(_wait(delivery)) for delivery in deliveries[:50]]
        assert [(await delivery).offset for delivery in deliveries] == list(range(400))
        assert [(await task).offset for task in waiting] == list(range(50))
        assert producer._pool.available == producer.config.buffer_memory
        assert producer.metrics()["batch-split-total"] > 0
    assert stored(broker) == values
    assert seen == [7, 399]
    assert [dict(record.headers) for record in broker.records("t")][:2] == [{}, {"n": values[1]}]


async def _wait(delivery: Delivery) -> RecordMetadata:
    return await delivery


async def test_the_number_of_splits_is_bounded_and_a_single_record_fails_by_name(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", configs={"max.message.bytes": "200"})
    async with Producer(
        broker.bootstrap_servers, batch_size=1 << 20, linger_ms=20, max_request_size=1 << 20
    ) as producer:
        deliveries = [
            await producer.send("t", bytes([65 + number % 26]) * (1_000 if number == 10 else 20))
            for number in range(64)
        ]
        async with asyncio.timeout(20):
            await producer.flush()
        for number, delivery in enumerate(deliveries):
            if number == 10:
                with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
                    await delivery
            else:
                await delivery
        requests = sum(seen.api_key == ApiKey.PRODUCE for seen in broker.requests)
        assert requests < 2 * 64 + 10, (
            "each split makes two of one, so there can't be more attempts than twice the records"
        )
        await producer.send_and_wait("t", b"after")
    assert len(stored(broker)) == 64, "63 of them, and the one after"


@pytest.mark.parametrize("seed", range(5))
async def test_splitting_under_trouble_loses_and_doubles_nothing(
    broker: EmbeddedCluster, seed: int
) -> None:
    rng = random.Random(seed)
    broker.create_topic("t", configs={"max.message.bytes": "300"})
    async with Producer(
        broker.bootstrap_servers,
        batch_size=1_200,
        linger_ms=1,
        retry_backoff_ms=2,
        retry_backoff_max_ms=10,
        reconnect_backoff_ms=2,
        reconnect_backoff_max_ms=10,
        rng=rng,
        compression_type=rng.choice(["none", "zstd"]),
    ) as producer:
        deliveries = []
        for number in range(600):
            if number % 100 == 0:
                trouble = rng.choice(
                    [
                        drop_after(),
                        delay(0.01),
                        fail(ErrorCode.NOT_LEADER_OR_FOLLOWER),
                        fail(ErrorCode.NOT_ENOUGH_REPLICAS),
                    ]
                )
                broker.on(ApiKey.PRODUCE, trouble, times=rng.randrange(1, 3))
            deliveries.append(
                await producer.send("t", b"%d-" % number + rng.randbytes(20).hex().encode())
            )
        async with asyncio.timeout(20):
            offsets = [(await delivery).offset for delivery in deliveries]
    assert [int((value or b"").split(b"-")[0]) for value in stored(broker)] == list(range(600))
    assert all(offset in (-1, number) for number, offset in enumerate(offsets))


async def test_a_split_is_logged_once(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", configs={"max.message.bytes": "500"})
    async with Producer(broker.bootstrap_servers, batch_size=5_000) as producer:
        for _ in range(5):
            for delivery in [await producer.send("t", b"x" * 100) for _ in range(40)]:
                await delivery
    assert (
        len([record for record in caplog.records if "too large; sending it in" in record.message])
        == 1
    )


async def test_batches_grow_where_compression_makes_them_small(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with Producer(
        broker.bootstrap_servers,
        batch_size=2_000,
        linger_ms=50,
        compression_type="zstd",
        buffer_memory=200_000,
    ) as producer:
        counts = []
        for _ in range(150):
            deliveries = [
                await producer.send("t", b"the same again and again " * 4) for _ in range(100)
            ]
            await producer.flush()
            counts.append(len({id(delivery.position[0]) for delivery in deliveries}))
            assert producer._pool.available == producer.config.buffer_memory
        assert counts[0] >= 5, (
            "nothing is known of the ratio at first: 100 records of 100 bytes are five "
            "batches of 2,000 bytes"
        )
        assert counts[-1] <= 3, "compressed they are far smaller, so more go into each"
        # Data that can't be compressed makes the estimate rise again, and no batch is larger than a
        # request may be.
        rng = random.Random(1)
        for delivery in [await producer.send("t", rng.randbytes(100)) for _ in range(200)]:
            await delivery
    assert broker.topics["t"].partitions[0].log.end_offset == 150 * 100 + 200


async def test_each_topic_has_its_own_codec(broker: EmbeddedCluster) -> None:
    codecs: dict[str, Any] = {"a": "zstd", "b": ("gzip", 9), "c": "none"}
    async with Producer(
        broker.bootstrap_servers, compression_type="lz4", topic_compression=codecs
    ) as producer:
        for topic in "abcd":
            await producer.send_and_wait(topic, b"x" * 500)
    found = {topic: broker.topics[topic].partitions[0].log._batches[0] for topic in "abcd"}
    assert {topic: batch[22] & 7 for topic, batch in found.items()} == {
        "a": 4,
        "b": 1,
        "c": 0,
        "d": 3,
    }


def test_orders_of_parts_lie_between_those_of_their_neighbors() -> None:
    orders: list[tuple[int, ...]] = [(1,), (2, 0), (2, 1, 0), (2, 1, 1), (3,)]
    assert all(before < after for before, after in itertools.pairwise(orders))


async def test_a_part_of_what_may_be_stored_whole_is_not_written_again_under_other_numbers(
    broker: EmbeddedCluster,
) -> None:
    """The answer to the whole batch is lost, then the broker calls it too large: the limit was
    lowered meanwhile.
    """
    async with Producer(
        broker.bootstrap_servers,
        batch_size=5_000,
        linger_ms=20,
        retry_backoff_ms=2,
        reconnect_backoff_ms=2,
    ) as producer:
        await producer.send_and_wait("t", b"first")
        broker.on(ApiKey.PRODUCE, drop_after())
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.MESSAGE_TOO_LARGE))
        values = [b"%d" % number for number in range(10)]
        for delivery in [await producer.send("t", value) for value in values]:
            with pytest.raises(BrokerError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
                await delivery
        await producer.send_and_wait("t", b"last")
        assert producer._pool.available == producer.config.buffer_memory
    assert stored(broker) == [b"first", *values, b"last"], (
        "each once, although the caller got no answer"
    )

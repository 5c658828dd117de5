"""Our producer with foreign brokers: librdkafka's mock cluster and franz-go's fake cluster.

librdkafka reads the records back: each acknowledged record is stored once, at its acknowledged
offset, and each partition keeps the order.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    Delivery,
    DeliveryTimeoutError,
    ErrorCode,
    KafkaError,
    Producer,
    RecordTooLargeError,
)
from aioprod.protocol.api_keys import ApiKey
from tests.interop.programs.foreign_cluster import ForeignCluster
from tests.interop.programs.kfake_cluster import KfakeCluster
from tests.interop.programs.librdkafka_mock import LibrdkafkaMock
from tests.interop.programs.reading import Stored, read_all
from tests.testing.bounded_producer import running

LIMIT_SECONDS = 20.0
COUNT = 300
PARTITIONS = 3
FAST: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size": 600,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
}


@asynccontextmanager
async def producer_of(cluster: ForeignCluster, **settings: Any) -> AsyncIterator[Producer]:
    """Create a topic ``t`` and start a producer with small batches and short backoffs."""
    await cluster.create_topic("t", PARTITIONS)
    if not cluster.checks_sequences:
        # Without sequence checks, retries keep the order only with one request in flight.
        settings = {"max_in_flight_requests_per_connection": 1, **settings}
    async with running(
        Producer(cluster.bootstrap_servers, **{**FAST, **settings}), LIMIT_SECONDS
    ) as producer:
        yield producer


def value(number: int) -> bytes:
    return b"%06d" % number + b"." * 40


async def send(producer: Producer, first: int, count: int) -> list[Delivery]:
    """Send numbers to all partitions in turn."""
    return [
        await producer.send("t", value(number), key=b"k", partition=number % PARTITIONS)
        for number in range(first, first + count)
    ]


async def acknowledged(deliveries: Sequence[Delivery], first: int = 0) -> set[Stored]:
    """Return the records as their acknowledgements describe them."""
    found = [await delivery for delivery in deliveries]
    return {
        Stored(each.partition, each.offset, b"k", value(number))
        for number, each in enumerate(found, first)
    }


async def stored(cluster: ForeignCluster) -> list[Stored]:
    return await read_all(cluster.bootstrap_servers, "t", PARTITIONS)


def assert_once_and_in_order(found: list[Stored], expected: set[Stored]) -> None:
    assert set(found) == expected and len(found) == len(expected)
    for partition in range(PARTITIONS):
        of_it = [record for record in found if record.partition == partition]
        assert [record.offset for record in of_it] == list(range(len(of_it)))
        assert [record.value for record in of_it] == sorted(record.value or b"" for record in of_it)


# -- without faults ----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_each_codec_is_read_by_librdkafka(cluster: ForeignCluster, codec: str) -> None:
    async with producer_of(cluster, compression_type=codec) as producer:
        expected = await acknowledged(await send(producer, 0, COUNT))
    assert_once_and_in_order(await stored(cluster), expected)


async def test_acks_1(cluster: ForeignCluster) -> None:
    async with producer_of(cluster, acks=1, enable_idempotence=False) as producer:
        expected = await acknowledged(await send(producer, 0, COUNT))
    assert_once_and_in_order(await stored(cluster), expected)


@pytest.mark.interop
async def test_no_acknowledgement(fake: KfakeCluster) -> None:
    """Not with librdkafka's mock, which sends responses nevertheless; these end the connection."""
    async with producer_of(fake, acks=0, enable_idempotence=False) as producer:
        for delivery in await send(producer, 0, COUNT):
            await delivery
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(found := await stored(fake)) < COUNT and time.monotonic() < deadline:
        pass
    assert sorted(record.value or b"" for record in found) == [
        value(number) for number in range(COUNT)
    ]


async def test_keys_choose_the_partition(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        deliveries = [
            await producer.send("t", value(number), key=b"key %d" % (number % 7))
            for number in range(COUNT)
        ]
        places = [(await delivery).partition for delivery in deliveries]
    assert len(set(places)) == PARTITIONS
    assert {(b"key %d" % (number % 7), place) for number, place in enumerate(places)} == {
        (record.key, record.partition) for record in await stored(cluster)
    }


# -- requests that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ],
)
async def test_refused_produce_requests(
    cluster: ForeignCluster, code: ErrorCode, times: int
) -> None:
    async with producer_of(cluster) as producer:
        before = await acknowledged(await send(producer, 0, PARTITIONS))
        await cluster.fail(ApiKey.PRODUCE, code, times)
        expected = before | await acknowledged(await send(producer, PARTITIONS, COUNT), PARTITIONS)
    assert_once_and_in_order(await stored(cluster), expected)


@pytest.mark.parametrize(
    "key", [ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID, ApiKey.API_VERSIONS, ApiKey.PRODUCE]
)
async def test_lost_connections(cluster: ForeignCluster, key: ApiKey) -> None:
    async with producer_of(cluster) as producer:
        await cluster.cut(key, 3)
        expected = await acknowledged(await send(producer, 0, COUNT))
    assert_once_and_in_order(await stored(cluster), expected)


@pytest.mark.interop
@pytest.mark.parametrize(
    "code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
async def test_errors_of_stored_records(fake: KfakeCluster, code: ErrorCode) -> None:
    async with producer_of(fake) as producer:
        await fake.fail(ApiKey.PRODUCE, code, 2)
        expected = await acknowledged(await send(producer, 0, COUNT))
    assert_once_and_in_order(await stored(fake), expected)


async def test_a_refused_batch_leaves_no_hole(cluster: ForeignCluster) -> None:
    async with producer_of(cluster, batch_size=16_384) as producer:
        await (await producer.send("t", value(0), key=b"k", partition=0))
        await cluster.fail(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE)
        with pytest.raises(RecordTooLargeError):
            await producer.send_and_wait("t", b"refused", partition=0)
        for number in (1, 2):
            await (await producer.send("t", value(number), key=b"k", partition=0))
    assert [record.value for record in await stored(cluster)] == [value(0), value(1), value(2)]


@pytest.mark.interop
async def test_requests_without_a_response(fake: KfakeCluster) -> None:
    async with producer_of(fake, request_timeout_ms=200) as producer:
        before = await acknowledged(await send(producer, 0, PARTITIONS))
        await fake.hang(ApiKey.PRODUCE, 2)
        expected = before | await acknowledged(await send(producer, PARTITIONS, COUNT), PARTITIONS)
    assert_once_and_in_order(await stored(fake), expected)


# -- leaders and nodes -----------------------------------------------------------------------------


async def test_leaders_move_under_load(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        deliveries = []
        for turn in range(6):
            deliveries += await send(producer, turn * 60, 60)
            await cluster.move_leader("t", turn % PARTITIONS, (turn + 1) % 3 + 1)
            await asyncio.sleep(0)
        expected = await acknowledged(deliveries)
    assert_once_and_in_order(await stored(cluster), expected)


async def test_a_node_stops_and_restarts(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        expected = await acknowledged(await send(producer, 0, 60))
        await cluster.stop_node(2)
        await cluster.move_leader("t", 1, 3)
        expected |= await acknowledged(await send(producer, 60, 60), 60)
        await cluster.start_node(2)
        await cluster.move_leader("t", 1, 2)
        expected |= await acknowledged(await send(producer, 120, 60), 120)
    assert_once_and_in_order(await stored(cluster), expected)


async def test_a_cluster_that_refuses_all_records_causes_timeouts(
    cluster: ForeignCluster,
) -> None:
    async with producer_of(cluster, delivery_timeout_ms=400, request_timeout_ms=300) as producer:
        expected = await acknowledged(await send(producer, 0, PARTITIONS))
        await cluster.fail(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, 1_000)
        started = time.monotonic()
        outcomes = await asyncio.gather(
            *await send(producer, PARTITIONS, 30), return_exceptions=True
        )
        assert all(isinstance(outcome, DeliveryTimeoutError) for outcome in outcomes)
        assert 0.3 < time.monotonic() - started < 1.5
        await producer.close(1)
    assert_once_and_in_order(await stored(cluster), expected)


# -- versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("highest", [3, 7, 8, 9])
async def test_older_versions_of_produce(mock: LibrdkafkaMock, highest: int) -> None:
    await mock.limit_versions(ApiKey.PRODUCE, 0, highest)
    async with producer_of(mock) as producer:
        expected = await acknowledged(await send(producer, 0, COUNT))
    assert_once_and_in_order(await stored(mock), expected)


async def test_a_broker_that_is_too_old_is_named(mock: LibrdkafkaMock) -> None:
    await mock.limit_versions(ApiKey.PRODUCE, 0, 2)
    async with producer_of(mock) as producer:
        with pytest.raises(KafkaError, match=r"(?i)produce.*version"):
            await producer.send_and_wait("t", b"x")

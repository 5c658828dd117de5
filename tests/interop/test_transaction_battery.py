"""Our transactions with foreign brokers: librdkafka's mock cluster and franz-go's fake cluster.

librdkafka reads the records back: with read_committed it sees all records of a committed
transaction, once and in order, and none of an aborted one. (The mock shows those too, as it does
not implement aborts.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    AbortableTransactionError,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from tests.interop.programs.foreign_cluster import ForeignCluster
from tests.interop.programs.kfake_cluster import KfakeCluster
from tests.interop.programs.librdkafka_mock import LibrdkafkaMock
from tests.interop.programs.reading import committed_offset, read_all
from tests.testing.bounded_producer import running

LIMIT_SECONDS = 20.0
PARTITIONS = 3
RECORDS = 30
TRANSACTIONS = 4
SOURCE_PARTITION = TopicPartition("source", 0)
FAST: dict[str, Any] = {
    "linger_ms": 0,
    "batch_size": 200,
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "transaction_timeout_ms": 10_000,
}
STEPS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
]
OFFSET_STEPS = [ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT]
RETRIABLE = {
    ApiKey.FIND_COORDINATOR: [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
    ApiKey.INIT_PRODUCER_ID: [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
    ApiKey.PRODUCE: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS],
    ApiKey.END_TXN: [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR],
    ApiKey.TXN_OFFSET_COMMIT: [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR],
}
RETRIABLE_CASES = [(key, code) for key, codes in RETRIABLE.items() for code in codes]


@asynccontextmanager
async def producer_of(cluster: ForeignCluster) -> AsyncIterator[Producer]:
    """Create topics ``t`` and ``source`` and start a transactional producer."""
    await cluster.create_topic("t", PARTITIONS)
    await cluster.create_topic("source", 1)
    async with running(
        Producer(cluster.bootstrap_servers, transactional_id="x", **FAST), LIMIT_SECONDS
    ) as producer:
        yield producer


def value(transaction: int, number: int) -> bytes:
    return b"%d-%03d" % (transaction, number)


async def run(producer: Producer, transaction: int, *, offset: int | None = None) -> None:
    """Run a transaction; abort those with odd numbers after their records are stored."""
    await producer.begin_transaction()
    for number in range(RECORDS):
        await producer.send("t", value(transaction, number), partition=number % PARTITIONS)
    if offset is not None:
        await producer.send_offsets_to_transaction({SOURCE_PARTITION: offset}, "g")
    if transaction % 2:
        await producer.flush()
        await producer.abort_transaction()
    else:
        await producer.commit_transaction()


async def assert_complete(cluster: ForeignCluster, transactions: range) -> None:
    found = await read_all(cluster.bootstrap_servers, "t", PARTITIONS, committed_only=True)
    for partition in range(PARTITIONS):
        assert [record.value for record in found if record.partition == partition] == [
            value(transaction, number)
            for transaction in transactions
            if transaction % 2 == 0 or not cluster.ends_transactions
            for number in range(RECORDS)
            if number % PARTITIONS == partition
        ]


async def assert_committed(cluster: ForeignCluster, offset: int) -> None:
    if cluster.ends_transactions:
        assert await committed_offset(cluster.bootstrap_servers, "g", SOURCE_PARTITION) == offset


async def test_commits_and_aborts(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        for transaction in range(TRANSACTIONS):
            await run(producer, transaction)
    await assert_complete(cluster, range(TRANSACTIONS))
    all_records = await read_all(cluster.bootstrap_servers, "t", PARTITIONS)
    assert len(all_records) == RECORDS * TRANSACTIONS


async def test_offsets_of_a_group(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        await run(producer, 0, offset=7)
        await run(producer, 1, offset=9)
    await assert_committed(cluster, 7)


@pytest.mark.parametrize(
    ("key", "code"),
    RETRIABLE_CASES,
    ids=[f"{key.name}-{code.name}" for key, code in RETRIABLE_CASES],
)
async def test_retriable_errors(cluster: ForeignCluster, key: ApiKey, code: ErrorCode) -> None:
    if key is ApiKey.PRODUCE:
        async with producer_of(cluster) as producer:
            await run(producer, 0)
            await cluster.fail(key, code, 2)
            for transaction in range(1, TRANSACTIONS):
                await run(producer, transaction)
    else:
        await cluster.fail(key, code, 2)
        async with producer_of(cluster) as producer:
            for transaction in range(TRANSACTIONS):
                await run(producer, transaction, offset=transaction + 1)
        await assert_committed(cluster, TRANSACTIONS - 1)
    await assert_complete(cluster, range(TRANSACTIONS))


@pytest.mark.parametrize("key", [*STEPS, *OFFSET_STEPS])
async def test_lost_connections(cluster: ForeignCluster, key: ApiKey) -> None:
    async with producer_of(cluster) as producer:
        await cluster.cut(key, 2)
        for transaction in range(TRANSACTIONS):
            await run(producer, transaction, offset=transaction + 1)
    await assert_complete(cluster, range(TRANSACTIONS))
    await assert_committed(cluster, TRANSACTIONS - 1)


async def test_coordinators_move(cluster: ForeignCluster) -> None:
    async with producer_of(cluster) as producer:
        for transaction in range(TRANSACTIONS):
            await producer.begin_transaction()
            for number in range(RECORDS):
                await producer.send("t", value(transaction, number), partition=number % PARTITIONS)
            await producer.send_offsets_to_transaction({SOURCE_PARTITION: transaction + 1}, "g")
            await cluster.move_coordinator("transaction", "x")
            await producer.flush()
            await (
                producer.abort_transaction() if transaction % 2 else producer.commit_transaction()
            )
            await cluster.move_coordinator("group", "g")
    await assert_complete(cluster, range(TRANSACTIONS))


@pytest.mark.interop
async def test_a_second_producer_fences_the_first(fake: KfakeCluster) -> None:
    async with producer_of(fake) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"first", partition=0)
        second = Producer(fake.bootstrap_servers, transactional_id="x", **FAST)
        try:
            await second.start()
            await run(second, 0)
            with pytest.raises(ProducerFencedError):
                await first.commit_transaction()
        finally:
            await second.close(1)
    await assert_complete(fake, range(1))


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD])
async def test_a_refused_batch_requires_an_abort(cluster: ForeignCluster, code: ErrorCode) -> None:
    async with producer_of(cluster) as producer:
        await run(producer, 0)
        await producer.begin_transaction()
        await cluster.fail(ApiKey.PRODUCE, code)
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused", partition=0)
        with pytest.raises(AbortableTransactionError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await run(producer, 2)
    await assert_complete(cluster, range(0, 3, 2))


async def test_late_acknowledgements(mock: LibrdkafkaMock) -> None:
    """The mock stores a batch, but responds after the request timeout: the retry is stored once.

    With one request in flight, as the mock recognizes only the last batch of a partition. (Kafka
    recognizes the last five.)
    """
    async with producer_of(mock) as producer:
        await run(producer, 0)
    late = Producer(
        mock.bootstrap_servers,
        transactional_id="x",
        **{**FAST, "request_timeout_ms": 150, "max_in_flight_requests_per_connection": 1},
    )
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await late.start()
            await late.begin_transaction()
            for number in range(RECORDS):
                await late.send("t", value(2, number), partition=number % PARTITIONS)
            await asyncio.sleep(0)
            for node in (1, 2, 3):
                await mock.delay_responses(node, 200)
            await asyncio.sleep(0.3)
            for node in (1, 2, 3):
                await mock.delay_responses(node, 0)
            await late.commit_transaction()
    finally:
        await late.close(1)
    await assert_complete(mock, range(0, 3, 2))

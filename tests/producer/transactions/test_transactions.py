"""Whole transactions, against the embedded broker in both protocols and real Kafka 4.4 and 3.9;
read back by other clients.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import TopicPartition as ConfluentPartition

from aioprod import BrokerError, KafkaError, Producer
from aioprod.cluster.client import ClusterClient
from aioprod.errors import AbortableTransactionError, ProducerFencedError, TransactionStateError
from aioprod.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aioprod.testing import EmbeddedCluster
from aioprod.types import TopicPartition

LIMIT_S = 30.0
_numbers = itertools.count()


@pytest.fixture(
    params=[
        "embedded v1",
        "embedded v2",
        pytest.param("4.4", marks=pytest.mark.kafka),
        pytest.param("3.9", marks=pytest.mark.kafka),
    ]
)
async def servers(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Bootstrap servers; Kafka 3.9 and the first of the embedded brokers know the first transaction
    protocol only.
    """
    if request.param.startswith("embedded"):
        async with EmbeddedCluster(
            transaction_version=0 if request.param.endswith("v1") else 2
        ) as broker:
            yield broker.bootstrap_servers
    else:
        yield request.getfixturevalue("kafka" if request.param == "4.4" else "kafka_3_9")


@pytest.fixture
def name() -> str:
    """A name that no other test, and no other run, uses: for topics, groups and transactional
    ids.
    """
    return f"transactions-{os.getpid()}-{time.time_ns()}-{next(_numbers)}"


async def read_with_aiokafka(
    servers: str, topic: str, count: int, *, committed: bool = True
) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        consumer.assign([AiokafkaPartition(topic, 0)])
        found: list[bytes | None] = []
        async with asyncio.timeout(LIMIT_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


def read_with_confluent(servers: str, topic: str) -> list[bytes | None]:
    """All that there is to read."""
    settings = {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 10,
        "enable.auto.commit": False,
    }
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", **settings})
    try:
        consumer.assign([ConfluentPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[bytes | None] = []
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message.value())
            elif error.code() == ConfluentError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
        raise AssertionError("no end of the partition")
    finally:
        consumer.close()


def committed_offset(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        [place] = consumer.committed([ConfluentPartition(topic, 0)], timeout=LIMIT_S)
        return int(place.offset)
    finally:
        consumer.close()


async def offsets_at_end(servers: str, topic: str) -> tuple[int, int]:
    """Return the end offset for readers of committed records, and that for all readers."""
    async with ClusterClient(servers) as client:
        leader = (await client.refresh_topics([topic])).topics[topic].partitions[0].leader
        found = []
        for isolation_level in (1, 0):
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])],
            )
            found.append((await client.request(request, leader)).topics[0].partitions[0].offset)
        return found[0], found[1]


async def test_only_what_is_committed_is_seen(servers: str, name: str) -> None:
    async with Producer(servers, transactional_id=name, linger_ms=0, batch_size=200) as producer:
        async with producer.transaction():
            for number in range(50):
                await producer.send(name, b"first %d" % number)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                for number in range(20):
                    await producer.send(name, b"aborted %d" % number)
                await producer.flush()
                raise ZeroDivisionError
        async with producer.transaction():
            await producer.send_and_wait(name, b"last")
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"open")
        expected = [b"first %d" % number for number in range(50)] + [b"last"]
        assert await read_with_aiokafka(servers, name, 51) == expected
        assert await asyncio.to_thread(read_with_confluent, servers, name) == expected
        everything = await read_with_aiokafka(servers, name, 72, committed=False)
        assert everything == expected[:50] + [b"aborted %d" % number for number in range(20)] + [
            b"last",
            b"open",
        ]
        await producer.commit_transaction()
    assert await asyncio.to_thread(read_with_confluent, servers, name) == [*expected, b"open"]


async def test_offsets_are_committed_with_the_records_or_not_at_all(
    servers: str, name: str
) -> None:
    place = TopicPartition(name, 0)
    async with Producer(servers, transactional_id=name) as producer:
        async with producer.transaction():
            await producer.send(name, b"result")
            await producer.send_offsets_to_transaction({place: 7}, name)
        assert await asyncio.to_thread(committed_offset, servers, name, name) == 7
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: 9}, name)
        await producer.abort_transaction()
        assert await asyncio.to_thread(committed_offset, servers, name, name) == 7
        # Offsets alone are a transaction too.
        async with producer.transaction():
            await producer.send_offsets_to_transaction({place: 11}, name)
    assert await asyncio.to_thread(committed_offset, servers, name, name) == 11


async def test_a_second_producer_fences_the_first(servers: str, name: str) -> None:
    async with Producer(servers, transactional_id=name) as old:
        await old.begin_transaction()
        await old.send_and_wait(name, b"old")
        async with Producer(servers, transactional_id=name) as new:
            async with new.transaction():
                await new.send(name, b"new")
            with pytest.raises(BrokerError, match="INVALID_PRODUCER_EPOCH"):
                await old.send_and_wait(name, b"too late")
            with pytest.raises(AbortableTransactionError, match="INVALID_PRODUCER_EPOCH"):
                await old.commit_transaction()
            with pytest.raises(ProducerFencedError, match="another producer"):
                await old.abort_transaction()
            for call in (old.begin_transaction, old.commit_transaction):
                with pytest.raises(ProducerFencedError):
                    await call()
            with pytest.raises(ProducerFencedError):
                await old.send(name, b"still too late")
            async with new.transaction():
                await new.send(name, b"new again")
    assert await asyncio.to_thread(read_with_confluent, servers, name) == [b"new", b"new again"]


async def test_a_crashed_producers_transaction_is_aborted_by_its_successor(
    servers: str, name: str
) -> None:
    crashed = Producer(servers, transactional_id=name)
    await crashed.start()
    await crashed.begin_transaction()
    await crashed.send_and_wait(name, b"half done")
    await crashed.close(timeout_ms=0)
    async with Producer(servers, transactional_id=name) as successor:
        async with successor.transaction():
            await successor.send(name, b"whole")
    assert await asyncio.to_thread(read_with_confluent, servers, name) == [b"whole"]


async def test_a_transaction_left_open_is_aborted_at_close(servers: str, name: str) -> None:
    async with Producer(servers, transactional_id=name) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"left open")
    last_stable, end = await offsets_at_end(servers, name)
    assert last_stable == end == 2, "a record and the marker that ends it"
    assert await asyncio.to_thread(read_with_confluent, servers, name) == []


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_an_empty_transaction(servers: str, name: str, end: str) -> None:
    async with Producer(servers, transactional_id=name) as producer:
        for _ in range(3):
            await producer.begin_transaction()
            await (
                producer.commit_transaction() if end == "commit" else producer.abort_transaction()
            )
        async with producer.transaction():
            await producer.send(name, b"x")
    assert await read_with_aiokafka(servers, name, 1) == [b"x"]


async def test_many_transactions_in_a_row(servers: str, name: str) -> None:
    """The coordinator is still ending one when the next begins: no error, no long pause."""
    expected = []
    async with Producer(servers, transactional_id=name) as producer:
        for number in range(30):
            await producer.begin_transaction()
            await producer.send(name, b"%d" % number)
            if number % 3:
                await producer.commit_transaction()
                expected.append(b"%d" % number)
            else:
                await producer.abort_transaction()
    assert await asyncio.to_thread(read_with_confluent, servers, name) == expected


async def test_sends_outside_of_a_transaction_are_refused(servers: str, name: str) -> None:
    async with Producer(servers, transactional_id=name) as producer:
        with pytest.raises(
            TransactionStateError, match=r"send\(\) in state 'ready'.*begin_transaction\(\)"
        ):
            await producer.send(name, b"x")
        async with producer.transaction():
            await producer.send(name, b"x")
        with pytest.raises(TransactionStateError, match=r"begin_transaction\(\)"):
            await producer.send(name, b"x")
    async with Producer(servers) as producer:
        with pytest.raises(TransactionStateError, match="transactional_id is not set"):
            await producer.begin_transaction()


async def test_a_transaction_that_is_open_for_too_long(
    servers: str, name: str, request: pytest.FixtureRequest
) -> None:
    """The coordinator aborts it. In the second protocol the producer goes on after an abort; in the
    first it is fenced.
    """
    first_protocol = request.node.callspec.params["servers"] in ("embedded v1", "3.9")
    # Not shorter: on a busy machine the record itself would come too late.
    async with Producer(servers, transactional_id=name, transaction_timeout_ms=1_000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(name, b"late")
        async with asyncio.timeout(LIMIT_S):
            while (ends := await offsets_at_end(servers, name))[0] != ends[1]:  # noqa: ASYNC110
                # Real brokers check for expired transactions every ten seconds.
                await asyncio.sleep(0.1)
        with pytest.raises(KafkaError) as caught:
            await producer.commit_transaction()
        assert "transaction_timeout_ms=1000" in str(caught.value)
        if first_protocol:
            assert isinstance(caught.value, ProducerFencedError)
        else:
            assert isinstance(caught.value, AbortableTransactionError)
            await producer.abort_transaction()
            # A record under the old epoch is refused as well.
            async with producer.transaction():
                await producer.send_and_wait(name, b"in time")
    assert await asyncio.to_thread(read_with_confluent, servers, name) == (
        [] if first_protocol else [b"in time"]
    )


async def test_five_hundred_tasks_in_one_transaction(servers: str, name: str) -> None:
    async with Producer(servers, transactional_id=name, linger_ms=1) as producer:
        async with producer.transaction():
            await asyncio.gather(
                *(producer.send_and_wait(name, b"%d" % number) for number in range(500))
            )
    assert sorted(
        await asyncio.to_thread(read_with_confluent, servers, name), key=lambda v: int(v or 0)
    ) == [b"%d" % number for number in range(500)]


async def test_a_record_of_many_that_is_refused_is_not_left_out_of_a_commit(
    servers: str, name: str
) -> None:
    """The error is in the record's delivery, and the application need not look there: the
    transaction has failed.
    """
    async with Producer(servers, transactional_id=name) as producer:
        await producer.begin_transaction()
        deliveries = await producer.send_many(name, [b"good", "no bytes"])  # type: ignore[list-item]
        assert set(deliveries.exceptions()) == {1}
        for refused in (producer.send_many(name, [b"too late"]), producer.commit_transaction()):
            with pytest.raises(
                AbortableTransactionError, match=f"topic {name!r}: a record was not written"
            ):
                await refused
        await producer.abort_transaction()
    assert await asyncio.to_thread(read_with_confluent, servers, name) == []

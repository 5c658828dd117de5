"""Consume, transform, produce by clients that nobody here wrote: offsets go with the records in
transactions, of which every third is aborted.

Answers to EndTxn are lost meanwhile. Each record of the source comes out once, in the order of its
partition.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from aioprod import ErrorCode
from aioprod import Producer as OurProducer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, drop_after, fail
from aioprod.types import TopicPartition as Place

with warnings.catch_warnings():
    warnings.simplefilter(
        "ignore", DeprecationWarning
    )  # it reads its resources in a way that Python gives up
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as KafkaPythonPartition

LIMIT_S = 20.0
PARTITIONS = 3
COUNT = 600
PER_TRANSACTION = 50
Chain = Callable[[str], Awaitable[None]]


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.judges), 2])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Three nodes of either transaction protocol, whose topic ``source`` has numbers, some of them
    in an aborted transaction.
    """
    async with EmbeddedCluster(nodes=3, transaction_version=request.param) as running:
        for topic in ("source", "copy"):
            running.create_topic(topic, PARTITIONS)
        async with OurProducer(
            running.bootstrap_servers, transactional_id="first", batch_size=500
        ) as producer:
            for part in range(4):
                await producer.begin_transaction()
                for number in range(part * COUNT // 4, (part + 1) * COUNT // 4):
                    await producer.send("source", b"%d" % number, partition=number % PARTITIONS)
                await producer.commit_transaction()
                await producer.begin_transaction()
                await producer.send_and_wait("source", b"aborted", partition=part % PARTITIONS)
                await producer.abort_transaction()
        yield running


async def aiokafka_chain(servers: str) -> None:
    consumer = AIOKafkaConsumer(
        "source",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        heartbeat_interval_ms=50,
        fetch_max_wait_ms=50,
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="x", linger_ms=1)
    await consumer.start()
    await producer.start()
    try:
        done = transactions = 0
        while done < COUNT:
            found = await consumer.getmany(timeout_ms=100, max_records=PER_TRANSACTION)
            records = [record for batch in found.values() for record in batch]
            if not records:
                continue
            transactions += 1
            await producer.begin_transaction()
            for record in records:
                await producer.send("copy", record.value, partition=record.partition)
            await producer.send_offsets_to_transaction(
                {place: batch[-1].offset + 1 for place, batch in found.items() if batch}, "g"
            )
            if transactions % 3 == 2:
                await producer.flush()
                await producer.abort_transaction()
                for place, batch in found.items():
                    consumer.seek(place, batch[0].offset)
            else:
                await producer.commit_transaction()
                done += len(records)
    finally:
        await producer.stop()
        await consumer.stop()


def confluent_chain(servers: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "heartbeat.interval.ms": 50,
            "session.timeout.ms": 6_000,
            "log_level": 0,
        }
    )
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": "x", "linger.ms": 1, "log_level": 0}
    )
    producer.init_transactions(LIMIT_S)
    consumer.subscribe(["source"])
    try:
        done = transactions = 0
        while done < COUNT:
            messages = consumer.consume(PER_TRANSACTION, 0.1)
            if not messages:
                continue
            transactions += 1
            producer.begin_transaction()
            for message in messages:
                assert message.error() is None
                producer.produce("copy", message.value(), partition=message.partition() or 0)
            positions = [
                position
                for position in consumer.position(consumer.assignment())
                if position.offset >= 0
            ]
            producer.send_offsets_to_transaction(
                positions, consumer.consumer_group_metadata(), LIMIT_S
            )
            if transactions % 3 == 2:
                producer.flush(LIMIT_S)
                producer.abort_transaction(LIMIT_S)
                for partition in {message.partition() for message in messages}:
                    first = min(
                        message.offset() or 0
                        for message in messages
                        if message.partition() == partition
                    )
                    consumer.seek(TopicPartition("source", partition or 0, first))
            else:
                producer.commit_transaction(LIMIT_S)
                done += len(messages)
    finally:
        consumer.close()


def kafka_python_chain(servers: str) -> None:
    consumer = KafkaConsumer(
        "source",
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        heartbeat_interval_ms=50,
        fetch_max_wait_ms=50,
    )
    assert consumer.partitions_for_topic(
        "source"
    )  # without this it may assign itself nothing when it joins, and believe that it has all
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id="x")
    try:
        producer.init_transactions()
        done = transactions = 0
        while done < COUNT:
            found = consumer.poll(timeout_ms=100, max_records=PER_TRANSACTION)
            records = [record for batch in found.values() for record in batch]
            if not records:
                continue
            transactions += 1
            producer.begin_transaction()
            for record in records:
                producer.send("copy", record.value, partition=record.partition)
            offsets = {
                place: OffsetAndMetadata(batch[-1].offset + 1, "", -1)
                for place, batch in found.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if transactions % 3 == 2:
                producer.flush(LIMIT_S)
                producer.abort_transaction()
                for place, batch in found.items():
                    consumer.seek(KafkaPythonPartition("source", place.partition), batch[0].offset)
            else:
                producer.commit_transaction()
                done += len(records)
    finally:
        producer.close(LIMIT_S)
        consumer.close()
        gc.collect()  # for the sockets that it leaves open


async def in_thread(chain: Callable[[str], None], servers: str) -> None:
    await asyncio.to_thread(chain, servers)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # kafka-python does not close all its sockets
@pytest.mark.parametrize("client", ["aiokafka", "confluent", "kafka_python"])
async def test_each_record_is_copied_once(cluster: EmbeddedCluster, client: str) -> None:
    # No lost answers of Produce: a connection that ends under aiokafka's FindCoordinator ends its
    # producer.
    cluster.on(ApiKey.END_TXN, drop_after(), times=2)
    cluster.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with asyncio.timeout(LIMIT_S):
        if client == "aiokafka":
            await aiokafka_chain(cluster.bootstrap_servers)
        else:
            await in_thread(
                confluent_chain if client == "confluent" else kafka_python_chain,
                cluster.bootstrap_servers,
            )
    for partition in range(PARTITIONS):
        copied = [
            record.value for record in cluster.records("copy", partition, committed_only=True)
        ]
        assert copied == [b"%d" % number for number in range(partition, COUNT, PARTITIONS)]
    committed = cluster.committed_offsets("g")
    assert committed.keys() <= {Place("source", index) for index in range(PARTITIONS)}
    everything = cluster.records("copy")
    assert len(everything) > COUNT, "no transaction was aborted"

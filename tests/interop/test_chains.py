"""Foreign clients consume, transform and produce: transactions contain the records and the offsets,
and every third is aborted.

Responses to EndTxn are lost. Each record of the source is copied once, in the order of its
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
from aioprod.types import TopicPartition as OurTopicPartition

with warnings.catch_warnings():
    # kafka-python uses a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as KafkaPythonPartition

LIMIT_S = 20.0
PARTITIONS = 3
COUNT = 600
PER_TRANSACTION = 50
Chain = Callable[[str], Awaitable[None]]


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.interop), 2])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """Run three nodes with either transaction protocol. The topic ``source`` has numbers, and
    records of aborted transactions.
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
                {tp: batch[-1].offset + 1 for tp, batch in found.items() if batch},
                "g",
            )
            if transactions % 3 == 2:
                await producer.flush()
                await producer.abort_transaction()
                for tp, batch in found.items():
                    consumer.seek(tp, batch[0].offset)
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
    # Without metadata the consumer may join the group and assign itself no partitions.
    assert consumer.partitions_for_topic("source")
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
                tp: OffsetAndMetadata(batch[-1].offset + 1, "", -1) for tp, batch in found.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if transactions % 3 == 2:
                producer.flush(LIMIT_S)
                producer.abort_transaction()
                for tp, batch in found.items():
                    consumer.seek(KafkaPythonPartition("source", tp.partition), batch[0].offset)
            else:
                producer.commit_transaction()
                done += len(records)
    finally:
        producer.close(LIMIT_S)
        consumer.close()
        gc.collect()  # closes sockets that it leaves open


async def run_in_thread(chain: Callable[[str], None], servers: str) -> None:
    await asyncio.to_thread(chain, servers)


# kafka-python does not close all of its sockets.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("client", ["aiokafka", "confluent", "kafka_python"])
async def test_each_record_is_copied_once(cluster: EmbeddedCluster, client: str) -> None:
    # Produce responses are not lost, as aiokafka's producer fails if the connection ends during
    # FindCoordinator.
    cluster.on(ApiKey.END_TXN, drop_after(), times=2)
    cluster.on(ApiKey.TXN_OFFSET_COMMIT, fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with asyncio.timeout(LIMIT_S):
        if client == "aiokafka":
            await aiokafka_chain(cluster.bootstrap_servers)
        else:
            await run_in_thread(
                confluent_chain if client == "confluent" else kafka_python_chain,
                cluster.bootstrap_servers,
            )
    for partition in range(PARTITIONS):
        copied = [
            record.value for record in cluster.records("copy", partition, committed_only=True)
        ]
        assert copied == [b"%d" % number for number in range(partition, COUNT, PARTITIONS)]
    committed = cluster.committed_offsets("g")
    assert committed.keys() <= {OurTopicPartition("source", index) for index in range(PARTITIONS)}
    everything = cluster.records("copy")
    assert len(everything) > COUNT, "no transaction was aborted"

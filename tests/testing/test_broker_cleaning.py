"""Retention and compaction on demand: what stays, and that readers of several clients agree."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ForeignPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from aioprod import Admin, BrokerError, Consumer, ErrorCode, Producer, TopicPartition
from aioprod.errors import KafkaError
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from aioprod.protocol.record_batch import DELETE_HORIZON
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.testing.real_kafka import RealKafka
from tests.testing.new_topics import create_topics_with_leaders
from tests.testing.raw_client import RawClient, fetch_request

Pair = tuple[bytes | None, bytes | None]
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
T0 = TopicPartition("t", 0)


def keyed_batch(*records: Pair, timestamp: int = NOW_MS, codec: int = 0) -> bytes:
    """Build a batch with aiokafka's code."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for index, (key, value) in enumerate(records):
        builder.append(index, timestamp + index, key, value, [("h", b"x")])
    return bytes(cast("bytearray", builder.build()))


async def store(
    broker: EmbeddedCluster, *batches: bytes, configs: dict[str, str | None] | None = None
) -> RawClient:
    broker.create_topic("t", configs={"cleanup.policy": "compact", **(configs or {})})
    async with RawClient(broker.bootstrap_servers) as client:
        for batch in batches:
            assert (await client.produce("t", batch)).error_code == 0
    return client


def contents(broker: EmbeddedCluster) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in broker.records("t")]


class TestRetention:
    async def test_old_batches_are_deleted(self, broker: EmbeddedCluster) -> None:
        old, young = (
            keyed_batch((b"k", b"v"), (b"k", b"w"), timestamp=NOW_MS - age)
            for age in (DAY_MS + 1_000, DAY_MS - 1_000)
        )
        configs: dict[str, str | None] = {
            "cleanup.policy": "delete",
            "retention.ms": str(DAY_MS),
        }
        await store(broker, old, young, old, configs=configs)
        assert broker.apply_retention("t", NOW_MS) == 2
        # The third batch is old, too, but not before the second.
        assert [record.offset for record in broker.records("t")] == [2, 3, 4, 5]
        assert broker.topics["t"].partitions[0].log.start_offset == 2
        assert broker.apply_retention(now_ms=NOW_MS + 1_000_000_000) == 4
        assert broker.topics["t"].partitions[0].log.start_offset == 6

    async def test_a_log_keeps_at_least_retention_bytes(self, broker: EmbeddedCluster) -> None:
        batch = keyed_batch((b"k", b"v" * 100))
        for spare, kept in ((0, 2), (1, 3), (-1, 2)):
            configs: dict[str, str | None] = {
                "cleanup.policy": "delete",
                "retention.ms": "-1",
                "retention.bytes": str(2 * len(batch) + spare),
            }
            await store(broker, *[batch] * 5, configs=configs)
            assert broker.apply_retention("t") == 5 - kept
            broker.delete_topic("t")

    async def test_a_reader_of_deleted_records_begins_again(self, broker: EmbeddedCluster) -> None:
        old, young = keyed_batch((b"k", b"old"), timestamp=1), keyed_batch((b"k", b"young"))
        await store(broker, old, young, configs={"cleanup.policy": "delete"})
        async with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            assert broker.apply_retention("t", NOW_MS) == 1
            with pytest.raises(KafkaError, match="t-0 has no offset 0"):
                await consumer.getone()
        async with Consumer(
            bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            assert (await consumer.getone()).value == b"young"

    async def test_the_policy_decides(self, broker: EmbeddedCluster) -> None:
        await store(broker, keyed_batch((b"k", b"1"), (b"k", b"2"), timestamp=1))
        broker.create_topic("deleted")
        with pytest.raises(BrokerError, match="does not include delete") as refused:
            broker.apply_retention("t")
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        with pytest.raises(BrokerError, match="does not include compact"):
            broker.compact("deleted")
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            broker.compact("no")
        assert broker.apply_retention(now_ms=NOW_MS) == 0
        assert broker.compact() == 1


class TestCompaction:
    async def test_the_last_record_of_each_key_stays(self, broker: EmbeddedCluster) -> None:
        await store(
            broker,
            keyed_batch((b"a", b"1"), (b"b", b"1")),
            keyed_batch((b"a", b"2")),
            keyed_batch((b"c", b"1"), (b"a", b"3"), (b"c", b"2")),
            keyed_batch((b"b", b"2")),
        )
        before = broker.topics["t"].partitions[0].log.size
        assert broker.compact("t") == 4
        assert contents(broker) == [(4, b"a", b"3"), (5, b"c", b"2"), (6, b"b", b"2")]
        log = broker.topics["t"].partitions[0].log
        assert (log.start_offset, log.end_offset, log.record_count) == (0, 7, 3)
        assert log.size == broker._store.memory.size < before
        assert [record.headers for record in broker.records("t")] == [(("h", b"x"),)] * 3
        header, _ = next(iter(log.batches()))
        assert (header.base_offset, header.last_offset_delta, header.record_count) == (3, 2, 2)
        assert broker.compact("t") == 0
        assert len(await broker.wait_for_records("t", 3)) == 3

    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    async def test_the_codec_stays(self, broker: EmbeddedCluster, codec: int) -> None:
        await store(broker, keyed_batch((b"a", b"1" * 99), (b"a", b"2" * 99), codec=codec))
        assert broker.compact("t") == 1
        (header, _), *_ = broker.topics["t"].partitions[0].log.batches()
        assert header.codec == codec
        assert contents(broker) == [(1, b"a", b"2" * 99)]

    async def test_tombstones_stay_for_a_time(self, broker: EmbeddedCluster) -> None:
        await store(
            broker,
            keyed_batch((b"a", b"1"), (b"a", None)),
            keyed_batch((b"b", b"1")),
            configs={"delete.retention.ms": "1000"},
        )
        assert broker.compact("t", NOW_MS) == 1
        (header, _), *_ = broker.topics["t"].partitions[0].log.batches()
        assert header.attributes & DELETE_HORIZON and header.base_timestamp == NOW_MS + 1000
        assert broker.records("t")[0].timestamp == NOW_MS + 1
        assert broker.compact("t", NOW_MS + 999) == 0
        assert contents(broker) == [(1, b"a", None), (2, b"b", b"1")]
        assert broker.compact("t", NOW_MS + 1000) == 1
        assert contents(broker) == [(2, b"b", b"1")]

    async def test_a_tombstone_at_the_end_stays(self, broker: EmbeddedCluster) -> None:
        """Else readers would wait in front of the end."""
        configs: dict[str, str | None] = {"delete.retention.ms": "0"}
        await store(broker, keyed_batch((b"a", b"1"), (b"a", None)), configs=configs)
        broker.compact("t")
        broker.compact("t")
        assert contents(broker) == [(1, b"a", None)]

    async def test_transactions(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        async with Producer(broker.bootstrap_servers, transactional_id="x") as producer:
            for value in (b"1", b"2"):
                async with producer.transaction():
                    await producer.send_and_wait("t", value, key=b"a")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait("t", b"aborted", key=b"a")
                    raise ZeroDivisionError
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"open", key=b"a")
            assert broker.compact("t") == 2
            values = [record.value for record in broker.records("t")]
            assert values == [b"2", b"open"]
            batches = [header for header, _ in broker.topics["t"].partitions[0].log.batches()]
            assert sum(header.is_control for header in batches) == 3
            await producer.commit_transaction()
        assert broker.compact("t") == 1
        async with Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            assert (await consumer.getone()).value == b"open"

    async def test_a_producer_goes_on(self, broker: EmbeddedCluster) -> None:
        broker.create_topic("t", configs={"cleanup.policy": "compact"})
        async with Producer(broker.bootstrap_servers) as producer:
            for value in (b"1", b"2", b"3"):
                await producer.send_and_wait("t", value, key=b"a")
                broker.compact("t")
        assert contents(broker) == [(2, b"a", b"3")]

    async def test_a_replica_with_fewer_records_takes_over(self) -> None:
        """It truncates a log with holes."""
        async with EmbeddedCluster(nodes=2, replication_factor=2) as broker:
            broker.create_topic("t", configs={"cleanup.policy": "compact"})
            async with Producer(
                broker.bootstrap_servers, acks=1, enable_idempotence=False
            ) as producer:
                for value in (b"1", b"2"):
                    await producer.send_and_wait("t", value, key=b"a")
                broker.pause_replication(2)
                await producer.send_and_wait("t", b"3", key=b"a")
                assert broker.compact("t") == 1  # the third is not replicated
                broker.move_leader("t", 0, 2)
                await producer.send_and_wait("t", b"4", key=b"b")
            assert contents(broker) == [(1, b"a", b"2"), (2, b"b", b"4")]

    async def test_offsets_in_holes(self, broker: EmbeddedCluster) -> None:
        await store(
            broker,
            keyed_batch((b"a", b"1")),
            keyed_batch((b"a", b"2"), timestamp=NOW_MS + 10),
            keyed_batch((b"b", b"1"), timestamp=NOW_MS + 20),
            keyed_batch((b"a", b"3"), timestamp=NOW_MS + 30),
        )
        broker.compact("t")
        async with RawClient(broker.bootstrap_servers) as client:
            for offset, expected in ((0, [2, 3]), (1, [2, 3]), (2, [2, 3]), (3, [3]), (4, [])):
                answer = await client.call(fetch_request("t", offset), 12)
                records = answer.responses[0].partitions[0].records or b""
                found = [header.base_offset for header, _ in iter_batches(records)]
                assert found == expected
        async with Admin(broker.bootstrap_servers) as admin:
            offsets = await admin.list_offsets({T0: NOW_MS})
            assert offsets[T0].offset == 2
        broker.delete_records("t", 0, 1)
        assert contents(broker) == [(2, b"b", b"1"), (3, b"a", b"3")]
        broker.delete_records("t", 0, 3)
        assert contents(broker) == [(3, b"a", b"3")]


BATCHES = [
    keyed_batch((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), codec=4),
    keyed_batch((b"b", b"2"), timestamp=NOW_MS + 1_000),
    keyed_batch((b"c", b"1"), (b"d", b"1"), (b"c", None), timestamp=NOW_MS + 2_000, codec=3),
    keyed_batch((b"e", b"1"), (b"e", b"2"), (b"b", b"3"), timestamp=NOW_MS + 3_000),
]
LEFT = [(2, b"2"), (5, b"1"), (6, None), (8, b"2"), (9, b"3")]


async def test_readers_agree(broker: EmbeddedCluster) -> None:
    await store(broker, *BATCHES)
    assert broker.compact("t", NOW_MS) == 5
    assert [(record.offset, record.value) for record in broker.records("t")] == LEFT
    async with Consumer(
        "t", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        ours = [await consumer.getone() for _ in LEFT]
    assert [(record.offset, record.value) for record in ours] == LEFT
    foreign = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    await foreign.start()
    try:
        place = ForeignPartition("t", 0)
        foreign.assign([place])
        foreign.seek(place, 0)
        theirs = [await asyncio.wait_for(foreign.getone(), 10) for _ in LEFT]
    finally:
        await foreign.stop()
    assert [(record.offset, record.value) for record in theirs] == LEFT


def test_librdkafka_agrees(threaded_broker: ThreadedCluster) -> None:
    threaded_broker.create_topic("t", configs={"cleanup.policy": "compact"})

    async def write() -> None:
        async with RawClient(threaded_broker.bootstrap_servers) as client:
            for batch in BATCHES:
                assert (await client.produce("t", batch)).error_code == 0

    asyncio.run(write())
    assert threaded_broker.compact("t", NOW_MS) == 5
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": threaded_broker.bootstrap_servers, "group.id": "g"}
    )
    try:
        consumer.assign([LibrdkafkaPartition("t", 0, 0)])
        found = consumer.consume(len(LEFT), timeout=10)
    finally:
        consumer.close()
    assert [(message.offset(), message.value()) for message in found] == LEFT


@pytest.mark.kafka
async def test_kafkas_cleaner_writes_the_same_batches(broker: EmbeddedCluster) -> None:
    settings = {
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.dedupe.buffer.size": "2097152",
        "log.initial.task.delay.ms": "0",
    }
    with RealKafka(settings=settings) as kafka:
        configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "segment.ms": "1",
        }
        last = keyed_batch((b"z", b"1"), timestamp=NOW_MS + 4_000)  # in Kafka's active segment
        topic = CreatableTopic(
            "t", 1, 1, configs=[CreatableTopicConfig(*each) for each in configs.items()]
        )
        await create_topics_with_leaders(kafka.bootstrap_servers, topic)
        await store(broker, *BATCHES, last)
        broker.compact("t", NOW_MS)
        async with RawClient(kafka.bootstrap_servers) as client:
            for batch in [*BATCHES, last]:
                assert not (await client.produce("t", batch)).error_code
            ours = await stored(broker.bootstrap_servers)
            deadline = asyncio.get_running_loop().time() + 20
            while (theirs := shape(await stored(kafka.bootstrap_servers))) != shape(ours):
                assert asyncio.get_running_loop().time() < deadline, f"{theirs} != {shape(ours)}"
                await asyncio.sleep(0.1)


async def stored(address: str) -> bytes:
    """All batches: Kafka answers with those of one segment."""
    found, offset = b"", 0
    async with RawClient(address) as client:
        while True:
            answer = await client.call(fetch_request("t", offset), 12)
            batches = bytes(answer.responses[0].partitions[0].records or b"")
            if not batches:
                return found
            found += batches
            *_, (header, _) = iter_batches(batches)
            offset = header.last_offset + 1


def shape(batches: bytes) -> list[tuple[int, ...]]:
    """The fields of batches that compaction decides."""
    return [
        (
            header.base_offset,
            header.last_offset_delta,
            header.record_count,
            header.attributes,
            header.max_timestamp,
        )
        for header, _ in iter_batches(batches)
    ]

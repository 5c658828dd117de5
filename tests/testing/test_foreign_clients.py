"""Other clients work with the embedded broker: aiokafka and librdkafka, as producers and as
consumers without a group.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic as ConfluentNewTopic

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, fail

LIMIT_SECONDS = 20.0
COUNT = 300
PARTITIONS = 3
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def value(number: int) -> bytes:
    return b"value %06d " % number * 5


def expected() -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((b"key %d" % number, value(number)) for number in range(COUNT))


def stored(
    broker: EmbeddedCluster | ThreadedCluster, topic: str
) -> Counter[tuple[bytes | None, bytes | None]]:
    return Counter((record.key, record.value) for record in broker.records(topic))


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(num_partitions=PARTITIONS) as broker:
        yield broker


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=PARTITIONS) as broker:
        yield broker


async def aiokafka_produce(broker: EmbeddedCluster, **settings: Any) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    await producer.start()
    try:
        sent = [
            await producer.send("t", value(number), key=b"key %d" % number, headers=[("h", b"1")])
            for number in range(COUNT)
        ]
        answers = await asyncio.gather(*sent)
    finally:
        await producer.stop()
    by_place = {
        (index, record.offset): record.value
        for index in range(PARTITIONS)
        for record in broker.records("t", index)
    }
    if settings.get("acks") != 0:
        assert all(
            by_place[answer.partition, answer.offset] == value(number)
            for number, answer in enumerate(answers)
        )


class TestAiokafka:
    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("idempotent", [False, True])
    async def test_producer(self, three: EmbeddedCluster, codec: str, idempotent: bool) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await aiokafka_produce(
                three,
                enable_idempotence=idempotent,
                compression_type=None if codec == "none" else codec,
            )
        assert stored(three, "t") == expected()
        assert {record.headers for record in three.records("t")} == {(("h", b"1"),)}

    @pytest.mark.parametrize("acks", [0, 1])
    async def test_producer_with_fewer_acks(self, three: EmbeddedCluster, acks: int) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await aiokafka_produce(three, acks=acks)
            await three.wait_for_records("t", COUNT)
        assert stored(three, "t") == expected()

    async def test_idempotent_producer_meets_lost_answers_and_refusals(
        self, three: EmbeddedCluster
    ) -> None:
        three.on(ApiKey.PRODUCE, drop_after(), times=2)
        three.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
        async with asyncio.timeout(LIMIT_SECONDS):
            await aiokafka_produce(three, enable_idempotence=True, linger_ms=2, max_batch_size=2000)
        assert stored(three, "t") == expected()

    async def test_consumer_by_assignment_sees_old_and_new_records(
        self, three: EmbeddedCluster
    ) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await aiokafka_produce(three)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=three.bootstrap_servers,
                group_id=None,
                auto_offset_reset="earliest",
            )
            await consumer.start()
            try:
                consumer.assign([AiokafkaPartition("t", index) for index in range(PARTITIONS)])
                got = Counter(
                    (message.key, message.value)
                    for message in [await consumer.getone() for _ in range(COUNT)]
                )
                assert got == expected()
                waiting = asyncio.create_task(consumer.getone())
                await asyncio.sleep(0.05)
                await aiokafka_produce(three)
                assert (await waiting).key is not None
                await consumer.seek_to_beginning(AiokafkaPartition("t", 0))
                ends = await consumer.end_offsets(
                    [AiokafkaPartition("t", index) for index in range(PARTITIONS)]
                )
                assert sum(ends.values()) == 2 * COUNT
                by_time = await consumer.offsets_for_times({AiokafkaPartition("t", 0): 0})
                assert by_time[AiokafkaPartition("t", 0)].offset == 0
            finally:
                await consumer.stop()

    async def test_admin_creates_lists_and_deletes_topics(self, three: EmbeddedCluster) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            admin = AIOKafkaAdminClient(bootstrap_servers=three.bootstrap_servers)
            await admin.start()
            try:
                await admin.create_topics(
                    [NewTopic("made", num_partitions=4, replication_factor=1)]
                )
                assert len(three.topics["made"].partitions) == 4
                assert await admin.list_topics() == ["made"]
                await admin.delete_topics(["made"])
                assert not three.topics
            finally:
                await admin.close()


def confluent_produce(broker: ThreadedCluster, **settings: Any) -> list[Message]:
    reports: list[Message] = []
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 2,
            "message.timeout.ms": 15_000,
            "log_level": 0,
            **settings,
        }
    )

    def report(error: KafkaError | None, message: Message) -> None:
        reports.append(message)
        if error is not None:
            errors.append(error)

    for number in range(COUNT):
        producer.produce(
            "t", value(number), key=b"key %d" % number, headers=[("h", b"1")], on_delivery=report
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not errors
    return reports


def confluent_consume(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + LIMIT_SECONDS
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), 0.5):
            assert message.error() is None
            messages.append(message)
    return messages


class TestLibrdkafka:
    @pytest.mark.parametrize("codec", CODECS)
    @pytest.mark.parametrize("idempotent", [False, True])
    def test_producer(self, threaded: ThreadedCluster, codec: str, idempotent: bool) -> None:
        reports = confluent_produce(
            threaded, **{"enable.idempotence": idempotent, "compression.type": codec}
        )
        assert stored(threaded, "t") == expected()
        places = {
            (index, record.offset): record.value
            for index in range(PARTITIONS)
            for record in threaded.records("t", index)
        }
        assert {
            (message.partition(), message.offset()): message.value() for message in reports
        } == places
        codecs = {
            batch[22] & 7
            for partition in threaded.topics["t"].partitions
            for batch in partition.log.read(0, 1 << 30, at_least_one=True)
        }
        # It would fall back to none if it did not accept our ApiVersions response.
        assert codecs == {CODECS.index(codec)}

    @pytest.mark.parametrize("acks", ["0", "1"])
    def test_producer_with_fewer_acks(self, threaded: ThreadedCluster, acks: str) -> None:
        confluent_produce(threaded, acks=acks)
        threaded.wait_for_records("t", COUNT)
        assert stored(threaded, "t") == expected()

    def test_idempotent_producer_meets_lost_answers_and_refusals(
        self, threaded: ThreadedCluster
    ) -> None:
        threaded.on(ApiKey.PRODUCE, drop_after(), times=2)
        threaded.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
        confluent_produce(threaded, **{"enable.idempotence": True, "batch.num.messages": 20})
        assert stored(threaded, "t") == expected()

    def test_consumer_by_assignment(self, threaded: ThreadedCluster) -> None:
        confluent_produce(threaded)
        consumer = Consumer(
            {
                "bootstrap.servers": threaded.bootstrap_servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            consumer.assign(
                [TopicPartition("t", index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
            )
            messages = confluent_consume(consumer, COUNT)
            assert Counter((message.key(), message.value()) for message in messages) == expected()
            ends = [
                consumer.get_watermark_offsets(TopicPartition("t", index), timeout=5.0)
                for index in range(PARTITIONS)
            ]
            assert [low for low, _ in ends] == [0] * PARTITIONS and sum(
                high for _, high in ends
            ) == COUNT
            assert [
                found.offset
                for found in consumer.offsets_for_times([TopicPartition("t", 0, 1)], timeout=5.0)
            ] == [0]
        finally:
            consumer.close()

    def test_admin_creates_lists_and_deletes_topics(self, threaded: ThreadedCluster) -> None:
        admin = AdminClient({"bootstrap.servers": threaded.bootstrap_servers, "log_level": 0})
        admin.create_topics([ConfluentNewTopic("made", 4, 1)])["made"].result(LIMIT_SECONDS)
        assert len(admin.list_topics(timeout=5.0).topics["made"].partitions) == 4
        with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
            admin.create_topics([ConfluentNewTopic("made", 4, 1)])["made"].result(LIMIT_SECONDS)
        admin.delete_topics(["made"])["made"].result(LIMIT_SECONDS)
        assert not threaded.topics


def test_a_threaded_broker_can_be_steered_and_started_again(threaded: ThreadedCluster) -> None:
    rule = threaded.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    confluent_produce(threaded)
    assert rule.used == 1
    assert ApiKey.PRODUCE in {seen.api_key for seen in threaded.requests}
    address = threaded.bootstrap_servers
    threaded.stop()
    threaded.start()
    assert threaded.bootstrap_servers == address
    confluent_produce(threaded)
    assert len(threaded.records("t")) == 2 * COUNT
    threaded.delete_topic("t")
    assert threaded.create_topic("t", 1).name == "t"

"""Transactions of other clients work with the embedded broker: aiokafka and librdkafka. For Java's
client see the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.errors import ProducerFenced
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, fail
from aioprod.testing.broker.transactions.transaction import TransactionState
from aioprod.types import TopicPartition as Place

LIMIT_SECONDS = 20.0
COUNT = 50
PARTITIONS = 3
COMMITTED = sorted(b"%d-%d" % (number, record) for number in (0, 2, 4) for record in range(COUNT))


@pytest.fixture
async def three() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(num_partitions=PARTITIONS) as broker:
        yield broker


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=PARTITIONS) as broker:
        yield broker


def values(
    broker: EmbeddedCluster | ThreadedCluster, *, committed_only: bool = True
) -> list[bytes | None]:
    return sorted(
        (record.value for record in broker.records("t", committed_only=committed_only)),
        key=lambda value: value or b"",
    )


class TestAiokafka:
    async def produce(self, broker: EmbeddedCluster) -> None:
        """Send five transactions; every second one is aborted."""
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="x", linger_ms=1
        )
        await producer.start()
        try:
            for number in range(5):
                await producer.begin_transaction()
                for record in range(COUNT):
                    await producer.send("t", b"%d-%d" % (number, record), key=b"%d" % record)
                await (
                    producer.abort_transaction() if number % 2 else producer.commit_transaction()
                )
        finally:
            await producer.stop()

    async def consume(
        self, broker: EmbeddedCluster, count: int, isolation_level: str
    ) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level=isolation_level,
        )
        await consumer.start()
        try:
            consumer.assign([AiokafkaPartition("t", index) for index in range(PARTITIONS)])
            return sorted([(await consumer.getone()).value for _ in range(count)])
        finally:
            await consumer.stop()

    async def test_commits_and_aborts(self, three: EmbeddedCluster) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.produce(three)
            assert values(three) == COMMITTED
            assert await self.consume(three, len(COMMITTED), "read_committed") == COMMITTED
            assert len(
                await self.consume(three, len(three.records("t")), "read_uncommitted")
            ) > len(COMMITTED)

    async def test_refusals_and_lost_answers(self, three: EmbeddedCluster) -> None:
        three.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=2)
        three.on(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.CONCURRENT_TRANSACTIONS))
        three.on(ApiKey.ADD_PARTITIONS_TO_TXN, fail(ErrorCode.CONCURRENT_TRANSACTIONS), times=2)
        three.on(ApiKey.ADD_PARTITIONS_TO_TXN, drop_after())
        three.on(ApiKey.PRODUCE, drop_after(), fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
        three.on(ApiKey.END_TXN, fail(ErrorCode.NOT_COORDINATOR))
        three.on(ApiKey.END_TXN, drop_after())
        async with asyncio.timeout(LIMIT_SECONDS):
            await self.produce(three)
        assert values(three) == COMMITTED

    async def test_offsets_in_a_transaction(self, three: EmbeddedCluster) -> None:
        three.create_topic("source", 1)
        place = AiokafkaPartition("source", 0)
        async with asyncio.timeout(LIMIT_SECONDS):
            producer = AIOKafkaProducer(
                bootstrap_servers=three.bootstrap_servers, transactional_id="x"
            )
            await producer.start()
            try:
                async with producer.transaction():
                    await producer.send("t", b"a")
                    await producer.send_offsets_to_transaction({place: 7}, "g")
                    assert three.committed_offsets("g") == {}
                assert three.committed_offsets("g") == {Place("source", 0): 7}
                with pytest.raises(ZeroDivisionError):
                    async with producer.transaction():
                        await producer.send_offsets_to_transaction({place: 9}, "g")
                        raise ZeroDivisionError
                assert three.committed_offsets("g") == {Place("source", 0): 7}
            finally:
                await producer.stop()
            consumer = AIOKafkaConsumer(
                bootstrap_servers=three.bootstrap_servers, group_id="g", enable_auto_commit=False
            )
            consumer.assign([place])
            await consumer.start()
            try:
                assert await consumer.committed(place) == 7
                await consumer.commit({place: 8})
                assert three.committed_offsets("g") == {Place("source", 0): 8}
            finally:
                await consumer.stop()

    async def test_a_second_producer_fences_the_first(self, three: EmbeddedCluster) -> None:
        async with asyncio.timeout(LIMIT_SECONDS):
            first = AIOKafkaProducer(
                bootstrap_servers=three.bootstrap_servers, transactional_id="x"
            )
            second = AIOKafkaProducer(
                bootstrap_servers=three.bootstrap_servers, transactional_id="x"
            )
            await first.start()
            try:
                await first.begin_transaction()
                await first.send_and_wait("t", b"first")
                await second.start()
                try:
                    with pytest.raises(ProducerFenced):
                        await first.commit_transaction()
                    async with second.transaction():
                        await second.send_and_wait("t", b"second")
                finally:
                    await second.stop()
            finally:
                await first.stop()
        assert (values(three), values(three, committed_only=False)) == (
            [b"second"],
            [b"first", b"second"],
        )


class TestLibrdkafka:
    def producer(self, broker: ThreadedCluster, **settings: object) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "x",
                "linger.ms": 2,
                "log_level": 0,
                **settings,
            }
        )
        producer.init_transactions(LIMIT_SECONDS)
        return producer

    def produce(self, broker: ThreadedCluster) -> None:
        producer = self.producer(broker)
        for number in range(5):
            producer.begin_transaction()
            for record in range(COUNT):
                producer.produce("t", b"%d-%d" % (number, record), key=b"%d" % record)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(
                LIMIT_SECONDS
            )

    def consume(
        self, broker: ThreadedCluster, count: int, isolation_level: str
    ) -> list[bytes | None]:
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(
            {**settings, "isolation.level": isolation_level, "auto.offset.reset": "earliest"}
        )
        found: list[bytes | None] = []
        deadline = time.monotonic() + LIMIT_SECONDS
        try:
            consumer.assign(
                [TopicPartition("t", index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
            )
            while len(found) < count and time.monotonic() < deadline:
                for message in consumer.consume(count, 0.2):
                    assert message.error() is None
                    found.append(message.value())
        finally:
            consumer.close()
        return sorted(found, key=lambda value: value or b"")

    def test_commits_and_aborts(self, threaded: ThreadedCluster) -> None:
        self.produce(threaded)
        assert values(threaded) == COMMITTED
        assert self.consume(threaded, len(COMMITTED), "read_committed") == COMMITTED
        every = values(threaded, committed_only=False)
        assert self.consume(threaded, len(every), "read_uncommitted") == every

    def test_refusals_and_lost_answers(self, threaded: ThreadedCluster) -> None:
        threaded.on(ApiKey.FIND_COORDINATOR, fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        threaded.on(ApiKey.INIT_PRODUCER_ID, fail(ErrorCode.CONCURRENT_TRANSACTIONS))
        threaded.on(ApiKey.ADD_PARTITIONS_TO_TXN, fail(ErrorCode.CONCURRENT_TRANSACTIONS), times=2)
        threaded.on(ApiKey.ADD_PARTITIONS_TO_TXN, drop_after())
        threaded.on(ApiKey.PRODUCE, drop_after(), times=2)
        threaded.on(ApiKey.END_TXN, fail(ErrorCode.NOT_COORDINATOR))
        threaded.on(ApiKey.END_TXN, drop_after())
        self.produce(threaded)
        assert values(threaded) == COMMITTED

    def test_offsets_in_a_transaction(self, threaded: ThreadedCluster) -> None:
        threaded.create_topic("source", 1)
        threaded.create_topic("t", PARTITIONS)
        consumer = Consumer(
            {
                "bootstrap.servers": threaded.bootstrap_servers,
                "group.id": "g",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            producer = self.producer(threaded)
            for offset, commit in ((7, True), (9, False)):
                producer.begin_transaction()
                producer.produce("t", b"%d" % offset)
                position = [TopicPartition("source", 0, offset)]
                producer.send_offsets_to_transaction(
                    position, consumer.consumer_group_metadata(), LIMIT_SECONDS
                )
                (producer.commit_transaction if commit else producer.abort_transaction)(
                    LIMIT_SECONDS
                )
            assert threaded.committed_offsets("g") == {Place("source", 0): 7}
            assert [
                found.offset
                for found in consumer.committed([TopicPartition("source", 0)], LIMIT_SECONDS)
            ] == [7]
            consumer.commit(offsets=[TopicPartition("source", 0, 8)], asynchronous=False)
            assert threaded.committed_offsets("g") == {Place("source", 0): 8}
        finally:
            consumer.close()

    def test_a_second_producer_fences_the_first(self, threaded: ThreadedCluster) -> None:
        first = self.producer(threaded)
        first.begin_transaction()
        first.produce("t", b"first")
        assert first.flush(LIMIT_SECONDS) == 0
        second = self.producer(threaded)
        second.begin_transaction()
        second.produce("t", b"second")
        second.commit_transaction(LIMIT_SECONDS)
        with pytest.raises(KafkaException) as caught:
            first.commit_transaction(LIMIT_SECONDS)
        assert caught.value.args[0].fatal()
        assert (values(threaded), values(threaded, committed_only=False)) == (
            [b"second"],
            [b"first", b"second"],
        )

    def test_an_expired_transaction_fences_its_producer(self, threaded: ThreadedCluster) -> None:
        producer = self.producer(threaded)
        producer.begin_transaction()
        producer.produce("t", b"slow")
        assert producer.flush(LIMIT_SECONDS) == 0
        threaded.expire_transaction("x")
        with pytest.raises(KafkaException):
            producer.commit_transaction(LIMIT_SECONDS)
        assert values(threaded) == []
        assert threaded.transactions["x"].state is TransactionState.COMPLETE_ABORT

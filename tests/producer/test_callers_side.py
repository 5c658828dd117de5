"""The guarantees of ``send``: where errors are raised, interceptors, partitioners, partition keys,
many records at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod import (
    BrokerError,
    BufferExhaustedError,
    ErrorCode,
    InvalidPartitionError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    RecordTooLargeError,
    RoundRobinPartitioner,
    SerializationError,
    TopicPartition,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold


class Watching(ProducerInterceptor):
    """Writes down all that is reported to it."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[RecordMetadata, KafkaError | None]] = []
        self.failed: list[tuple[ProducerRecord, TopicPartition | None, Exception]] = []
        self.delivered: list[tuple[ProducerRecord, int, KafkaError | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(headers=[*record.headers, ("seen", b"yes")])

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.acknowledged.append((metadata, error))

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        self.failed.append((record, topic_partition, error))

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        self.delivered.append((record, metadata.offset, error))

    def close(self) -> None:
        self.closed += 1


class Failing(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send is broken")

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise RuntimeError("on_acknowledgement is broken")


class Upper(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value.upper())


# -- routes of errors ------------------------------------------------------------------------------


@pytest.mark.virtual_time
async def test_errors_of_the_record_come_back_in_its_delivery(broker: EmbeddedCluster) -> None:
    watching = Watching()
    broker.create_topic("t")
    async with Producer(
        broker.bootstrap_servers, max_request_size=1_000, max_block_ms=200, interceptors=[watching]
    ) as producer:
        broker.on(
            ApiKey.METADATA, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="secret"), times=None
        )
        broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE, topic="slow"), times=None)
        cases: list[tuple[type[KafkaError], dict[str, Any]]] = [
            (RecordTooLargeError, {"topic": "t", "value": b"x" * 2_000}),
            (InvalidTopicError, {"topic": "not legal", "value": b"x"}),
            (InvalidPartitionError, {"topic": "t", "value": b"x", "partition": 5}),
            (InvalidPartitionError, {"topic": "t", "value": b"x", "partition": -1}),
            (BrokerError, {"topic": "secret", "value": b"x"}),
        ]
        for expected, arguments in cases:
            delivery = await producer.send(**arguments)
            assert delivery.done()
            with pytest.raises(expected) as caught:
                await delivery
            record, place, error = watching.failed.pop()
            assert repr(error) == repr(caught.value) and error is not caught.value
            assert record.value == arguments["value"]
            assert place == (TopicPartition("t", 5) if arguments.get("partition") == 5 else None)
        broker.clear_rules()
        assert (await producer.send_and_wait("t", b"fine")).offset == 0
        assert producer._pool.available == producer.config.buffer_memory
    assert watching.closed == 1


@pytest.mark.virtual_time
async def test_metadata_that_does_not_come_is_an_error_of_the_delivery(
    broker: EmbeddedCluster,
) -> None:
    async with Producer(broker.bootstrap_servers, max_block_ms=150) as producer:
        broker.on(ApiKey.METADATA, fail(ErrorCode.LEADER_NOT_AVAILABLE, topic="slow"), times=None)
        delivery = await producer.send("slow", b"x")
        with pytest.raises(MetadataTimeoutError, match="max_block_ms=150"):
            await delivery


@pytest.mark.virtual_time
async def test_errors_of_the_call_are_raised(broker: EmbeddedCluster) -> None:
    watching = Watching()
    producer = Producer(
        broker.bootstrap_servers,
        buffer_memory=20_000,
        max_block_ms=100,
        linger_ms=0,
        interceptors=[watching],
    )
    await producer.start()
    await producer.send_and_wait("t", b"x")
    with pytest.raises(SerializationError):
        await producer.send("t", 5)  # type: ignore[arg-type]
    released = asyncio.Event()
    broker.on(ApiKey.PRODUCE, hold(released))
    kept = await producer.send("t", b"x" * 15_000)
    with pytest.raises(BufferExhaustedError, match=r"max_block_ms.*buffer_memory=20000"):
        await producer.send("t", b"x" * 15_000)
    assert producer.metrics()["buffer-exhausted-total"] == 1
    released.set()
    await kept
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"x")
    assert [type(error) for _, _, error in watching.failed] == [
        SerializationError,
        BufferExhaustedError,
        ProducerClosedError,
    ]


# -- interceptors ----------------------------------------------------------------------------------


async def test_interceptors_see_and_change_records_and_learn_of_outcomes(
    broker: EmbeddedCluster,
) -> None:
    watching = Watching()
    async with Producer(
        broker.bootstrap_servers, interceptors=[Failing(), watching, Upper()], batch_size=300
    ) as producer:
        deliveries = [await producer.send("t", b"v%d" % number, b"k") for number in range(50)]
        for delivery in deliveries:
            await delivery
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"bad")
    assert [record.value for record in broker.records("t")] == [
        b"V%d" % number for number in range(50)
    ]
    assert all(record.headers == (("seen", b"yes"),) for record in broker.records("t"))
    assert [metadata.offset for metadata, error in watching.acknowledged if error is None] == list(
        range(50)
    )
    metadata, error = watching.acknowledged[-1]
    assert metadata == RecordMetadata("t", 0, -1, -1) and isinstance(error, BrokerError)
    assert [
        (record.value, offset) for record, offset, error in watching.delivered if error is None
    ] == [(b"V%d" % n, n) for n in range(50)]
    assert watching.delivered[-1][0].value == b"BAD"


async def test_interceptors_follow_the_parts_of_a_split_batch(broker: EmbeddedCluster) -> None:
    watching = Watching()
    broker.create_topic("t", configs={"max.message.bytes": "600"})
    async with Producer(
        broker.bootstrap_servers, interceptors=[watching], batch_size=5_000
    ) as producer:
        for delivery in [await producer.send("t", b"%03d" % number * 10) for number in range(100)]:
            await delivery
    assert [(record.value, offset) for record, offset, _ in watching.delivered] == [
        (b"%03d" % n * 10, n) for n in range(100)
    ]
    assert len(watching.acknowledged) == 100


async def test_records_dropped_by_close_are_asked_to_interceptors(broker: EmbeddedCluster) -> None:
    watching = Watching()
    producer = Producer(
        broker.bootstrap_servers,
        interceptors=[watching],
        linger_ms=60_000,
        delivery_timeout_ms=120_000,
    )
    await producer.start()
    await producer.partitions_for("t")
    deliveries = [await producer.send("t", b"x") for _ in range(3)]
    await producer.close(timeout_ms=0)
    assert [type(error) for _, error in watching.acknowledged] == [ProducerClosedError] * 3
    assert all(isinstance(delivery.exception(), ProducerClosedError) for delivery in deliveries)


# -- partitions ------------------------------------------------------------------------------------


async def test_a_partition_key_chooses_and_is_not_stored(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=7)
    async with Producer(broker.bootstrap_servers) as producer:
        by_key = (await producer.send_and_wait("t", b"x", b"customer-9")).partition
        assert (
            await producer.send_and_wait("t", b"y", partition_key=b"customer-9")
        ).partition == by_key
        assert (
            await producer.send_and_wait("t", b"z", b"another", partition_key=b"customer-9")
        ).partition == by_key
    assert [record.key for record in broker.records("t", by_key)] == [
        b"customer-9",
        None,
        b"another",
    ]


async def test_round_robin_with_tiny_batches_gives_each_partition_the_same(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(
        broker.bootstrap_servers, partitioner=RoundRobinPartitioner(), batch_size=100
    ) as producer:
        for _ in range(400):
            await producer.send("t", b"x" * 90)
        await producer.flush()
    assert [len(broker.records("t", partition)) for partition in range(4)] == [100] * 4


async def test_a_sticky_partitioner_is_called_again_if_a_batch_is_full(
    broker: EmbeddedCluster,
) -> None:
    class Sticky:
        def __init__(self) -> None:
            self.now = 0
            self.asked = 0

        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int
        ) -> int:
            self.asked += 1
            return self.now

        def on_new_batch(self, topic: str, partition: int) -> None:
            self.now = (partition + 1) % 3

    sticky = Sticky()
    broker.create_topic("t", num_partitions=3)
    async with Producer(
        broker.bootstrap_servers, partitioner=sticky, batch_size=1_000, linger_ms=50
    ) as producer:
        placed = [await producer.send("t", b"x" * 200) for _ in range(12)]
        partitions = [(await delivery).partition for delivery in placed]
    assert partitions == [0] * 4 + [1] * 4 + [2] * 4, (
        "four records fill a batch, then the next partition has its turn"
    )
    assert sticky.asked == 12 + 2


async def test_a_partitioner_that_answers_nonsense_is_named(broker: EmbeddedCluster) -> None:
    class Wrong:
        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int
        ) -> int:
            return 9

    async with Producer(broker.bootstrap_servers, partitioner=Wrong()) as producer:
        with pytest.raises(
            InvalidPartitionError,
            match="partitioner Wrong chose 9 for topic 't': must be from 0 to 0",
        ):
            await producer.send_and_wait("t", b"x")


async def test_keys_can_be_ignored(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(
        broker.bootstrap_servers, partitioner_ignore_keys=True, batch_size=200
    ) as producer:
        placed = {
            (await producer.send_and_wait("t", b"x" * 100, b"the same key")).partition
            for _ in range(40)
        }
    assert len(placed) > 1


# -- many at once ----------------------------------------------------------------------------------


async def test_send_many_gives_each_record_its_own_result(bootstrap: str) -> None:
    topic = f"many-{id(bootstrap)}-{asyncio.get_running_loop().time():.6f}"
    async with Producer(bootstrap, max_request_size=50_000) as producer:
        records: list[Any] = [
            b"0",
            ProducerRecord(topic, b"1", b"key", headers=[("h", b"v")]),
            2,
            b"x" * 60_000,
            None,
            b"5",
            ProducerRecord("other", b"6"),
        ]
        deliveries = await producer.send_many(topic, records)
        await producer.flush()
        outcomes = [type(delivery.exception()) for delivery in deliveries]
        none = type(None)
        assert outcomes == [
            none,
            none,
            SerializationError,
            RecordTooLargeError,
            none,
            none,
            SerializationError,
        ]
        assert [deliveries[index].result().offset for index in (0, 1, 4, 5)] == [0, 1, 2, 3]
        assert len(await producer.send_many(topic, [])) == 0
    with pytest.raises(ProducerClosedError):
        await producer.send_many(topic, [b"late"])


async def test_send_many_waits_for_room_and_keeps_the_order(broker: EmbeddedCluster) -> None:
    async with Producer(
        broker.bootstrap_servers, buffer_memory=40_000, batch_size=4_000, linger_ms=0
    ) as producer:
        values = [b"%05d" % number * 20 for number in range(5_000)]
        deliveries = await producer.send_many("t", values)
        assert [(await delivery).offset for delivery in deliveries] == list(range(5_000))
    assert [record.value for record in broker.records("t")] == values


async def test_an_iterable_that_raises_sends_whole_portions(broker: EmbeddedCluster) -> None:
    def values() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(5_000))
        raise ValueError("no more")

    async with Producer(broker.bootstrap_servers) as producer:
        with pytest.raises(ValueError, match="no more"):
            await producer.send_many("t", values())
        await producer.flush()
        assert len(broker.records("t")) == 4_096
        await producer.send_and_wait("t", b"later")
    assert [record.value for record in broker.records("t")][4_095:] == [b"4095", b"later"]


@pytest.mark.virtual_time
async def test_the_first_record_of_many_that_finds_no_memory_fails_the_rest(
    broker: EmbeddedCluster,
) -> None:
    broker.on(ApiKey.PRODUCE, hold(asyncio.Event()), times=None)
    async with Producer(
        broker.bootstrap_servers, buffer_memory=4_000, batch_size=1_000, max_block_ms=30
    ) as producer:
        deliveries = await producer.send_many("t", [b"x" * 900] * 9_000)
        lacking = deliveries.exceptions()
        counted = producer.metrics()["buffer-exhausted-total"]
        await producer.close(timeout_ms=0)
    assert {type(error) for error in lacking.values()} == {BufferExhaustedError}
    assert list(lacking) == list(range(min(lacking), 9_000)) and min(lacking) > 0
    assert counted == 1, "each of the others would have waited as long"

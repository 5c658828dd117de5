"""Partitioners and interceptors are called with the same arguments, and at the same times, as in
Java.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import (
    BrokerError,
    BufferExhaustedError,
    Delivery,
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    Producer,
    ProducerClosedError,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    RecordTooLargeError,
    SerializationError,
    TopicPartition,
)
from aioprod.producer.partitioner import Partitions
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold


class Asked:
    """A partitioner that notes what it is given, and always chooses partition 0."""

    def __init__(self) -> None:
        self.topic = ""
        self.key: bytes | None = None
        self.value: bytes | None = None
        self.partitions = Partitions(0, ())

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: Partitions
    ) -> int:
        self.topic, self.key, self.value, self.partitions = topic, key, value, partitions
        return 0


async def test_a_partitioner_gets_objects_and_bytes_and_the_clusters_leaders() -> None:
    asked = Asked()
    async with EmbeddedCluster(nodes=2, num_partitions=4) as broker:
        broker.create_topic("t")
        settings: dict[str, Any] = {
            "partitioner": asked,
            "value_serializer": lambda topic, headers, data: json.dumps(data).encode(),
        }
        async with Producer(broker.bootstrap_servers, **settings) as producer:
            await producer.send_and_wait("t", {"name": "anna"}, b"key", headers=[("h", b"1")])
            assert (asked.topic, asked.key, asked.value) == ("t", b"key", b'{"name": "anna"}')
            record = asked.partitions.record
            assert (record.key, record.value, list(record.headers)) == (
                b"key",
                {"name": "anna"},
                [("h", b"1")],
            )
            assert asked.partitions == 4
            assert sorted(set(asked.partitions.leaders)) == [1, 2]
            leader = broker.leader("t", 0)
            assert asked.partitions.leaders[0] == leader
            await producer.send_and_wait("t", {}, b"key", partition_key=b"chooses")
            assert asked.key == b"chooses" and asked.partitions.record.partition_key == b"chooses"
    assert [record.key for record in broker.records("t", 0)] == [b"key", b"key"], (
        "what chooses is not stored"
    )


class Switching:
    """Moves on to the next partition when a batch is closed."""

    def __init__(self) -> None:
        self.current = 0
        self.closed: list[int] = []

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return self.current % partitions

    def on_new_batch(self, topic: str, partition: int) -> None:
        self.closed.append(partition)
        self.current += 1


async def test_a_sticky_partitioner_learns_of_batches_that_lingered_as_of_full_ones() -> None:
    lingered, full = Switching(), Switching()
    async with EmbeddedCluster(num_partitions=4) as broker:
        async with Producer(
            broker.bootstrap_servers, partitioner=lingered, linger_ms=0
        ) as producer:
            places = [(await producer.send_and_wait("slow", b"v")).partition for _ in range(12)]
        async with Producer(broker.bootstrap_servers, partitioner=full, batch_size=300) as producer:
            await (await producer.send_many("fast", [b"v" * 200] * 12)).wait()
    # Each batch has one record, and nothing was closed before the first.
    assert places == [0, 1, 2, 3] * 3 and lingered.closed == places[:-1]
    assert full.closed == [0, 1, 2, 3] * 2 + [0, 1, 2]


async def test_a_sticky_partitioner_moves_on_while_memory_is_short() -> None:
    """Records that wait keep the partition that was chosen for them; later ones go elsewhere."""
    switching = Switching()
    async with EmbeddedCluster(num_partitions=4) as broker:
        async with Producer(
            broker.bootstrap_servers, partitioner=switching, batch_size=300, buffer_memory=700
        ) as producer:
            for _ in range(4):
                await asyncio.gather(*(producer.send("t", b"v" * 200) for _ in range(10)))
    assert all(broker.records("t", partition) for partition in range(4))
    assert len(switching.closed) >= 39


@pytest.mark.parametrize("wrong", [ValueError("mine"), 9, -1, "0", None, True], ids=repr)
async def test_one_record_of_many_that_finds_no_partition_fails_alone(
    broker: EmbeddedCluster, wrong: object
) -> None:
    class Odd:
        def partition(
            self, topic: str, key: bytes | None, value: bytes | None, partitions: int
        ) -> Any:
            if value != b"2":
                return 0
            if isinstance(wrong, Exception):
                raise wrong
            return wrong

    async with Producer(broker.bootstrap_servers, partitioner=Odd()) as producer:
        deliveries = await producer.send_many("t", [b"0", b"1", b"2", b"3"])
        with pytest.raises(KafkaError, match=r"mine|partitioner Odd chose"):
            await deliveries.wait()
        assert list(deliveries.exceptions()) == [2]
        await producer.flush()
    assert [record.value for record in broker.records("t")] == [b"0", b"1", b"3"]


# -- interceptors ----------------------------------------------------------------------------------


class Witness(ProducerInterceptor):
    """Notes every outcome that it is called for: the record's value, its partition, and the
    error.
    """

    def __init__(self) -> None:
        self.refused: list[tuple[object, TopicPartition | None, type[Exception]]] = []
        self.ended: list[tuple[object, int, type[Exception] | None]] = []

    def on_send_error(
        self, record: ProducerRecord, topic_partition: TopicPartition | None, error: Exception
    ) -> None:
        self.refused.append((record.value, topic_partition, type(error)))

    def on_delivery(
        self, record: ProducerRecord, metadata: RecordMetadata, error: KafkaError | None
    ) -> None:
        self.ended.append(
            (record.value, metadata.partition, None if error is None else type(error))
        )


async def test_interceptors_learn_of_each_record_once(broker: EmbeddedCluster) -> None:
    witness = Witness()
    broker.create_topic("t", 2)
    settings: dict[str, Any] = {
        "interceptors": [witness],
        "max_block_ms": 5_000,
        "max_request_size": 1_000,
        "linger_ms": 0,
    }
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("t", b"stored", partition=1)
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_PARTITIONS))
        with pytest.raises(BrokerError):
            await producer.send_and_wait("t", b"failed", partition=0)
        for value, partition in ((b"large" * 400, 1), (b"off", 7), (b"anywhere" * 400, None)):
            delivery: Delivery = await producer.send("t", value, partition=partition)
            assert delivery.exception() is not None
        with pytest.raises(SerializationError):
            await producer.send("t", 5)
        many = await producer.send_many("t", [b"first", 6, ProducerRecord("elsewhere", b"astray")])
        assert list(many.exceptions()) == [1, 2]
        await producer.flush()
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"late")
    assert [(value, error) for value, _, error in witness.ended] == [
        (b"stored", None),
        (b"failed", BrokerError),
        (b"first", None),
    ]
    assert [
        (value[:8] if isinstance(value, bytes) else value, place, error.__name__)
        for value, place, error in witness.refused
    ] == [
        (b"largelar", TopicPartition("t", 1), RecordTooLargeError.__name__),
        (b"off", TopicPartition("t", 7), "InvalidPartitionError"),
        (b"anywhere", None, RecordTooLargeError.__name__),
        (5, None, SerializationError.__name__),
        (6, None, SerializationError.__name__),
        (b"astray", None, SerializationError.__name__),
        (b"late", None, ProducerClosedError.__name__),
    ]


@pytest.mark.virtual_time
async def test_interceptors_learn_of_records_that_find_no_memory(broker: EmbeddedCluster) -> None:
    witness = Witness()
    settings: dict[str, Any] = {
        "interceptors": [witness],
        "max_block_ms": 50,
        "batch_size": 500,
        "buffer_memory": 600,
    }
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.send_and_wait("t", b"known")
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=None)
        await producer.send("t", b"x" * 400)
        with pytest.raises(BufferExhaustedError):
            await producer.send("t", b"y" * 400)
        many = await producer.send_many("t", [b"%d" % number * 400 for number in range(5)])
        assert len(many.exceptions()) == 5
        kept_back.cancel()
        kept_back.release()
        await producer.flush()
    values = [value for value, _, _ in witness.refused]
    assert values == [b"y" * 400, *(b"%d" % number * 400 for number in range(5))]
    assert {place for _, place, _ in witness.refused} == {TopicPartition("t", 0), None}


@pytest.mark.virtual_time
async def test_interceptors_learn_of_rows_that_are_refused(broker: EmbeddedCluster) -> None:
    """Of a table, whatever refuses them, as of the records of the other calls."""
    witness = Witness()
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {
        "interceptors": [witness],
        "max_block_ms": 50,
        "max_request_size": 1_000,
        "linger_ms": 0,
    }
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("t")
        for rows in (
            [b"stored", b"large" * 400, b"giant" * 40_000, b"stored, too"],
            [b"large" * 400] * 3,
        ):
            deliveries = await producer.send_arrow("t", pa.table({"value": rows}))
            await producer.flush()
            refused = [number for number, value in enumerate(rows) if len(value) > 1_000]
            assert list(deliveries.exceptions()) == refused
            assert [value for value, _, _ in witness.refused] == [
                rows[number] for number in refused
            ]
            witness.refused.clear()
        # No topic: none of them is looked at.
        many = [b"%d" % number for number in range(2_500)]
        for topic, error in (("bad name", InvalidTopicError), ("unknown", MetadataTimeoutError)):
            rule = broker.on(ApiKey.METADATA, hold(), times=None)
            deliveries = await producer.send_arrow(topic, pa.table({"value": many}))
            rule.cancel()
            rule.release()
            assert len(deliveries.exceptions()) == len(deliveries) == 2_500
            assert witness.refused == [(value, None, error) for value in many]
            witness.refused.clear()
    assert [value for value, _, _ in witness.ended] == [b"stored", b"stored, too"]


# -- metadata --------------------------------------------------------------------------------------


async def test_metadata_has_the_serialized_sizes(broker: EmbeddedCluster) -> None:
    cases: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b"value"),
        (None, b"v" * 300),
        (b"key" * 50, None),
        (None, None),
        (b"", b""),
    ]
    async with Producer(broker.bootstrap_servers, batch_size=100_000) as producer:
        deliveries = [await producer.send("t", value, key) for key, value in cases * 30]
        for delivery, (key, value) in zip(deliveries, cases * 30, strict=True):
            metadata = await delivery
            assert metadata.serialized_key_size == (-1 if key is None else len(key))
            assert metadata.serialized_value_size == (-1 if value is None else len(value))
        many = await (await producer.send_many("t", [b"x" * size for size in range(200)]))
        assert [(one.serialized_key_size, one.serialized_value_size) for one in many] == [
            (-1, size) for size in range(200)
        ]
        refused = await producer.send("t", b"x" * 2_000_000)
        assert refused.exception() is not None


async def test_sizes_survive_the_split_of_a_batch(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1, {"max.message.bytes": "700"})
    async with Producer(broker.bootstrap_servers, batch_size=5_000) as producer:
        deliveries = [
            await producer.send("t", b"x" * size, b"k" * (size % 3)) for size in range(40)
        ]
        for size, delivery in enumerate(deliveries):
            metadata = await delivery
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (
                size % 3,
                size,
            )

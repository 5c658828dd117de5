"""The producer's public behavior, on the embedded broker and on a real one."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as TheirPartition

from aioprod import (
    BrokerConnectionError,
    ConfigError,
    InvalidPartitionError,
    InvalidTopicError,
    Producer,
    ProducerClosedError,
    RecordTooLargeError,
    SerializationError,
)
from aioprod.testing import EmbeddedCluster

Read = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


async def read_back(bootstrap: str, topic: str, count: int) -> list[Read]:
    """Read the topic with another client."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        found: list[Read] = []
        async with asyncio.timeout(20):
            while not consumer.partitions_for_topic(topic):
                await consumer._client.force_metadata_update()
                await consumer._client.add_topic(topic)
            consumer.assign(
                [
                    TheirPartition(topic, p)
                    for p in sorted(consumer.partitions_for_topic(topic) or ())
                ]
            )
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [
                        (r.partition, r.key, r.value, tuple(r.headers), r.timestamp)
                        for r in records
                    ]
        return found
    finally:
        await consumer.stop()


async def test_a_record_arrives_whole(bootstrap: str) -> None:
    topic = new_topic()
    async with Producer(bootstrap) as producer:
        delivery = await producer.send(
            topic,
            b"value",
            b"key",
            timestamp_ms=1_700_000_000_123,
            headers=[("a", b"1"), ("a", b"2"), ("b", None)],
        )
        metadata = await delivery
        assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (
            topic,
            0,
            0,
            1_700_000_000_123,
        )
        assert (
            delivery.done() and delivery.exception() is None and delivery.result() == await delivery
        )
        assert (await producer.send_and_wait(topic, None)).offset == 1
    first, second = await read_back(bootstrap, topic, 2)
    assert first[1:4] == (b"key", b"value", (("a", b"1"), ("a", b"2"), ("b", None)))
    assert first[4] == 1_700_000_000_123
    assert second[1:3] == (None, None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
async def test_many_records_arrive_once_and_in_order(
    bootstrap: str, codec: Any, idempotent: bool
) -> None:
    topic = new_topic()
    async with Producer(
        bootstrap,
        compression_type=codec,
        enable_idempotence=idempotent,
        batch_size=2_000,
        linger_ms=1,
    ) as producer:
        deliveries = [
            await producer.send(topic, b"%d" % number * 5, b"key", headers=[("n", b"%d" % number)])
            for number in range(3_000)
        ]
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(3_000))
    found = await read_back(bootstrap, topic, 3_000)
    assert [value for _, _, value, _, _ in found] == [b"%d" % number * 5 for number in range(3_000)]
    assert [headers for _, _, _, headers, _ in found] == [
        (("n", b"%d" % number),) for number in range(3_000)
    ], "headers at batch boundaries too"


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(bootstrap: str, acks: Any) -> None:
    topic = new_topic()
    async with Producer(bootstrap, acks=acks, enable_idempotence=False) as producer:
        metadata = await producer.send_and_wait(topic, b"x")
        assert metadata.offset == (-1 if acks == 0 else 0)
    assert [value for _, _, value, _, _ in await read_back(bootstrap, topic, 1)] == [b"x"]


async def test_a_bad_record_leaves_the_others_alone(bootstrap: str) -> None:
    topic = new_topic()
    async with Producer(bootstrap, max_request_size=50_000, linger_ms=50) as producer:
        good = [await producer.send(topic, b"1")]
        with pytest.raises(SerializationError, match="value must be bytes, not int"):
            await producer.send(topic, 5)  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="key must be bytes, not str"):
            await producer.send(topic, b"x", "text")  # type: ignore[arg-type]
        with pytest.raises(SerializationError, match="header"):
            await producer.send(topic, b"x", headers=[("name", 5)])  # type: ignore[list-item]
        with pytest.raises(SerializationError, match=r"timestamp_ms=4\d{18}: "):
            await producer.send(topic, b"x", timestamp_ms=2**62)
        with pytest.raises(RecordTooLargeError, match="max_request_size=50000"):
            await producer.send_and_wait(topic, b"x" * 60_000)
        with pytest.raises(InvalidPartitionError, match="partition=77"):
            await producer.send_and_wait(topic, b"x", partition=77)
        with pytest.raises(InvalidTopicError, match="must be 1 to 249"):
            await producer.send_and_wait("no spaces allowed", b"x")
        good.append(await producer.send(topic, b"2"))
        assert [(await delivery).offset for delivery in good] == [0, 1]
        assert producer._pool.available == producer.config.buffer_memory
    assert [value for _, _, value, _, _ in await read_back(bootstrap, topic, 2)] == [b"1", b"2"]


async def test_a_record_larger_than_a_batch_has_a_batch_of_its_own(bootstrap: str) -> None:
    topic = new_topic()
    async with Producer(bootstrap, batch_size=1_000) as producer:
        sizes = [10, 20_000, 30, 400_000, 5]
        for delivery in [await producer.send(topic, b"x" * size) for size in sizes]:
            await delivery
    assert [
        len(value or b"") for _, _, value, _, _ in await read_back(bootstrap, topic, 5)
    ] == sizes


async def test_keys_choose_javas_partition(broker: EmbeddedCluster) -> None:
    # Partitions of Java's Utils.toPositive(Utils.murmur2(key)) % 7, from its hashes in Kafka's
    # UtilsTest.
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    broker.create_topic("t", num_partitions=7)
    async with Producer(broker.bootstrap_servers) as producer:
        for key, java_hash in hashes.items():
            assert (await producer.send_and_wait("t", b"x", key)).partition == (
                java_hash & 0x7FFFFFFF
            ) % 7


async def test_keyless_records_stick_and_then_spread(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(broker.bootstrap_servers, batch_size=1_000) as producer:
        placed = [
            (await delivery).partition
            for delivery in [await producer.send("t", b"x" * 90) for _ in range(2_000)]
        ]
    changes = sum(1 for before, after in itertools.pairwise(placed) if before != after)
    assert changes < 300, "a partition is left when a batch is full, not with each record"
    assert all(300 < placed.count(partition) < 700 for partition in range(4)), "the load is even"


async def test_a_trickle_of_keyless_records_spreads_too(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=4)
    async with Producer(broker.bootstrap_servers, batch_size=500, linger_ms=0) as producer:
        placed = [(await producer.send_and_wait("t", b"x" * 100)).partition for _ in range(1_000)]
    assert all(placed.count(partition) > 100 for partition in range(4))


async def test_start_may_be_tried_again(broker: EmbeddedCluster) -> None:
    producer = Producer(broker.bootstrap_servers)
    await broker.stop()
    with pytest.raises(BrokerConnectionError):
        await producer.start()
    await broker.start()
    await producer.start()
    assert (await producer.send_and_wait("t", b"x")).offset == 0
    await producer.close()


async def test_flush_does_not_wait_out_linger(bootstrap: str) -> None:
    async with Producer(bootstrap, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        topic = new_topic()
        await producer.partitions_for(topic)
        delivery = await producer.send(topic, b"x")
        begun = time.monotonic()
        await producer.flush()
        assert delivery.done()
        assert time.monotonic() - begun < 10


async def test_a_full_batch_does_not_linger(broker: EmbeddedCluster) -> None:
    async with Producer(
        broker.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=200_000, batch_size=1_000
    ) as producer:
        first = await producer.send("t", b"x" * 600)
        second = await producer.send("t", b"x" * 600)
        await asyncio.wait_for(asyncio.ensure_future(_wait(first)), 10)
        assert not second.done()


async def _wait(delivery: object) -> object:
    return await delivery  # type: ignore[misc]


async def test_leaving_the_block_delivers_what_was_sent(broker: EmbeddedCluster) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Producer(
            broker.bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=200_000
        ) as producer:
            await producer.send("t", b"x")
            raise ZeroDivisionError
    assert [record.value for record in broker.records("t")] == [b"x"]


async def test_send_after_close_and_before_start(broker: EmbeddedCluster) -> None:
    producer = Producer(broker.bootstrap_servers)
    with pytest.raises(ProducerClosedError, match="not started"):
        await producer.send("t", b"x")
    await producer.start()
    await producer.send_and_wait("t", b"x")
    await producer.close()
    await producer.close()
    with pytest.raises(ProducerClosedError):
        await producer.send("t", b"x")
    with pytest.raises(ProducerClosedError):
        await producer.start()


async def test_no_server_at_the_address() -> None:
    with pytest.raises(BrokerConnectionError, match=r"127\.0\.0\.1:1"):
        async with Producer("127.0.0.1:1"):
            pass


def test_the_constructor_needs_no_event_loop() -> None:
    producer = Producer("127.0.0.1:1")
    assert producer.config.acks == -1


def test_bad_settings_are_named() -> None:
    with pytest.raises(
        ConfigError, match=r"'linger' ?: did you mean 'linger_ms'|did you mean 'linger_ms'"
    ):
        Producer(linger=5)  # type: ignore[call-overload]
    for settings, message in [
        ({"acks": 2}, "acks=2"),
        ({"acks": 1}, "idempotence needs acks='all'"),
        ({"batch_size": -1}, "batch_size=-1: must be from 0"),
        ({"linger_ms": "5"}, "linger_ms='5': must be a number"),
        ({"compression_type": "brotli"}, "brotli"),
        ({"compression_type": "zstd", "compression_level": 99}, "compression_level=99"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 10}, "must be at least linger_ms"),
        ({"bootstrap_servers": "nohost:"}, "host:port"),
        ({"bootstrap_servers": ""}, "empty"),
    ]:
        with pytest.raises(ConfigError, match=message):
            Producer(**settings)  # type: ignore[arg-type]


def test_dotted_names() -> None:
    producer = Producer.from_config({"bootstrap.servers": "h:1", "linger.ms": 7, "acks": "all"})
    assert producer.config.linger_ms == 7
    assert producer.config.bootstrap_servers == ("h:1",)
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        Producer.from_config({"linger.mss": 7})


async def test_serializers(broker: EmbeddedCluster) -> None:
    def upper(topic: str, headers: object, data: str) -> bytes:
        return f"{topic}:{data.upper()}".encode()

    async with Producer(broker.bootstrap_servers, value_serializer=upper) as producer:
        await producer.send_and_wait("t", "hello")
        with pytest.raises(
            SerializationError, match=r"value_serializer: .*upper.* failed for a value of type int"
        ):
            await producer.send("t", 5)  # type: ignore[arg-type]
    assert broker.records("t")[0].value == b"t:HELLO"

"""Mistakes that type checkers find, each on a line that ends with ``# error``.

tests/types/test_type_checkers.py expects an error of mypy on each of these lines, and on no other;
``python -m tests.types.pyright`` expects the same of pyright.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aioprod import (
    Consumer,
    ConsumerRecord,
    ConsumerSettings,
    JsonDeserializer,
    JsonSerializer,
    Producer,
    ProducerRecord,
    ShareConsumer,
    StringDeserializer,
    StringSerializer,
    TopicPartition,
)
from aioprod.processing import Processor, Record
from aioprod.types import Headers


@dataclass
class Order:
    total: int


def read_order(topic: str, headers: Headers, data: bytes | None) -> Order:
    return Order(int(data or 0))


def write_order(topic: str, headers: Headers, order: Order) -> bytes:
    return str(order.total).encode()


def two_arguments(topic: str, data: bytes | None) -> str:
    return topic


def settings_of_producers() -> None:
    Producer(acks="alll")  # error
    Producer(acks=2)  # error
    Producer(compression_type="gzp")  # error
    Producer(topic_compression={"logs": "zst"})  # error
    Producer(linger_ms="5")  # error
    Producer(lingerms=5)  # error
    Producer(security_protocol="sasl_ssl")  # error
    Producer(sasl_mechanism="SCRAM")  # error
    Producer(value_serializer=JsonSerializer)  # error
    Producer(key_serializer=JsonSerializer(), acks="alll")  # error


def settings_of_consumers() -> None:
    Consumer("orders", auto_offset_reset="beginning")  # error
    Consumer("orders", isolation_level="committed")  # error
    Consumer("orders", group_protocol="new")  # error
    Consumer("orders", partition_assignment_strategy=["ranges"])  # error
    Consumer("orders", bootstrap_server="localhost:9092")  # error
    Consumer("orders", value_deserializer=two_arguments)  # error
    Consumer("orders", value_deserializer=StringDeserializer)  # error
    ShareConsumer(group_id="g", share_acknowledgement_mode="manual")  # error
    settings: ConsumerSettings = {"auto_offset_reset": "first"}  # error
    Consumer("orders", **settings)


async def what_is_sent(producer: Producer[str, Order]) -> None:
    plain = Producer()
    await plain.send("orders", "text")  # error
    await plain.send("orders", {"total": 1})  # error
    await plain.send("orders", b"value", 5)  # error
    await plain.send_and_wait("orders", b"value", key="key")  # error
    await plain.send_many("orders", ["a", "b"])  # error
    await plain.send(ProducerRecord("orders", "text"))  # error
    await plain.send("orders", b"value", headers=[("name", "text")])  # error
    await plain.send("orders", b"value", partition="1")  # error
    await producer.send("orders", 5)  # error
    await producer.send("orders", Order(1), b"key")  # error
    typed = Producer(key_serializer=StringSerializer(), value_serializer=write_order)
    await typed.send("orders", Order(1), 5)  # error
    await typed.send("orders", {"total": 1})  # error
    plain.send("orders", b"value")  # error
    with plain:  # error
        pass


async def what_is_read() -> None:
    plain = Consumer("orders")
    async for record in plain:
        record.value.decode()  # error
        record.key.decode()  # error
        if record.value is not None:
            record.value.upper().split("-")  # error
        record.val  # error
    texts = Consumer("orders", value_deserializer=StringDeserializer())
    (await texts.getone()).value.upper()  # error
    for each in await texts.getmany():
        if each.value is not None:
            each.value.decode()  # error
    orders = Consumer("orders", value_deserializer=read_order)
    (await orders.getone()).value.totl  # error
    wants_text(await orders.getone())  # error
    await orders.getone(timeout=1)  # error
    await orders.getmany(timeout_ms="x")  # error
    orders.seek("orders", 3)  # error
    orders.assign([("orders", 0)])  # error
    for one in orders:  # error
        print(one)
    promised: Consumer[str, Order] = Consumer("orders")  # error
    print(promised)


async def what_is_shared() -> None:
    consumer = ShareConsumer(group_id="g", value_deserializer=read_order)
    async for record in consumer:
        record.key.decode()  # error
        record.value.totl  # error
        consumer.acknowledge(record, "accept")  # error


async def handle_order(record: Record[bytes | None, Order]) -> None:
    record.value.totl  # error


async def handle_bytes(record: Record[bytes | None, bytes | None]) -> None: ...


async def handle_text(record: Record[bytes | None, str]) -> None: ...


def what_is_processed() -> None:
    Processor(handle_order, "orders", group_id="g", value_deserializer=read_order)
    Processor(handle_text, "orders", group_id="g", value_deserializer=read_order)  # error
    Processor(handle_bytes, "orders", group_id="g", order="keys")  # error
    Processor(handle_bytes, "orders", group_id="g", guarantee="once")  # error
    Processor(handle_bytes, "orders", group_id="g", order="key", guarantee="exactly_once")


def wants_text(record: ConsumerRecord[bytes | None, str]) -> None: ...


# What is right: no line has an error.


async def right(settings: Mapping[str, Any], partition: TopicPartition) -> None:
    producer = Producer(
        acks="all",
        compression_type=None,
        topic_compression={"logs": ("zstd", 9), "clicks": "lz4"},
        key_serializer=lambda key: key.encode(),
        value_serializer=lambda topic, headers, value: value.encode(),
    )
    await producer.send("orders", "value", "key")
    await Producer(value_serializer=JsonSerializer()).send("orders", {"total": 1}, b"key")
    await Producer().send_many("orders", [b"a", None, ProducerRecord("orders", b"b", key=b"k")])
    consumer = Consumer(
        ["orders", "refunds"],
        auto_offset_reset=timedelta(hours=1),
        value_deserializer=JsonDeserializer(),
    )
    async with consumer:
        async for record in consumer:
            print(record.value["total"], record.key)
        any_record(await consumer.getone())
        consumer.seek(partition, 3)
    any_client(producer, consumer)
    any_client(Producer.from_config(settings), Consumer.from_config(settings, "orders"))
    named = Consumer("orders", value_deserializer=lambda data: Order(int(data)))
    print((await named.getone()).value.total)
    narrow: Producer[str, Order] = Producer(
        key_serializer=StringSerializer(), value_serializer=write_order
    )
    wide: Consumer[str | None, Order | None] = Consumer(
        "orders", key_deserializer=StringDeserializer(), value_deserializer=read_order
    )
    print(narrow, wide)


def any_client(producer: Producer, consumer: Consumer) -> None: ...
def any_record(record: ConsumerRecord) -> None: ...


class OrderConsumer(Consumer[bytes | None, Order]):
    def __init__(self, servers: str) -> None:
        super().__init__("orders", bootstrap_servers=servers, value_deserializer=read_order)


class OrderProducer(Producer[bytes, Order]):
    def __init__(self, servers: str) -> None:
        super().__init__(servers, value_serializer=write_order)


async def subclasses(consumer: OrderConsumer, producer: OrderProducer) -> None:
    async for record in consumer:
        await producer.send("copies", Order(record.value.total), record.key)

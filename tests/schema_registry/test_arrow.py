"""Columns of Arrow through a registry: ``send_arrow`` and ``getarrow`` with serializers."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import ConfigError, Consumer, DeserializationError, Producer, SerializationError
from aioprod.preparation import NotPrepared
from aioprod.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from aioprod.serialization import StringSerializer
from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import confluent
from tests.schema_registry.messages import User
from tests.waiting import until

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
LATER = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "-"}]}
ORDERS: list[Any] = [
    {"item": "tea", "count": 2, "price": decimal.Decimal(7), "at": NOW, "tags": ["a", "b"]},
    None,
    {"item": "milk", "count": 1, "price": decimal.Decimal(-300), "at": None, "tags": []},
]
ORDER_TYPE = pa.struct(
    [
        ("item", pa.string()),
        ("count", pa.int64()),
        ("price", pa.decimal128(9, 0)),
        ("at", pa.timestamp("ms", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)
NOTE_TYPE = pa.struct([("text", pa.string()), ("at", pa.timestamp("us", "UTC"))])
MESSAGES: list[Any] = [{"name": "Ann", "home": {"street": "Main"}, "at": NOW}, None]
OBJECT = {
    "title": "Note",
    "type": "object",
    "properties": {"text": {"type": "string"}, "at": {"type": "string", "format": "date-time"}},
    "required": ["text"],
}


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as running:
        running.create_topic("orders", 1)
        yield running


def table(values: list[Any], kind: pa.DataType | None = ORDER_TYPE, **columns: Any) -> pa.Table:
    return pa.table({"value": pa.array(values, kind), **columns})


async def send(broker: EmbeddedCluster, serializer: Any, rows: pa.Table, **settings: Any) -> None:
    async with Producer(
        broker.bootstrap_servers, value_serializer=serializer, **settings
    ) as producer:
        await (await producer.send_arrow("orders", rows)).wait()


def reader(broker: EmbeddedCluster, deserializer: Any, **settings: Any) -> Consumer:
    return Consumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
        **settings,
    )


async def read(consumer: Consumer, count: int) -> pa.Table:
    """Tables of at least ``count`` rows together."""
    found: list[pa.Table] = []
    async with asyncio.timeout(20):
        while sum(each.num_rows for each in found) < count:
            found.append(await consumer.getarrow())
    return pa.concat_tables(found)


FORMATS: dict[str, Any] = {
    "avro": lambda registry: (
        lambda **options: AvroSerializer(registry, ORDER, **options),
        AvroDeserializer(registry),
        table(ORDERS),
        ORDERS,
    ),
    "json": lambda registry: (
        lambda **options: JsonSchemaSerializer(registry, OBJECT, **options),
        JsonSchemaDeserializer(registry),
        table([{"text": "a", "at": NOW}, None, {"text": "b", "at": None}], NOTE_TYPE),
        [{"text": "a", "at": NOW}, None, {"text": "b"}],
    ),
    "protobuf": lambda registry: (
        lambda **options: ProtobufSerializer(registry, User, **options),
        ProtobufDeserializer(registry),
        table(MESSAGES, None),
        [User(name="Ann", home={"street": "Main"}, at=NOW), None],
    ),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("in_header", [False, True])
async def test_columns_are_the_records_of_the_serializer_and_come_back(
    broker: EmbeddedCluster, registry: SchemaRegistry, format: str, in_header: bool
) -> None:
    make, deserializer, rows, values = FORMATS[format](registry)
    own = [{"key": "h", "value": b"1"}]
    rows = rows.append_column(
        "headers",
        pa.array(
            [own, None, own][: len(rows)],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    )
    serializer = make(id_in_header=in_header)
    await send(broker, serializer, rows)
    stored = broker.records("orders")
    for number, (record, value) in enumerate(zip(stored, values, strict=True)):
        data, headers = await serializer.serialize("orders", value)
        assert record.value == data
        assert record.headers == ((("h", b"1"),) if number != 1 else ()) + headers
    async with reader(broker, deserializer) as consumer:
        found = await read(consumer, len(rows))
    assert found["value"].type == rows["value"].type or format != "avro"
    assert found["value"].to_pylist() == rows["value"].to_pylist()
    assert found["offset"].to_pylist() == list(range(len(rows)))


@pytest.mark.parametrize("in_header", [False, True])
async def test_confluent_reads_the_columns(
    broker: EmbeddedCluster,
    server: EmbeddedSchemaRegistry,
    registry: SchemaRegistry,
    in_header: bool,
) -> None:
    await send(broker, AvroSerializer(registry, ORDER, id_in_header=in_header), table(ORDERS))

    def check() -> None:
        with confluent.SchemaRegistryClient({"url": server.url}) as client:
            judge = confluent.AvroDeserializer(client)
            for record, value in zip(broker.records("orders"), ORDERS, strict=True):
                context = confluent.SerializationContext(
                    "orders", confluent.MessageField.VALUE, headers=list(record.headers)
                )
                assert judge(record.value, context) == value

    await asyncio.to_thread(check)


async def test_keys(broker: EmbeddedCluster, registry: SchemaRegistry) -> None:
    settings: Any = {"key_serializer": AvroSerializer(registry, "long", is_key=True)}
    rows = table(["x", "y"], pa.string(), key=pa.array([7, None], pa.int32()))
    await send(broker, AvroSerializer(registry, "string"), rows, **settings)
    assert [record.key for record in broker.records("orders")] == [b"\0\0\0\0\1\x0e", None]
    key = AvroDeserializer(registry, is_key=True)
    async with reader(broker, AvroDeserializer(registry), key_deserializer=key) as consumer:
        found = await read(consumer, 2)
    assert found.select(["key", "value"]).to_pydict() == {"key": [7, None], "value": ["x", "y"]}
    assert found["key"].type == pa.int64()


async def test_records_of_several_schemas_become_the_newest(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    for schema in (ORDER, LATER, ORDER):
        await send(broker, AvroSerializer(registry, schema), table(ORDERS[:1]))
    async with reader(broker, AvroDeserializer(registry)) as consumer:
        found = (await read(consumer, 3))["value"].to_pylist()
    assert [each["note"] for each in found] == ["-"] * 3


async def test_records_become_the_readers_schema(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    for schema in (ORDER, LATER):
        await send(broker, AvroSerializer(registry, schema), table(ORDERS))
    wanted = {
        **ORDER,
        "fields": [ORDER["fields"][1], {"name": "unit", "type": "string", "default": "kg"}],
    }
    async with reader(broker, AvroDeserializer(registry, wanted)) as consumer:
        found = await read(consumer, 6)
    assert found["value"].type == pa.struct([("count", pa.int64()), ("unit", pa.string())])
    expected = [{"count": 2, "unit": "kg"}, None, {"count": 1, "unit": "kg"}]
    assert found["value"].to_pylist() == expected * 2


async def test_a_bad_record_stops_after_those_before_it(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, ORDER)
    good, _ = await serializer.serialize("orders", ORDERS[0])
    assert good is not None
    await send(broker, None, table([good, good, good[:-1], good], pa.binary()))
    async with reader(broker, AvroDeserializer(registry)) as consumer:
        first = await read(consumer, 2)
        assert first["value"].to_pylist() == [ORDERS[0]] * 2
        for _ in range(2):
            with pytest.raises(DeserializationError, match="offset 2 of orders-0") as caught:
                await consumer.getarrow(timeout_ms=10_000)
            assert caught.value.value == good[:-1]
        (tp,) = consumer.assignment()
        consumer.seek(tp, 3)
        assert (await read(consumer, 1))["offset"].to_pylist() == [3]


async def test_records_one_by_one_and_columns_may_alternate(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    await send(broker, AvroSerializer(registry, "long"), table(list(range(2_000)), pa.int64()))
    found: list[int] = []
    async with reader(broker, AvroDeserializer(registry), max_poll_records=7) as consumer:
        async with asyncio.timeout(20):
            while len(found) < 2_000:
                found += (await consumer.getarrow(3))["value"].to_pylist()
                if len(found) < 1_990:
                    found.append((await consumer.getone()).value)
                    found += [each.value for each in await consumer.getmany(3)]
    assert found == list(range(2_000))


async def test_a_registry_that_refuses_fails_the_call_and_loses_nothing(
    broker: EmbeddedCluster, server: EmbeddedSchemaRegistry, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, ORDER)
    server.fail(422)
    with pytest.raises(SerializationError, match="value_serializer can't serialize the column"):
        await send(broker, serializer, table(ORDERS))
    await send(broker, serializer, table(ORDERS))
    async with SchemaRegistry(server.url) as other:
        async with reader(broker, AvroDeserializer(other)) as consumer:
            server.fail(422)
            with pytest.raises(DeserializationError, match="offset 0"):
                await consumer.getarrow(timeout_ms=10_000)
            assert (await read(consumer, 3))["value"].to_pylist() == ORDERS


async def test_a_call_has_the_rows_of_one_topic(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    broker.create_topic("names", 1)
    await send(broker, AvroSerializer(registry, "long"), table([1], pa.int64()))
    async with Producer(
        broker.bootstrap_servers, value_serializer=AvroSerializer(registry, "string")
    ) as producer:
        await (await producer.send_arrow("names", table(["a"], pa.string()))).wait()
    async with Consumer(
        "orders",
        "names",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(registry),
    ) as consumer:
        tables = [await consumer.getarrow(timeout_ms=10_000) for _ in range(2)]
        # Now all schemas are known; both topics wait to be read.
        for tp in consumer.assignment():
            consumer.seek(tp, 0)
        buffered = consumer._records._ready._buffer._queue
        await until(lambda: len(buffered) >= 2, 10)
        tables += [await consumer.getarrow(timeout_ms=10_000) for _ in range(2)]
    assert [each.num_rows for each in tables] == [1] * 4
    found = {each["topic"][0].as_py(): each["value"].type for each in tables}
    assert found == {"orders": pa.int64(), "names": pa.string()}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["x"]), r"a column of string can't be written as record Order"),
        (pa.array([{"item": 1}]), r"item: a column of int64 can't be written as string"),
        (
            pa.array([{"item": "x"}]),
            r"count: long has no default, and the column has no field 'count'",
        ),
        (
            pa.array([ORDERS[0], {**ORDERS[0], "item": None}], ORDER_TYPE),
            r"item: row 1 is null, which string does not allow",
        ),
        (
            pa.array([{**ORDERS[0], "price": decimal.Decimal("1.5")}]),
            r"price: the column of decimal128\(2, 1\) does not fit decimal\(9, 0\)",
        ),
        (
            pa.array([{**ORDERS[0], "at": NOW.replace(tzinfo=None)}]),
            r"at: a column of timestamp\[us\] can't be written as timestamp-millis",
        ),
        (
            pa.array([{**ORDERS[0], "tags": [1]}]),
            r"tags\[\]: a column of int64 can't be written as string",
        ),
    ],
)
async def test_errors_name_the_column(
    broker: EmbeddedCluster, registry: SchemaRegistry, column: pa.Array, message: str
) -> None:
    if pa.types.is_struct(column.type) and column.type.get_field_index("price") >= 0:
        place = column.type.get_field_index("price")
        kind = column.type.field(place).type
        if kind == pa.decimal128(1, 0):  # what Arrow infers
            fields = list(column.type)
            fields[place] = pa.field("price", pa.decimal128(9, 0))
            column = column.cast(pa.struct(fields))
    with pytest.raises(SerializationError, match="column 'value' for topic 'orders': .*" + message):
        await send(broker, AvroSerializer(registry, ORDER), pa.table({"value": column}))
    assert broker.records("orders") == []


class FirstPartition:
    def partition(self, *given: Any) -> int:
        return 0


async def test_what_it_needs(broker: EmbeddedCluster, registry: SchemaRegistry) -> None:
    rows = table(["x"], pa.string())
    with pytest.raises(ConfigError, match=r"value_serializer=.* serializes columns"):
        await send(broker, StringSerializer(), rows)
    serializer = AvroSerializer(registry, "string")
    with pytest.raises(ConfigError, match=r"partitioner=.* needs single records"):
        await send(broker, serializer, rows, partitioner=FirstPartition())
    with pytest.raises(ConfigError, match="from_dict"):
        await send(broker, serializer, rows)
        async with reader(broker, AvroDeserializer(registry, from_dict=dict)) as consumer:
            try:
                await consumer.getarrow(timeout_ms=10_000)
            except DeserializationError as error:
                assert error.__cause__ is not None
                raise error.__cause__ from None


async def test_strict_and_types_without_columns(registry: SchemaRegistry) -> None:
    union = AvroSerializer(registry, '["null", "string", "long"]')
    tree = AvroSerializer(
        registry,
        {"type": "record", "name": "T", "fields": [{"name": "t", "type": ["null", "T"]}]},
    )
    for serializer, column, message in (
        (union, pa.array(["x"]), "a union of 2 types and null"),
        (tree, pa.array([{"t": None}]), "t: T contains itself"),
        (
            AvroSerializer(registry, ORDER, strict=True),
            pa.array([{"other": 1}]),
            "record Order has no field 'other', and strict is set",
        ),
    ):
        encode = await encoder(serializer)
        with pytest.raises((TypeError, ValueError), match=message):
            encode(column)


async def encoder(serializer: Any) -> Any:
    topic = f"topic-{id(serializer)}"
    with pytest.raises(NotPrepared) as needed:
        serializer.column_encoder(topic)
    await needed.value.prepare()
    return serializer.column_encoder(topic)


async def test_an_unknown_id_is_an_error_of_its_record(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    good, _ = await AvroSerializer(registry, ORDER).serialize("orders", ORDERS[0])
    await send(broker, None, table([good, b"\0\0\0\0\x63ab", good], pa.binary()))
    async with reader(broker, AvroDeserializer(registry)) as consumer:
        assert (await read(consumer, 1))["value"].to_pylist() == ORDERS[:1]
        with pytest.raises(DeserializationError, match=r"offset 1 of orders-0: .*99"):
            await consumer.getarrow(timeout_ms=10_000)

"""Avro: data through producer, broker and consumer; which schema is used; evolution; models."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any

import pydantic
import pytest

from aioprod import ConfigError, Consumer, DeserializationError, Producer, SerializationError
from aioprod.schema_registry import (
    AvroDecimal,
    AvroDeserializer,
    AvroSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
    SchemaRegistryError,
    avro_schema,
    record_name,
    topic_record_name,
)
from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry

USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
NEWER = {
    **USER,
    "fields": [*USER["fields"], {"name": "mail", "type": ["null", "string"], "default": None}],
}
ANN = {"name": "Ann", "age": 41}


async def test_records_go_through_producer_and_consumer(
    broker: EmbeddedCluster, server: EmbeddedSchemaRegistry, registry: SchemaRegistry
) -> None:
    async with Producer(
        broker.bootstrap_servers,
        key_serializer=AvroSerializer(registry, "string", is_key=True),
        value_serializer=AvroSerializer(registry, USER),
    ) as producer:
        deliveries = [
            await producer.send("users", {"name": "Ann", "age": n}, key=f"k{n}") for n in range(100)
        ]
        for delivery in deliveries:
            await delivery
    assert server.subjects() == ["users-key", "users-value"]
    assert len(server.calls) == 2
    async with (
        SchemaRegistry(server.url) as another,
        Consumer(
            "users",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            key_deserializer=AvroDeserializer(another, is_key=True),
            value_deserializer=AvroDeserializer(another),
        ) as consumer,
    ):
        found = [await consumer.getone(timeout_ms=10_000) for _ in range(100)]
    assert [(each.key, each.value["age"]) for each in found] == [(f"k{n}", n) for n in range(100)]
    assert len(server.calls) == 4


async def test_the_schema_id_can_be_in_a_header(
    broker: EmbeddedCluster, registry: SchemaRegistry
) -> None:
    serializer = AvroSerializer(registry, USER, id_in_header=True)
    async with Producer(broker.bootstrap_servers, value_serializer=serializer) as producer:
        await producer.send_and_wait("users", ANN, headers=[("trace", b"1")])
    (record,) = broker.records("users")
    version = await registry.get_version("users-value")
    assert version.guid is not None
    guid = b"\1" + uuid.UUID(version.guid).bytes
    assert list(record.headers) == [("trace", b"1"), ("__value_schema_id", guid)]
    assert record.value == b"\x06Ann\x52"
    found = await AvroDeserializer(registry).deserialize("users", record.value, record.headers)
    assert found == ANN


# -- evolution -------------------------------------------------------------------------------------


async def test_older_and_newer_records_are_read_as_the_readers_schema(
    registry: SchemaRegistry,
) -> None:
    old, _ = await AvroSerializer(registry, USER).serialize("users", ANN)
    new, _ = await AvroSerializer(registry, NEWER).serialize("users", {**ANN, "mail": "a@b"})
    for reader, older, newer in (
        (NEWER, {**ANN, "mail": None}, {**ANN, "mail": "a@b"}),
        (USER, ANN, ANN),
        (None, ANN, {**ANN, "mail": "a@b"}),
    ):
        deserializer = AvroDeserializer(registry, reader)
        assert await deserializer.deserialize("users", old) == older
        assert await deserializer.deserialize("users", new) == newer


async def test_a_schema_that_does_not_fit_is_refused(registry: SchemaRegistry) -> None:
    await registry.register("users-value", Schema(json.dumps(USER)))
    other = {**USER, "fields": [{"name": "id", "type": "long"}]}
    with pytest.raises(SerializationError) as raised:
        await AvroSerializer(registry, other).serialize("users", {"id": 1})
    cause = raised.value.__cause__
    assert isinstance(cause, SchemaRegistryError)
    assert (cause.status, cause.code, cause.subject) == (409, 409, "users-value")
    assert not cause.retriable


# -- which schema is used --------------------------------------------------------------------------


async def test_the_latest_version_is_used_in_place_of_the_own_schema(
    registry: SchemaRegistry,
) -> None:
    first = await registry.register("users-value", Schema(json.dumps(USER)))
    serializer = AvroSerializer(registry, use_latest_version=True, latest_ttl_ms=60_000)
    data, _ = await serializer.serialize("users", ANN)
    assert data == b"\0" + first.id.to_bytes(4, "big") + b"\x06Ann\x52"
    by_id = AvroSerializer(registry, use_schema_id=first.id)
    assert (await by_id.serialize("other", ANN))[0] == data


async def test_a_latest_version_is_requested_again_when_its_time_has_passed(
    registry: SchemaRegistry,
) -> None:
    await registry.register("users-value", Schema(json.dumps(USER)))
    forever = AvroSerializer(registry, use_latest_version=True)
    briefly = AvroSerializer(registry, use_latest_version=True, latest_ttl_ms=20)
    before = await forever.serialize("users", ANN)
    assert await briefly.serialize("users", ANN) == before
    newer = await registry.register("users-value", Schema(json.dumps(NEWER)))
    async with asyncio.timeout(10):
        while (await briefly.serialize("users", ANN))[0] == before[0]:
            await registry.subjects()
    data, _ = await briefly.serialize("users", ANN)
    assert data is not None and data[1:5] == newer.id.to_bytes(4, "big")
    assert await forever.serialize("users", ANN) == before


async def test_a_schema_that_is_not_registered_is_an_error_without_auto_register(
    registry: SchemaRegistry,
) -> None:
    serializer = AvroSerializer(registry, USER, auto_register=False)
    with pytest.raises(SerializationError, match="40401"):
        await serializer.serialize("users", ANN)
    known = await registry.register("users-value", Schema(json.dumps(USER)))
    data, _ = await serializer.serialize("users", ANN)
    assert data is not None and data[1:5] == known.id.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("strategy", "subject"), [(record_name, "shop.User"), (topic_record_name, "users-shop.User")]
)
async def test_subjects_by_other_strategies(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry, strategy: Any, subject: str
) -> None:
    await AvroSerializer(registry, USER, subject=strategy).serialize("users", ANN)
    assert server.subjects() == [subject]


PAIR_OF_USERS = {
    "type": "record",
    "name": "Pair",
    "fields": [{"name": "by", "type": "shop.User"}, {"name": "to", "type": "shop.User"}],
}
REFERENCE = SchemaReference("shop.User", "user", 1)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (PAIR_OF_USERS, {"by": ANN, "to": ANN}),
        ({"type": "array", "items": "shop.User"}, [ANN, ANN]),
        (["null", {"type": "map", "values": "shop.User"}], {"a": ANN}),
        (["null", "shop.User", PAIR_OF_USERS], {"by": ANN, "to": ANN}),
    ],
    ids=["record", "array", "map in a union", "union"],
)
async def test_a_schema_may_refer_to_others(
    registry: SchemaRegistry, schema: Any, value: Any
) -> None:
    await registry.register("user", Schema(json.dumps(USER)))
    used = Schema(json.dumps(schema), references=(REFERENCE,))
    data, _ = await AvroSerializer(registry, used).serialize("orders", value)
    assert await AvroDeserializer(registry).deserialize("orders", data) == value
    assert await AvroDeserializer(registry, used).deserialize("orders", data) == value


async def test_references_may_have_references(registry: SchemaRegistry) -> None:
    await registry.register("user", Schema(json.dumps(USER)))
    pair = Schema(json.dumps(PAIR_OF_USERS), references=(REFERENCE,))
    await registry.register("pair", pair)
    references = (SchemaReference("Pair", "pair", 1),)
    many = Schema('{"type":"array","items":"Pair"}', references=references)
    value = [{"by": ANN, "to": ANN}] * 2
    data, _ = await AvroSerializer(registry, many).serialize("orders", value)
    assert await AvroDeserializer(registry).deserialize("orders", data) == value


def test_an_invalid_schema_is_refused_at_once(registry: SchemaRegistry) -> None:
    for schema in ("{", "no.such.Type", {"type": "array"}):
        with pytest.raises(ConfigError, match="schema: invalid Avro schema"):
            AvroSerializer(registry, schema)
    with pytest.raises(ConfigError, match="schema is missing"):
        AvroSerializer(registry)
    with pytest.raises(ConfigError, match="both set"):
        AvroSerializer(registry, USER, use_latest_version=True, use_schema_id=1)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no schema id"),
        (b"\5abcdef", "no schema id: 7 bytes that begin with 05.* 16 bytes;"),
        (b'{"a": 1}', "perhaps JSON without a schema id; use JsonDeserializer"),
        (b"\xc3\x01" + bytes(9), "perhaps Avro's single-object encoding"),
        (b"\3\0" + bytes(20), "perhaps the format of AWS Glue's registry"),
        (b"\0\0\0\0\x63x", "40403"),
        (b"\0\0\0\0\1\x06Ann\x52more", "4 bytes follow"),
        (b"\0\0\0\0\1\x06An", "EOF|bytes|read"),
    ],
)
async def test_data_that_cannot_be_read(
    registry: SchemaRegistry, broker: EmbeddedCluster, data: bytes, problem: str
) -> None:
    await registry.register("users-value", Schema(json.dumps(USER)))
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("users", data)
    async with Consumer(
        "users",
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(registry),
    ) as consumer:
        with pytest.raises(DeserializationError, match=problem):
            await consumer.getone(timeout_ms=10_000)


# -- models ----------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Address:
    street: str
    zip_code: str | None = None


@dataclass
class Phone:
    number: str


@dataclass
class Customer:
    """A customer."""

    id: uuid.UUID
    name: str
    born: datetime.date
    seen: datetime.datetime
    credit: Annotated[decimal.Decimal, AvroDecimal(10, 2)]
    home: Address
    others: list[Address]
    color: Color = Color.RED
    labels: dict[str, int] = field(default_factory=dict)
    contact: Phone | Address | None = None
    photo: bytes = b""


class Item(pydantic.BaseModel):
    name: str
    price: float
    count: int = 1


class Basket(pydantic.BaseModel):
    owner: str
    items: list[Item]
    color: Color | None = None
    at: datetime.datetime


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678900, tzinfo=datetime.UTC)
CUSTOMER = Customer(
    uuid.UUID(int=5),
    "Ann",
    datetime.date(1985, 1, 2),
    NOW,
    decimal.Decimal("12.50"),
    Address("Main"),
    [Address("Second", "123")],
    Color.BLUE,
    {"x": 1},
    Address("Third"),
    b"\0\1",
)
BASKET = Basket(owner="Ann", items=[Item(name="pen", price=1.5)], color=Color.BLUE, at=NOW)


@pytest.mark.parametrize("value", [CUSTOMER, BASKET], ids=["dataclass", "pydantic"])
async def test_models_go_there_and_back(registry: SchemaRegistry, value: Any) -> None:
    data, _ = await AvroSerializer(registry, type(value)).serialize("t", value)
    assert await AvroDeserializer(registry, type(value)).deserialize("t", data) == value


@pytest.mark.parametrize("contact", [Phone("1"), Address("Main", "1"), Address("x"), None])
async def test_the_right_model_of_a_union_comes_back(
    registry: SchemaRegistry, contact: Any
) -> None:
    value = dataclasses.replace(CUSTOMER, contact=contact)
    for namespace in (None, "shop.v1"):
        schema = avro_schema(Customer, namespace=namespace)
        data, _ = await AvroSerializer(registry, schema).serialize(f"t{namespace}", value)
        reader = AvroDeserializer(registry, schema, model=Customer)
        assert await reader.deserialize("t", data) == value


def test_the_schema_of_a_model() -> None:
    fields = {each["name"]: each for each in json.loads(avro_schema(Customer).text)["fields"]}
    assert fields["home"]["type"]["fields"] == [
        {"name": "street", "type": "string"},
        {"name": "zip_code", "type": ["null", "string"], "default": None},
    ]
    assert fields["others"]["type"] == {"type": "array", "items": "Address"}
    assert fields["color"]["default"] == "red"
    assert fields["photo"] == {"name": "photo", "type": "bytes", "default": ""}
    assert fields["contact"]["type"][0] == "null"
    assert json.loads(avro_schema(Customer, namespace="a.b").text)["namespace"] == "a.b"
    assert json.loads(avro_schema(Customer).text)["doc"] == "A customer."
    assert "doc" not in json.loads(avro_schema(Address).text)


@dataclass
class Odd:
    amount: decimal.Decimal


def test_a_type_without_an_avro_type_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Odd\.amount: the type .*Decimal.* AvroDecimal"):
        avro_schema(Odd)

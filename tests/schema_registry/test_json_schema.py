"""JSON Schema: checks, references, models."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal

import pydantic
import pytest

from aioprod import ConfigError
from aioprod.schema_registry import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Schema,
    SchemaReference,
    SchemaRegistry,
    json_schema,
    record_name,
)
from aioprod.testing.registry import EmbeddedSchemaRegistry

USER = {
    "title": "User",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}


async def test_data_go_there_and_back(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    serializer = JsonSchemaSerializer(registry, USER, subject=record_name)
    data, _ = await serializer.serialize("users", {"name": "Ännchen"})
    assert data == b"\0\0\0\0\1" + '{"name":"Ännchen"}'.encode()
    assert server.subjects() == ["User"]
    assert await JsonSchemaDeserializer(registry).deserialize("users", data) == {"name": "Ännchen"}


async def test_data_that_break_the_schema_are_refused_without_showing_them(
    registry: SchemaRegistry,
) -> None:
    serializer = JsonSchemaSerializer(registry, USER)
    with pytest.raises(ValueError, match="at /age violate 'minimum'") as raised:
        await serializer.serialize("users", {"name": "secret", "age": -7})
    assert "-7" not in str(raised.value) and raised.value.__context__ is None
    lax = JsonSchemaSerializer(registry, USER, validate=False)
    data, _ = await lax.serialize("users", {"name": "x", "age": -7})
    with pytest.raises(ValueError, match="'minimum'"):
        await JsonSchemaDeserializer(registry).deserialize("users", data)
    reader = {**USER, "properties": {"name": {"type": "string"}}}
    found = await JsonSchemaDeserializer(registry, reader).deserialize("users", data)
    assert found["age"] == -7


async def test_a_schema_may_refer_to_others(registry: SchemaRegistry) -> None:
    await registry.register("user", Schema(json.dumps(USER), "JSON"))
    team = {"type": "array", "items": {"$ref": "user.json"}}
    schema = Schema(json.dumps(team), "JSON", (SchemaReference("user.json", "user", 1),))
    serializer = JsonSchemaSerializer(registry, schema)
    data, _ = await serializer.serialize("teams", [{"name": "Ann"}])
    assert await JsonSchemaDeserializer(registry).deserialize("teams", data) == [{"name": "Ann"}]
    with pytest.raises(ValueError, match="/0/age"):
        await serializer.serialize("teams", [{"name": "Ann", "age": -1}])


def test_an_invalid_schema_is_refused_at_once(registry: SchemaRegistry) -> None:
    with pytest.raises(ConfigError, match="invalid JSON:"):
        JsonSchemaSerializer(registry, "{")
    with pytest.raises(ConfigError, match="invalid JSON Schema"):
        JsonSchemaSerializer(registry, {"type": "no such type"})
    with pytest.raises(ConfigError, match="schema is missing"):
        JsonSchemaSerializer(registry)


@dataclass
class Address:
    street: str


@dataclass
class Customer:
    """A customer."""

    id: uuid.UUID
    born: datetime.date
    seen: datetime.datetime
    credit: decimal.Decimal
    home: Address
    others: list[Address]
    kind: Literal["new", "old"] = "new"
    tags: set[str] = field(default_factory=set)
    labels: dict[str, float] = field(default_factory=dict)
    boss: Customer | None = None
    photo: bytes = b""


class Item(pydantic.BaseModel):
    name: str = pydantic.Field(alias="itemName", min_length=1)
    at: datetime.datetime


CUSTOMER = Customer(
    uuid.UUID(int=5),
    datetime.date(1985, 1, 2),
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    decimal.Decimal("12.50"),
    Address("Main"),
    [Address("Second")],
    "old",
    {"a"},
    {"x": 1.5},
    None,
    b"\0\1",
)
BOSS = Customer(CUSTOMER.id, CUSTOMER.born, CUSTOMER.seen, CUSTOMER.credit, CUSTOMER.home, [])
CUSTOMER.boss = BOSS
ITEM = Item(itemName="pen", at=CUSTOMER.seen)


@pytest.mark.parametrize("value", [CUSTOMER, ITEM], ids=["dataclass", "pydantic"])
async def test_models_go_there_and_back(registry: SchemaRegistry, value: Any) -> None:
    data, _ = await JsonSchemaSerializer(registry, type(value)).serialize("t", value)
    assert await JsonSchemaDeserializer(registry, type(value)).deserialize("t", data) == value


def test_the_schema_of_a_dataclass() -> None:
    schema = json.loads(json_schema(Customer).text)
    assert schema["required"] == [
        "id",
        "born",
        "seen",
        "credit",
        "home",
        "others",
        "tags",
        "labels",
    ]
    assert schema["properties"]["boss"] == {
        "anyOf": [{"$ref": "#"}, {"type": "null"}],
        "default": None,
    }
    assert schema["properties"]["tags"]["uniqueItems"]
    assert list(schema["$defs"]) == ["Address"]


def test_a_type_without_a_json_type_is_named() -> None:
    @dataclass
    class Odd:
        it: complex

    with pytest.raises(ConfigError, match=r"Odd\.it: the type .*complex"):
        json_schema(Odd)

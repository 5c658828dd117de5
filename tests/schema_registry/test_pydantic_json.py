"""pydantic models: what a model writes fits its own schema, and is read back as it was."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pydantic
import pytest
from pydantic import Field
from pydantic.alias_generators import to_camel

from aioprod.schema_registry import (
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    SchemaRegistry,
    json_schema,
)


class Aliased(pydantic.BaseModel):
    written: int = Field(serialization_alias="W")
    both: int = Field(alias="B")
    other: int = Field(validation_alias="readAs", serialization_alias="writtenAs")
    choice: int = Field(validation_alias=pydantic.AliasChoices("c1", "c2"), default=0)
    path: int = Field(validation_alias=pydantic.AliasPath("p"), serialization_alias="q", default=0)


class Camel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=to_camel, populate_by_name=True)
    first_name: str
    home_town: str | None = None


class Swapped(pydantic.BaseModel):
    one: int = Field(validation_alias="one", serialization_alias="two")
    two: int = Field(validation_alias="two", serialization_alias="one")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    net: int

    @pydantic.computed_field(alias="grossAmount")  # type: ignore[prop-decorator]
    @property
    def gross(self) -> int:
        return self.net * 2


class Around(pydantic.BaseModel):
    strict: Strict
    many: list[Aliased] = []
    by_name: dict[str, Strict] = {}
    either: Strict | Aliased | None = None
    pair: tuple[Strict, int] | None = None
    maybe: list[Strict] | dict[str, Strict] | None = None


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(serialization_alias="livesLeft")


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = Field(serialization_alias="livesLeft", default=1)


class Owner(pydantic.BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Tree(pydantic.BaseModel):
    size: int = Field(serialization_alias="theSize")
    kids: list[Tree] = []


class Color(Enum):
    RED = "red"


class Values(pydantic.BaseModel):
    amount: decimal.Decimal = decimal.Decimal("1.50")
    at: datetime.datetime = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
    clock: datetime.time = datetime.time(12, 0, tzinfo=datetime.UTC)
    long: datetime.timedelta = datetime.timedelta(minutes=3)
    key: uuid.UUID = uuid.UUID(int=7)
    color: Color = Color.RED
    point: tuple[float, float] = (52.5, 13.4)
    names: set[str] = {"a"}
    made: list[int] = Field(default_factory=lambda: [1])
    hidden: int = Field(default=0, exclude=True)


class Shown(pydantic.BaseModel):
    price: float

    @pydantic.field_serializer("price")
    def _price(self, price: float) -> str:
        return f"{price:.2f}"


class Roots(pydantic.RootModel[list[Aliased]]):
    pass


ALIASED = Aliased.model_validate({"written": 1, "B": 2, "readAs": 3, "c2": 4, "p": 5})
MODELS: list[Any] = [
    ALIASED,
    Camel(first_name="Ann", home_town="Rome"),
    Swapped(one=1, two=2),
    Strict(net=3),
    Around(strict=Strict(net=1), many=[ALIASED], by_name={"a": Strict(net=2)}),
    Around(strict=Strict(net=1), either=ALIASED, pair=(Strict(net=3), 4), maybe=[Strict(net=5)]),
    Around(strict=Strict(net=1), either=Strict(net=2), maybe={"a": Strict(net=6)}),
    Owner(pets=[Dog(lives=1), Cat(lives=9)]),
    Tree(size=1, kids=[Tree(size=2, kids=[Tree(size=3)])]),
    Values(),
    Shown(price=1.5),
    Roots([ALIASED]),
]


@pytest.mark.parametrize("value", MODELS, ids=lambda value: type(value).__name__)
async def test_what_a_model_writes_it_reads(registry: SchemaRegistry, value: Any) -> None:
    kind = type(value)
    data, _ = await JsonSchemaSerializer(registry, kind).serialize("t", value)
    assert data is not None
    assert json.loads(data[5:]) == json.loads(value.model_dump_json(by_alias=True))
    assert await JsonSchemaDeserializer(registry, kind).deserialize("t", data) == value
    assert await JsonSchemaDeserializer(registry, model=kind).deserialize("t", data) == value


async def test_what_others_write_is_read_by_the_names_that_the_model_reads(
    registry: SchemaRegistry,
) -> None:
    data, _ = await JsonSchemaSerializer(registry, {"type": "object"}).serialize(
        "t", {"written": 1, "B": 2, "readAs": 3, "c1": 4}
    )
    found = await JsonSchemaDeserializer(registry, Aliased).deserialize("t", data)
    assert (found.written, found.both, found.other, found.choice) == (1, 2, 3, 4)
    data, _ = await JsonSchemaSerializer(registry, {"type": "object"}).serialize("t", {"net": 3})
    assert await JsonSchemaDeserializer(registry, Strict).deserialize("t", data) == Strict(net=3)
    data, _ = await JsonSchemaSerializer(registry, {"type": "object"}).serialize("t", {"net": "x"})
    with pytest.raises(ValueError, match="/net violate 'type'"):
        await JsonSchemaDeserializer(registry, Strict).deserialize("t", data)


@dataclass
class Keeper:
    tree: Tree
    around: Around


async def test_definitions_of_models_in_a_dataclass_are_found(registry: SchemaRegistry) -> None:
    value = Keeper(Tree(size=1, kids=[Tree(size=2)]), Around(strict=Strict(net=1), many=[ALIASED]))
    data, _ = await JsonSchemaSerializer(registry, Keeper).serialize("t", value)
    assert await JsonSchemaDeserializer(registry, Keeper).deserialize("t", data) == value
    names = json.loads(json_schema(Keeper).text)["$defs"].keys()
    assert names == {"Tree", "Around", "Strict", "Aliased"}

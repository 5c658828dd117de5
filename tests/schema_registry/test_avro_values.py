"""Avro's values: defaults, branches of unions, wrong types, resolution, and models."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import pickle
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NewType

import pyarrow as pa  # type: ignore[import-untyped]
import pydantic
import pytest

from aioprod import ConfigError
from aioprod.schema_registry import (
    AvroDecimal,
    AvroDeserializer,
    AvroSerializer,
    Schema,
    SchemaRegistry,
    avro_schema,
)
from aioprod.schema_registry.avro import Parsing, read_by
from aioprod.schema_registry.avro_json import from_json, to_json
from aioprod.schema_registry.avro_nodes import parse_node
from aioprod.schema_registry.avro_resolution import UNDERLYING
from aioprod.schema_registry.avro_writing import writer_of

D = decimal.Decimal
UTC = datetime.UTC


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": each[0], "type": each[1], **({"default": each[2]} if len(each) > 2 else {})}
            for each in fields
        ],
        **more,
    }


def fixed(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": f"F{size}", "size": size, **more}


PRICE = logical("bytes", "decimal", precision=9, scale=2)
MOMENT = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
INNER = record(("n", "int"), ("raw", "bytes", "\u0001"), name="Inner")
DEFAULTS: list[tuple[Any, Any, Any]] = [
    ("bytes", "\u00ff\u0001", b"\xff\x01"),
    (fixed(2), "\u00ff\u0000", b"\xff\0"),
    (PRICE, "d", D("1.00")),
    (PRICE, "\u0000", D("0.00")),
    (fixed(4, logicalType="decimal", precision=6, scale=1), "\u00ff\u00ff\u00ff\u00ff", D("-0.1")),
    (logical("int", "date"), 1, datetime.date(1970, 1, 2)),
    (logical("int", "time-millis"), 1500, datetime.time(0, 0, 1, 500_000)),
    (logical("long", "time-micros"), 1, datetime.time(0, 0, 0, 1)),
    (logical("long", "timestamp-millis"), 1000, MOMENT),
    (logical("long", "timestamp-micros"), 1_000_000, MOMENT),
    (logical("long", "timestamp-nanos"), 1_000_000_001, 1_000_000_001),
    (logical("long", "local-timestamp-millis"), 1000, MOMENT.replace(tzinfo=None)),
    (logical("string", "uuid"), str(uuid.UUID(int=7)), uuid.UUID(int=7)),
    (fixed(16, logicalType="uuid"), "\0" * 15 + "\7", uuid.UUID(int=7)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ("float", "NaN", float("nan")),
    ("double", 3, 3.0),
    ({"type": "array", "items": "bytes"}, ["\u00e9"], [b"\xe9"]),
    ({"type": "map", "values": PRICE}, {"a": "d"}, {"a": D("1.00")}),
    (INNER, {"n": 1}, {"n": 1, "raw": b"\x01"}),
    (["bytes", "null"], "\u00e9", b"\xe9"),
    (["null", "string"], "later branch", "later branch"),
]


async def there_and_back(
    registry: SchemaRegistry, written: Any, value: Any, read: Any = None
) -> Any:
    """Write as one schema, and read as another."""
    data, _ = await AvroSerializer(registry, written).serialize("t", value)
    return await AvroDeserializer(registry, read).deserialize("t", data)


@pytest.mark.parametrize(("kind", "default", "wanted"), DEFAULTS, ids=lambda it: repr(it)[:60])
async def test_defaults_are_values_as_if_they_had_been_written(
    registry: SchemaRegistry, kind: Any, default: Any, wanted: Any
) -> None:
    older, newer = record(("id", "int")), record(("id", "int"), ("new", kind, default))
    await registry.set_compatibility("NONE")
    read = await there_and_back(registry, older, {"id": 1}, newer)
    written = await there_and_back(registry, newer, {"id": 1})
    # NaN does not equal itself.
    assert repr(read) == repr(written) == repr({"id": 1, "new": wanted})
    assert type(read["new"]) is type(wanted)


@pytest.mark.parametrize(("kind", "default", "wanted"), DEFAULTS, ids=lambda it: repr(it)[:60])
async def test_columns_have_the_same_defaults(
    registry: SchemaRegistry, kind: Any, default: Any, wanted: Any
) -> None:
    older, newer = record(("id", "int")), record(("id", "int"), ("new", kind, default))
    await registry.set_compatibility("NONE")
    serializer = AvroSerializer(registry, newer)
    row, _ = await serializer.serialize("t", {"id": 1})
    assert row is not None
    parsed = await serializer.parse(Schema(json.dumps(newer)), None)
    column = serializer.encode_column(parsed, row[:5], pa.array([{"id": 1}]), 0)
    assert column.to_pylist() == [row]
    data, _ = await AvroSerializer(registry, older).serialize("t", {"id": 1})
    reader = AvroDeserializer(registry, newer)
    await reader.deserialize("t", data)
    found = reader.deserialize_column("t", None, pa.array([data], pa.binary()))
    assert not found.errors
    value = found.data[0]["new"]
    if isinstance(wanted, uuid.UUID):
        wanted = str(wanted) if pa.types.is_string(value.type) else wanted.bytes
    inner = value.value if getattr(value.type, "unit", "") == "ns" else value.as_py()
    found_value = dict(inner) if isinstance(wanted, dict) else inner
    assert found_value == wanted or repr(found_value) == repr(wanted)  # NaN


@dataclass
class Keyed:
    n: int
    id: uuid.UUID = field(default_factory=uuid.uuid4)


async def test_a_class_supplies_nothing_in_columns(registry: SchemaRegistry) -> None:
    older = record(("n", "int"), name="Keyed")
    data, _ = await AvroSerializer(registry, older).serialize("t", {"n": 1})
    reader = AvroDeserializer(registry, Keyed)
    await reader.deserialize("t", data)
    found = reader.deserialize_column("t", None, pa.array([data], pa.binary()))
    assert "without a default" in str(found.errors[0]) and "'id'" in str(found.errors[0])


async def test_each_record_has_its_own_default(registry: SchemaRegistry) -> None:
    newer = record(("id", "int"), ("tags", {"type": "array", "items": "int"}, []))
    data, _ = await AvroSerializer(registry, record(("id", "int"))).serialize("t", {"id": 1})
    reader = AvroDeserializer(registry, newer)
    first = await reader.deserialize("t", data)
    first["tags"].append(1)
    assert (await reader.deserialize("t", data))["tags"] == []


def test_a_default_that_does_not_fit_is_refused_with_the_schema(registry: SchemaRegistry) -> None:
    for kind, default in (("int", "x"), (PRICE, 5), ("bytes", "\u0100"), (["int", "null"], "x")):
        with pytest.raises(ConfigError, match=r"R\.new: the default of the schema does not fit"):
            AvroSerializer(registry, record(("new", kind, default)))


# -- unions ----------------------------------------------------------------------------------------

A, B = (record(("n", "string"), name=f"x.{each}") for each in "AB")
COLORS = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
UNIONS: list[tuple[list[Any], Any, int]] = [
    ([A, B], ("x.B", {"n": "1"}), 1),
    ([A, B], {"n": "1", "-type": "B"}, 1),
    ([A, {"type": "map", "values": "string"}], ("map", {"n": "1"}), 1),
    ([A, {"type": "map", "values": "string"}], ("A", {"n": "1"}), 0),
    (["string", COLORS], ("Color", "RED"), 1),
    ([COLORS, "string"], ("string", "RED"), 1),
    (["bytes", fixed(2)], ("F2", b"ab"), 1),
    ([fixed(2), "bytes"], ("bytes", b"ab"), 1),
    (["int", "long"], ("long", 5), 1),
    (["long", "int"], ("int", 5), 1),
    (["float", "double"], ("float", 0.5), 0),
    (["float", "double"], 0.1, 1),
    (["double", "long"], 1, 1),
    (["int", "long"], 1 << 40, 1),
    (["double", "string"], 1, 0),
    (["boolean", "int"], True, 0),
    (["int", "boolean"], True, 1),
    (["bytes", "string"], "text", 1),
    (["string", {"type": "array", "items": "string"}], ["a"], 1),
    ([{"type": "array", "items": "string"}, "string"], "ab", 1),
    (["string", logical("long", "timestamp-millis")], MOMENT, 1),
    ([logical("int", "date"), logical("long", "timestamp-millis")], MOMENT, 1),
    ([logical("int", "date"), logical("long", "timestamp-millis")], MOMENT.date(), 0),
    (["double", PRICE], D("1.50"), 1),
    (["string", fixed(16, logicalType="uuid")], uuid.UUID(int=1), 1),
]


@pytest.mark.parametrize(("union", "value", "place"), UNIONS, ids=lambda it: repr(it)[:50])
async def test_the_branch_that_was_written_is_the_branch_that_is_read(
    registry: SchemaRegistry, union: list[Any], value: Any, place: int
) -> None:
    schema = record(("what", union))
    serializer = AvroSerializer(registry, schema)
    data, _ = await serializer.serialize("t", {"what": value})
    assert data is not None and data[5] == 2 * place
    found = await AvroDeserializer(registry).deserialize("t", data)
    inner = found["what"]
    plain = value[1] if isinstance(value, tuple) else value
    if isinstance(plain, dict):
        plain = {name: each for name, each in plain.items() if name != "-type"}
    assert inner == plain and json.dumps(found, default=str)
    for again in (found, pickle.loads(pickle.dumps(found))):
        assert (await serializer.serialize("t", again))[0] == data
    # The same as JSON, whose objects name the branch.
    parsed = Parsing(parse_node(schema), is_bytes=False)
    shown = to_json(parsed.node, read_by(parsed, parsed.node, UNDERLYING)(data, 5))
    assert list(shown["what"]) == [parsed.node.fields[0].node.branches[place].label]
    text = json.loads(json.dumps(shown))
    assert writer_of(parsed.node)(from_json(parsed.node, text)) == data[5:]


@dataclass
class Deposit:
    amount: int


@dataclass
class Withdrawal:
    amount: int


class Card(pydantic.BaseModel):
    amount: int


class Transfer(pydantic.BaseModel):
    amount: int


class Color(enum.Enum):
    RED = "red"


@dataclass
class Booking:
    what: Deposit | Withdrawal | Card | Transfer
    to: list[str] | str | dict[str, int]
    size: int | float
    color: str | Color
    raw: bytes | str | None
    more: list[Deposit | Withdrawal]


class Statement(pydantic.BaseModel):
    what: Card | Transfer
    to: list[str] | str
    color: Color | str
    more: dict[str, Card | Transfer | None]


BOOKINGS = [
    Booking(Withdrawal(1), "ann", 1, Color.RED, b"x", [Withdrawal(1), Deposit(2)]),
    Booking(Transfer(amount=1), ["ann"], 1.0, "red", "x", []),
    Booking(Card(amount=1), {"ann": 1}, 1.5, "blue", None, [Deposit(0)]),
]
STATEMENTS = [
    Statement(what=Transfer(amount=1), to="ann", color="red", more={"a": Transfer(amount=2)}),
    Statement(what=Card(amount=1), to=["ann"], color=Color.RED, more={"a": None}),
]


@pytest.mark.parametrize("value", [*BOOKINGS, *STATEMENTS], ids=lambda it: repr(it)[:40])
async def test_models_of_unions_come_back_as_they_were_written(
    registry: SchemaRegistry, value: Any
) -> None:
    found = await there_and_back(registry, type(value), value, type(value))
    assert found == value
    for name in ("color", "size", "what"):
        mine, its = (getattr(each, name, None) for each in (found, value))
        assert type(mine) is type(its)


# -- wrong types -----------------------------------------------------------------------------------

TYPES: dict[str, tuple[Any, Any]] = {
    "null": ("null", None),
    "boolean": ("boolean", True),
    "int": ("int", 1),
    "long": ("long", 1),
    "double": ("double", 1.5),
    "bytes": ("bytes", b"x"),
    "string": ("string", "x"),
    "fixed": (fixed(2), b"xx"),
    "enum": (COLORS, "RED"),
    "array": ({"type": "array", "items": "int"}, [1]),
    "map": ({"type": "map", "values": "int"}, {"a": 1}),
    "record": (A, {"n": "x"}),
    "decimal": (PRICE, D(1)),
    "date": (logical("int", "date"), MOMENT.date()),
    "time": (logical("long", "time-micros"), MOMENT.time()),
    "timestamp": (logical("long", "timestamp-millis"), MOMENT),
    "local": (logical("long", "local-timestamp-millis"), MOMENT.replace(tzinfo=None)),
    "uuid": (fixed(16, logicalType="uuid"), uuid.UUID(int=1)),
}
ALSO_TAKEN = {  # the values of the underlying type, numbers that are whole, and alike ones
    *(("int", each) for each in ("long", "double", "decimal", "date", "time", "timestamp")),
    *(("int", each) for each in ("local",)),
    *(("long", each) for each in ("int", "double", "decimal", "date", "time", "timestamp")),
    *(("long", each) for each in ("local",)),
    *(("bytes", each) for each in ("decimal",)),
    *(("fixed", each) for each in ("bytes", "decimal")),
    *(("enum", each) for each in ("string",)),
    ("string", "enum"),
    ("string", "uuid"),
    ("enum", "uuid"),
    ("bytes", "fixed"),
    ("bytes", "uuid"),
    ("fixed", "uuid"),
    ("map", "record"),
    ("record", "map"),
    ("local", "timestamp"),
}


@pytest.mark.parametrize("wanted", TYPES)
async def test_a_value_of_a_wrong_type_is_refused_by_name(
    registry: SchemaRegistry, wanted: str
) -> None:
    kind, _ = TYPES[wanted]
    inner = record(("each", {"type": "array", "items": kind}), name="In")
    serializer = AvroSerializer(registry, record(("down", inner)))
    for given, (_, value) in TYPES.items():
        call = serializer.serialize("t", {"down": {"each": [value]}})
        if wanted == given:
            await call
        elif (given, wanted) in ALSO_TAKEN:
            try:
                await call
            except (TypeError, ValueError) as error:
                assert str(error).startswith("down.each[0]")
        else:
            with pytest.raises(TypeError, match=r"^down\.each\[0\]: .*expected") as caught:
                await call
            name = type(value).__name__
            assert (name if value is not None else "None") in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("int", 1 << 31, "more than 32 bits"),
        ("long", 1 << 63, "more than 64 bits"),
        ("float", 1e39, "too large"),
        ("float", 16_777_217 << 64, "too many digits"),
        ("double", (1 << 53) + 1, "too many digits for it"),
        ("double", 1 << 2000, "too large"),
        ("string", "\ud800", "surrogates"),
        (fixed(2), b"abc", "of 2 bytes, got 3"),
        (COLORS, "GREEN", "not one of its symbols"),
        (PRICE, D("1.005"), "3 digits after the decimal point"),
        (PRICE, D("12345678"), "8 digits before the decimal point"),
        (PRICE, D("NaN"), "not finite"),
        (PRICE, D("1E+999999"), "digits before the decimal point"),
        (fixed(1, logicalType="decimal", precision=2), D(99), ""),
        (logical("string", "uuid"), "no uuid", "expected a UUID"),
        (record(("n", "int"), name="In"), {}, "no such field"),
        (["null", "int"], 1 << 31, "more than 32 bits"),
    ],
    ids=lambda it: repr(it)[:40],
)
async def test_a_value_that_does_not_fit_is_refused_by_name(
    registry: SchemaRegistry, kind: Any, value: Any, text: str
) -> None:
    serializer = AvroSerializer(registry, record(("f", kind)))
    if not text:
        await serializer.serialize("t", {"f": value})
        return
    with pytest.raises(ValueError, match=rf"^f[:.].*({text})"):
        await serializer.serialize("t", {"f": value})


async def test_bytes_alone_are_bytes(registry: SchemaRegistry) -> None:
    serializer = AvroSerializer(registry, "bytes")
    for wrong in (5, True, "text", [1, 2], None.__class__):
        with pytest.raises(TypeError, match=r"expected bytes \(bytes\), got"):
            await serializer.serialize("t", wrong)
    for right in (b"ab", bytearray(b"ab"), memoryview(b"ab")):
        assert (await serializer.serialize("t", right))[0] == b"\0\0\0\0\1ab"


@dataclass
class Narrow:
    item: str


@dataclass
class Wide(Narrow):
    count: int = 1


async def test_strict_is_about_fields_that_the_schema_does_not_have(
    registry: SchemaRegistry,
) -> None:
    strict = AvroSerializer(registry, Wide, strict=True)
    for value in (Wide("tea"), {"item": "tea"}, {"item": "tea", "count": 1}):
        assert (await strict.serialize("t", value))[0] == b"\0\0\0\0\1\x06tea\x02"
    narrow = AvroSerializer(registry, Narrow, strict=True)
    for value in (Wide("tea"), {"item": "tea", "count": 1}):
        with pytest.raises(ValueError, match="record Narrow has no field 'count', and strict"):
            await narrow.serialize("u", value)


# -- resolution ------------------------------------------------------------------------------------

SMALL = {"type": "enum", "name": "Color", "symbols": ["RED", "GREY"], "default": "GREY"}
RENAMED = {
    "type": "record",
    "name": "New",
    "aliases": ["R"],
    "fields": [{"name": "new", "type": "long", "aliases": ["old"]}],
}
EVOLVED: list[tuple[Any, Any, Any, Any]] = [
    ("int", "long", 5, 5),
    ("int", "float", 16_777_217, 16_777_216.0),
    ("long", "double", 5, 5.0),
    ("float", "double", 0.5, 0.5),
    ("string", "bytes", "é", "é".encode()),
    ("bytes", "string", "é".encode(), "é"),
    ("bytes", ["null", "string"], "é".encode(), "é"),
    ("bytes", ["null", "bytes", "string"], b"x", b"x"),
    ("bytes", PRICE, b"d", D("1.00")),
    ("int", ["null", "string", "long"], 5, 5),
    (["null", "int"], "long", 5, 5),
    ("string", ["bytes", "string"], "x", "x"),
    (COLORS, SMALL, "BLUE", "GREY"),
    (record(("old", "int")), RENAMED, {"old": 1}, {"new": 1}),
    (record(("a", "int"), name="x.R"), record(("a", "long"), name="y.R"), {"a": 1}, {"a": 1}),
    (record(("a", "int"), ("b", PRICE)), record(("a", "int")), {"a": 1, "b": D(1)}, {"a": 1}),
    ([A, B], [B, A], ("x.B", {"n": "1"}), {"n": "1"}),
    (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), MOMENT, MOMENT),
    (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), MOMENT, MOMENT),
    (logical("long", "timestamp-millis"), "long", MOMENT, 1000),
    ("long", logical("long", "timestamp-millis"), 1000, MOMENT),
    ("int", logical("long", "timestamp-millis"), 1000, MOMENT),
    (PRICE, logical("bytes", "decimal", precision=9, scale=3), D("1.25"), D("1.250")),
    (PRICE, "bytes", D("1.00"), b"d"),
    ("string", logical("string", "uuid"), str(uuid.UUID(int=1)), uuid.UUID(int=1)),
]


@pytest.mark.parametrize(
    ("written", "read", "value", "wanted"), EVOLVED, ids=lambda it: repr(it)[:50]
)
async def test_values_are_read_as_the_readers_schema_says(
    registry: SchemaRegistry, written: Any, read: Any, value: Any, wanted: Any
) -> None:
    await registry.set_compatibility("NONE")
    found = await there_and_back(registry, written, value, read)
    assert found == wanted and type(found) in (type(wanted), *type(wanted).__subclasses__())
    if "bytes" in (written, read):  # alone they have no length
        return
    inner = await there_and_back(
        registry,
        record(("f", {"type": "map", "values": written}), name="Outer"),
        {"f": {"k": value}},
        record(("f", {"type": "map", "values": read}), name="Outer"),
    )
    assert inner == {"f": {"k": wanted}}


@pytest.mark.parametrize(
    ("written", "read", "value"),
    [
        ("string", "int", "x"),
        (["int", "string"], "int", "x"),
        (COLORS, {**COLORS, "symbols": ["RED"]}, "BLUE"),
        (COLORS, {**COLORS, "name": "Other"}, "RED"),
        (fixed(2), {**fixed(2), "size": 3}, b"ab"),
        (PRICE, logical("bytes", "decimal", precision=9, scale=1), D("1.25")),
        (record(("a", "int")), record(("b", "int")), {"a": 1}),
        (record(("a", "int")), record(("a", "int"), name="Other"), {"a": 1}),
    ],
    ids=lambda it: repr(it)[:50],
)
async def test_what_cannot_be_read_is_an_error(
    registry: SchemaRegistry, written: Any, read: Any, value: Any
) -> None:
    await registry.set_compatibility("NONE")
    with pytest.raises(ValueError, match=r"can't be read|not a symbol|bytes|digits|default"):
        await there_and_back(registry, written, value, read)


async def test_items_that_cannot_be_read_are_errors_only_if_there_are_any(
    registry: SchemaRegistry,
) -> None:
    await registry.set_compatibility("NONE")
    for kind, part, empty, full in (
        ("array", "items", [], ["x"]),
        ("map", "values", {}, {"k": "x"}),
    ):
        written, read = ({"type": kind, part: each} for each in ("string", "int"))
        assert await there_and_back(registry, written, empty, read) == empty
        with pytest.raises(ValueError, match="string can't be read as int"):
            await there_and_back(registry, written, full, read)


async def test_a_type_in_itself_is_resolved(registry: SchemaRegistry) -> None:
    older = record(("v", PRICE), ("next", ["null", "R"], None))
    newer = record(("next", ["null", "R"], None), ("v", PRICE), ("w", "bytes", "\u00ff"))
    value = {"v": D("1.00"), "next": {"v": D("2.00"), "next": None}}
    wanted = {"v": D("1.00"), "w": b"\xff", "next": {"v": D("2.00"), "w": b"\xff", "next": None}}
    assert await there_and_back(registry, older, value, newer) == wanted


async def test_a_decimal_keeps_all_its_digits(registry: SchemaRegistry) -> None:
    data = b"\0\0\0\0\1\x06" + (1_234_567).to_bytes(3, "big", signed=True)
    schema = logical("bytes", "decimal", precision=4, scale=2)
    await registry.register("t-value", Schema(json.dumps(schema)))
    found = await AvroDeserializer(registry).deserialize("t", data)
    assert found == D("12345.67")  # as Java; fastavro rounds it to 12350


async def test_a_number_that_is_not_a_time_of_a_day_is_an_error(registry: SchemaRegistry) -> None:
    for schema, numbers in (
        (logical("int", "time-millis"), (-1, 86_400_000)),
        (logical("long", "time-micros"), (-1, 86_400_000_000)),
    ):
        data = [writer_of(parse_node(schema["type"]))(each) for each in numbers]
        await registry.register(f"{schema['type']}-value", Schema(json.dumps(schema)))
        found = await registry.get_version(f"{schema['type']}-value")
        for each in data:
            with pytest.raises(ValueError, match="not a time of day"):
                await AvroDeserializer(registry).deserialize(
                    "t", b"\0" + found.id.to_bytes(4, "big") + each
                )


# -- models ----------------------------------------------------------------------------------------


PENNY = D("1.50")


Name = NewType("Name", str)


@dataclass
class Odd:
    name: Name
    kind: Literal["a"] | str
    what: Literal["a"] | Name | None


async def test_a_schema_may_name_fields_by_attributes(registry: SchemaRegistry) -> None:
    schema = record(("name", "string"), ("age", "int"), ("label", "string", ""), name="Person")
    data, _ = await AvroSerializer(registry, schema).serialize("t", ANN)
    row = await AvroDeserializer(registry).deserialize("t", data)
    assert row == {"name": "Ann", "age": 41, "label": "Ann (41)"}
    found = await AvroDeserializer(registry, schema, model=Person).deserialize("t", data)
    assert (found.name, found.age, found.tags) == ("Ann", 41, [])


class Spaced(enum.Enum):
    IN_PROGRESS = "in progress"


class Dashed(pydantic.BaseModel):
    user: str = pydantic.Field(alias="user-id")


@dataclass
class TwoLists:
    what: list[Deposit] | list[Withdrawal] | None


@dataclass
class OfSpaced:
    state: Spaced


def test_names_of_models_are_names_of_avro() -> None:
    fields = {each["name"]: each["type"] for each in json.loads(avro_schema(Odd).text)["fields"]}
    assert fields == {"name": "string", "kind": "string", "what": ["string", "null"]}
    with pytest.raises(ConfigError, match=r"OfSpaced\.state: the name 'in progress' of a symbol"):
        avro_schema(OfSpaced)
    with pytest.raises(ConfigError, match=r"TwoLists\.what: .*two types that are an Avro array"):
        avro_schema(TwoLists)
    with pytest.raises(ConfigError, match=r"Dashed\.user: the name 'user-id' of a field"):
        avro_schema(Dashed)


@dataclass
class Order:
    item: str
    tags: list[str] = field(default_factory=lambda: ["new"])
    counts: dict[str, int] = field(default_factory=dict)
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    price: Annotated[D, AvroDecimal(9, 2)] = PENNY
    day: datetime.date = datetime.date(2026, 1, 2)
    what: Deposit | Withdrawal = field(default_factory=lambda: Withdrawal(3))
    total: int = field(init=False, default=0)


async def test_what_a_class_supplies_is_in_its_schema_if_all_objects_share_it(
    registry: SchemaRegistry,
) -> None:
    fields = {each["name"]: each for each in json.loads(avro_schema(Order).text)["fields"]}
    defaults = {name: each["default"] for name, each in fields.items() if "default" in each}
    assert defaults == {
        "tags": ["new"],
        "counts": {},
        "price": "\u0000\u0096",
        "day": 20455,
        "what": {"amount": 3},
        "total": 0,
    }
    assert fields["what"]["type"][0]["name"] == "Withdrawal"
    await registry.set_compatibility("NONE")
    older = record(("item", "string"), name="Order")
    found = await there_and_back(registry, older, {"item": "tea"}, Order)
    assert found == Order("tea", id=found.id)
    again = await there_and_back(registry, older, {"item": "tea"}, Order)
    assert again.id != found.id and again.tags is not found.tags
    found.total = 7
    assert await there_and_back(registry, Order, found, Order) == found


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(alias="fullName")
    age: int = pydantic.Field(serialization_alias="years")
    town: str = pydantic.Field(validation_alias="city", default="-")
    code: str = pydantic.Field(validation_alias=pydantic.AliasPath("a", "b"), default="-")
    mail: str = pydantic.Field(validation_alias=pydantic.AliasChoices("m", "mail"), default="-")
    tags: list[str] = pydantic.Field(default_factory=list)
    password: str = pydantic.Field(default="-", exclude=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"{self.name} ({self.age})"


ANN = Person(fullName="Ann", age=41, city="Ulm", a={"b": "x"}, m="y", tags=["z"])  # type: ignore[call-arg]


async def test_aliases_and_computed_fields_of_pydantic(registry: SchemaRegistry) -> None:
    names = [each["name"] for each in json.loads(avro_schema(Person).text)["fields"]]
    assert names == ["fullName", "years", "town", "code", "mail", "tags", "label"]
    data, _ = await AvroSerializer(registry, Person, strict=True).serialize("t", ANN)
    assert await AvroDeserializer(registry, Person).deserialize("t", data) == ANN
    row = await AvroDeserializer(registry).deserialize("t", data)
    assert row == ANN.model_dump(by_alias=True) and row["label"] == "Ann (41)"
    await registry.set_compatibility("NONE")
    older = record(("fullName", "string"), ("years", "int"), name="Person")
    found = await there_and_back(registry, older, {"fullName": "Bo", "years": 1}, Person)
    assert found.label == "Bo (1)" and found.tags == []

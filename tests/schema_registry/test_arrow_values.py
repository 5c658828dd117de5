"""Columns of values that hypothesis makes up: the bytes are those of the serializer of records,
and come back; confluent-kafka reads them.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import math
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import confluent
from tests.schema_registry.messages import User

UTC = datetime.UTC
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
MOMENTS = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1))


class Case(NamedTuple):
    """A schema of Avro, the type of its column, and its values."""

    schema: Any
    arrow: pa.DataType
    values: st.SearchStrategy[Any]


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


def millis(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def decimals(digits: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: decimal.Decimal(f"{n}e-{scale}"))


CLOCK = st.times().map(lambda each: each.replace(tzinfo=None))
SIMPLE = [
    Case("null", pa.null(), st.none()),
    Case("boolean", pa.bool_(), st.booleans()),
    Case("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    Case("long", pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70)),
    Case("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    Case("double", pa.float64(), st.floats(allow_nan=False)),
    Case("bytes", pa.binary(), st.binary(max_size=200)),
    Case("string", pa.string(), TEXT),
    Case(logical("string", "uuid"), pa.string(), st.uuids().map(str)),
    Case(logical("int", "date"), pa.date32(), st.dates()),
    Case(
        logical("int", "time-millis"),
        pa.time32("ms"),
        CLOCK.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)),
    ),
    Case(logical("long", "time-micros"), pa.time64("us"), CLOCK),
    Case(
        logical("long", "timestamp-millis"),
        pa.timestamp("ms", "UTC"),
        MOMENTS.map(lambda each: millis(each).replace(tzinfo=UTC)),
    ),
    Case(
        logical("long", "timestamp-micros"),
        pa.timestamp("us", "UTC"),
        MOMENTS.map(lambda each: each.replace(tzinfo=UTC)),
    ),
    Case(logical("long", "local-timestamp-micros"), pa.timestamp("us"), MOMENTS),
    Case(logical("bytes", "decimal", precision=30, scale=4), pa.decimal128(30, 4), decimals(30, 4)),
    Case(logical("bytes", "decimal", precision=60, scale=0), pa.decimal256(60, 0), decimals(60, 0)),
]


def named(number: int) -> list[Case]:
    """Cases of types with a name, of which a schema has each once."""
    fixed = {"type": "fixed", "name": f"F{number}", "size": 3}
    enum = {"type": "enum", "name": f"E{number}", "symbols": ["A", "B", "C"]}
    sized = logical("fixed", "decimal", precision=6, scale=2, name=f"D{number}", size=4)
    return [
        Case(fixed, pa.binary(3), st.binary(min_size=3, max_size=3)),
        Case(enum, pa.string(), st.sampled_from("ABC")),
        Case(sized, pa.decimal128(6, 2), decimals(6, 2)),
    ]


@st.composite
def cases(draw: st.DrawFn, depth: int = 3, names: list[int] | None = None) -> Case:
    names = [] if names is None else names
    names.append(len(names))
    number = names[-1]
    forms = ["simple", "named"] + ["optional", "array", "map", "record"] * (depth > 0)
    form = draw(st.sampled_from(forms))
    if form == "simple":
        found: Case = draw(st.sampled_from(SIMPLE))
        return found
    if form == "named":
        found = draw(st.sampled_from(named(number)))
        return found
    if form == "record":
        fields = [draw(cases(depth - 1, names)) for _ in range(draw(st.integers(0, 4)))]
        return Case(
            {
                "type": "record",
                "name": f"R{number}",
                "fields": [{"name": f"f{n}", "type": f.schema} for n, f in enumerate(fields)],
            },
            pa.struct([(f"f{n}", f.arrow) for n, f in enumerate(fields)]),
            st.fixed_dictionaries({f"f{n}": f.values for n, f in enumerate(fields)}),
        )
    inner = draw(cases(depth - 1, names))
    if form == "array":
        schema = {"type": "array", "items": inner.schema}
        return Case(schema, pa.list_(inner.arrow), st.lists(inner.values, max_size=4))
    if form == "map":
        schema = {"type": "map", "values": inner.schema}
        values = st.dictionaries(TEXT, inner.values, max_size=3)
        return Case(schema, pa.map_(pa.string(), inner.arrow), values)
    if isinstance(inner.schema, list) or inner.schema == "null":
        return inner
    branches = draw(st.sampled_from([["null", inner.schema], [inner.schema, "null"]]))
    return Case(branches, inner.arrow, st.none() | inner.values)


async def called(call: Any) -> Any:
    """Call again when all is prepared."""
    try:
        return call()
    except NotPrepared as needed:
        await needed.prepare()
        if needed.error is not None:
            raise needed.error from None
    return call()


async def both_ways(
    serializer: Any, deserializer: Any, column: pa.Array, records: list[Any]
) -> list[bytes | None]:
    """Check the bytes and the way back; return the bytes."""
    encode = await called(lambda: serializer.column_encoder("t"))
    data, headers = encode(column)
    stored: list[bytes | None] = data.to_pylist()
    expected = [(await serializer.serialize("t", each))[0] for each in records]
    assert stored == expected
    assert headers == ()
    # A part of a column is written as the same values alone.
    assert encode(column.slice(1)).data.to_pylist() == expected[1:]
    joined = pa.concat_arrays(data.chunks) if data.chunks else pa.array([], pa.binary())
    found, errors = await called(lambda: deserializer.deserialize_column("t", None, joined))
    assert not errors
    if any(each is not None for each in stored):
        assert found.type == column.type
    assert found.to_pylist() == column.to_pylist()
    return stored


# Arrow's own cast of such a column loses the list.
DATES_AND_NULLS = Case(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "day", "type": logical("int", "date")},
            {"name": "nulls", "type": {"type": "array", "items": "null"}},
        ],
    },
    pa.struct([("day", pa.date32()), ("nulls", pa.list_(pa.null()))]),
    st.fixed_dictionaries({"day": st.dates(), "nulls": st.lists(st.none(), min_size=1)}),
)


@pytest.mark.parametrize(
    "case", [*SIMPLE, *named(0), DATES_AND_NULLS], ids=lambda case: str(case.schema)
)
def test_each_type_of_avro(case: Case) -> None:
    check(case, 8)


def test_nested_types_of_avro() -> None:
    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases(), data=st.data())
    def run(case: Case, data: st.DataObject) -> None:
        compare(case, data.draw(st.lists(st.none() | case.values, min_size=1, max_size=12)))

    run()


def check(case: Case, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values=st.lists(st.none() | case.values, min_size=1, max_size=20))
    def run(values: list[Any]) -> None:
        compare(case, values)

    run()


def compare(case: Case, values: list[Any]) -> None:
    async def run() -> None:
        async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
            column = pa.array(values, case.arrow)
            serializer = AvroSerializer(registry, case.schema)
            await both_ways(serializer, AvroDeserializer(registry), column, values)

    asyncio.run(run())


KINDS = [*SIMPLE, *named(1)]
ALL = {
    "type": "record",
    "name": "All",
    "fields": [{"name": f"f{n}", "type": each.schema} for n, each in enumerate(KINDS)],
}


def test_confluent_reads_each_type() -> None:
    record = st.fixed_dictionaries({f"f{n}": each.values for n, each in enumerate(KINDS)})

    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    @given(records=st.lists(record, min_size=1, max_size=3))
    def run(records: list[Any]) -> None:
        asyncio.run(judged(records))

    run()


async def judged(records: list[Any]) -> None:
    kind = pa.struct([(f"f{n}", each.arrow) for n, each in enumerate(KINDS)])

    def read(url: str, stored: list[bytes]) -> list[Any]:
        with confluent.SchemaRegistryClient({"url": url}) as client:
            judge = confluent.AvroDeserializer(client)
            context = confluent.SerializationContext("t", confluent.MessageField.VALUE)
            return [judge(each, context) for each in stored]

    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        serializer = AvroSerializer(registry, ALL)
        encode = await called(lambda: serializer.column_encoder("t"))
        stored = encode(pa.array(records, kind)).data.to_pylist()
        found = await asyncio.to_thread(read, server.url, stored)
    for each in found:
        each["f8"] = str(each["f8"])  # a UUID
    assert found == records


JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "i": {"type": "integer"},
        "n": {"type": ["number", "null"]},
        "b": {"type": "boolean"},
        "s": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "e": {"enum": ["A", "B"]},
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "raw": {"type": "string", "contentEncoding": "base64"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/Inner"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["i", "n"],
    "$defs": {"Inner": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}
JSON_TYPE = pa.struct(
    [
        ("i", pa.int64()),
        ("n", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("e", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("list", pa.list_(pa.struct([("x", pa.int64())]))),
        ("map", pa.map_(pa.string(), pa.int64())),
    ]
)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSON_VALUES = st.fixed_dictionaries(
    {"i": INTEGERS, "n": st.none() | st.floats(allow_nan=False, allow_infinity=False)},
    optional={
        "b": st.booleans(),
        "s": TEXT,
        "e": st.sampled_from("AB"),
        "at": MOMENTS.map(lambda each: each.replace(tzinfo=UTC)),
        "day": st.dates(),
        "raw": st.binary(max_size=9),
        "list": st.lists(st.fixed_dictionaries({}, optional={"x": INTEGERS}), max_size=3),
        "map": st.dictionaries(TEXT, INTEGERS, max_size=3),
    },
)


def test_values_of_json_schema() -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values=st.lists(st.none() | JSON_VALUES, min_size=1, max_size=8))
    def run(values: list[Any]) -> None:
        asyncio.run(compare_json(in_order(values)))

    run()


def in_order(values: list[Any]) -> list[Any]:
    names = list(JSON["properties"])
    return [each and {name: each[name] for name in names if name in each} for each in values]


async def compare_json(values: list[Any]) -> None:
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        serializer = JsonSchemaSerializer(registry, JSON)
        column = pa.array(values, JSON_TYPE)
        await both_ways(serializer, JsonSchemaDeserializer(registry), column, values)


USERS = st.builds(
    lambda name, street, at: {
        "name": name,
        "home": None if street is None else {"street": street},
        "at": None if at is None else at.replace(tzinfo=UTC),
    },
    TEXT,
    st.none() | TEXT,
    st.none() | MOMENTS,
)


def test_values_of_protobuf() -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values=st.lists(st.none() | USERS, min_size=1, max_size=8))
    def run(values: list[Any]) -> None:
        asyncio.run(compare_protobuf(values))

    run()


async def compare_protobuf(values: list[Any]) -> None:
    messages = [
        each and User(**{name: value for name, value in each.items() if value is not None})
        for each in values
    ]
    kind = pa.struct(
        [
            ("name", pa.string()),
            ("home", pa.struct([("street", pa.string())])),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        serializer = ProtobufSerializer(registry, User)
        for deserializer in (ProtobufDeserializer(registry), ProtobufDeserializer(registry, User)):
            await both_ways(serializer, deserializer, pa.array(values, kind), messages)


def test_numbers_that_are_no_numbers() -> None:
    async def run() -> None:
        async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
            for schema, kind in (("float", pa.float32()), ("double", pa.float64())):
                serializer = AvroSerializer(registry, schema)
                encode = await called(lambda: serializer.column_encoder(schema))  # noqa: B023
                stored = encode(pa.array([math.nan], kind)).data[0].as_py()
                assert stored == (await serializer.serialize(schema, math.nan))[0]

    asyncio.run(run())

"""JSON Schema and Protobuf compared with confluent-kafka: it writes and reads the same, in rows
and columns, or a line here says why not.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.preparation import NotPrepared
from aioprod.schema_registry import (
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistry,
)
from aioprod.schema_registry.known_imports import known_imports
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import confluent

CONTEXT = confluent.SerializationContext("t", confluent.MessageField.VALUE)

# -- JSON Schema -----------------------------------------------------------------------------------

DIALECTS = {
    "none": None,
    "draft 4": "http://json-schema.org/draft-04/schema#",
    "draft 6": "http://json-schema.org/draft-06/schema#",
    "draft 7": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "type": {"type": ["integer", "null"]},
    "object": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "definitions": {"$ref": "#/definitions/x", "definitions": {"x": {"type": "string"}}},
    "ref next to others": {
        "$ref": "#/definitions/x",
        "maxLength": 1,
        "definitions": {"x": {"type": "string"}},
    },
    "recursive": {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "tuple": {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False},
    "prefix": {"prefixItems": [{"type": "integer"}], "items": False},
    "contains": {"contains": {"const": 1}, "minContains": 2},
    "condition": {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "integer"}},
    "unevaluated": {"properties": {"a": True}, "unevaluatedProperties": False},
    "dependent": {"dependentRequired": {"a": ["b"]}},
    "dependencies": {"dependencies": {"a": ["b"]}},
    "anyOf": {"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer", "minimum": 1}]},
    "oneOf": {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
    "unique": {"uniqueItems": True},
    "pattern": {"pattern": "^[a-b]+$"},
    "patternProperties": {"patternProperties": {"^a": {"type": "integer"}}},
    "digits": {"pattern": r"^\d+$"},
    "multipleOf": {"multipleOf": 0.5},
    "enum": {"enum": [1, "a", None, {"a": 1}]},
    "format": {"type": "string", "format": "date-time"},
}
VALUES: list[Any] = [
    0, 1, 1.0, 1.5, True, "", "a", "ab", "abc", "1", "\u0661", None,
    [], [1], [1, "a"], [1, "a", 2], [1, True], [1, 1.0], [1, 1], [{"a": 1}, {"a": 1}],
    {}, {"a": 1}, {"a": {"a": {}}}, {"a": 1, "b": "x"}, {"b": "x"}, {"a": 1, "b": "x", "c": 0},
    {"ab": "x"}, {"a": {"a": {"a": 1}}},
]  # fmt: skip

REASONS: dict[str, Callable[[str, str, Any], bool]] = {
    "without a draft it takes 2020-12, we draft 7 as Confluent's Java: a list of items is a tuple, "
    "what is next to $ref does not count, dependencies are known": lambda draft, name, value: (
        draft == "none" and name in ("tuple", "ref next to others", "dependencies")
    ),
    r"\d means the digits 0-9 in JavaScript, and Python's re takes those of all scripts": (
        lambda draft, name, value: name == "digits" and value == "\u0661"
    ),
}


def reason_for(draft: str, name: str, value: Any) -> str | None:
    return next((why for why, keeps in REASONS.items() if keeps(draft, name, value)), None)


@pytest.mark.parametrize(
    "draft",
    [
        "none",
        "2020-12",
        *(
            pytest.param(each, marks=pytest.mark.interop)
            for each in ("draft 4", "draft 6", "draft 7", "2019-09")
        ),
    ],
)
async def test_json_schemas_decide_as_those_of_confluent_kafka(
    registry: SchemaRegistry, draft: str
) -> None:
    counts: Counter[str] = Counter()
    dialect = DIALECTS[draft]
    for name, keywords in SCHEMAS.items():
        schema = {**({"$schema": dialect} if dialect else {}), **keywords, "title": "T"}
        await _compare(registry, draft, name, schema, counts)
    assert counts["same"] > 500, counts
    assert draft != "none" or counts.keys() == {"same", *REASONS}


async def _compare(
    registry: SchemaRegistry,
    draft: str,
    name: str,
    schema: dict[str, Any],
    counts: Counter[str],
) -> None:
    text = json.dumps(schema)
    with confluent.SchemaRegistryClient.new_client({"url": "mock://json"}) as client:
        theirs = confluent.JSONSerializer(text, client)
        try:
            ours = JsonSchemaSerializer(registry, text, subject=lambda *_: f"{draft}-{name}")
        except Exception:
            ours = None
        for value in VALUES:
            if value is None:
                continue
            expected = _bytes_of(theirs, value)
            found = None
            if ours is not None:
                try:
                    data, _ = await ours.serialize("t", value)
                    assert data is not None
                    found = json.loads(data[5:])
                except ValueError:
                    found = None
            same = (found is None) == (expected is None)
            if same and expected is not None:
                assert found == json.loads(expected)
            why = None if same else reason_for(draft, name, value)
            assert same or why, (draft, name, value, found, expected)
            counts["same" if same else str(why)] += 1


def _bytes_of(serializer: Any, value: Any) -> bytes | None:
    try:
        data: bytes = serializer(value, CONTEXT)
    except Exception:
        return None
    return data[5:]


# -- Protobuf --------------------------------------------------------------------------------------

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = [
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes",
    "uint32", "sfixed32", "sfixed64", "sint32", "sint64",
]  # fmt: skip
MESSAGES = [
    ".matrix.All.Inner",
    ".google.protobuf.Timestamp",
    ".google.protobuf.Duration",
    ".google.protobuf.StringValue",
    ".google.protobuf.Int64Value",
    ".google.protobuf.Empty",
    ".google.protobuf.FieldMask",
    ".google.protobuf.Any",
    ".google.type.Date",
    ".google.type.Money",
    ".google.type.PhoneNumber",
    ".confluent.type.Decimal",
]


def _file() -> descriptor_pb2.FileDescriptorProto:
    imports = [name for name in known_imports() if not name.startswith("confluent/types")]
    file = descriptor_pb2.FileDescriptorProto(
        name="matrix.proto", package="matrix", syntax="proto3", dependency=imports
    )
    file.enum_type.add(name="Color").value.add(name="RED", number=0)
    file.enum_type[0].value.add(name="BLUE", number=7)
    file.message_type.add(name="First").field.add(name="a", number=1, label=1, type=3)
    made = file.message_type.add(name="All")
    inner = made.nested_type.add(name="Inner")
    inner.field.add(name="text", number=1, label=1, type=9)
    inner.nested_type.add(name="Unused")
    inner.nested_type.add(name="Innermost").field.add(name="n", number=1, label=1, type=3)
    made.oneof_decl.add(name="choice")
    numbers = iter(range(1, 200))
    for kind in SCALARS:
        number = FIELD.Type.Value(f"TYPE_{kind.upper()}")
        made.field.add(name=f"one_{kind}", number=next(numbers), label=1, type=number)
        made.field.add(name=f"many_{kind}", number=next(numbers), label=3, type=number)
        made.field.add(
            name=f"oneof_{kind}", number=next(numbers), label=1, type=number, oneof_index=0
        )
    for kind in [*MESSAGES, ".matrix.Color"]:
        name = kind.rpartition(".")[2].lower()
        number = FIELD.TYPE_ENUM if kind == ".matrix.Color" else FIELD.TYPE_MESSAGE
        for label, prefix in ((1, "one"), (3, "many")):
            made.field.add(
                name=f"{prefix}_{name}",
                number=next(numbers),
                label=FIELD.Label.ValueType(label),
                type=number,
                type_name=kind,
            )
    for key, value in (("string", "int64"), ("int32", "string"), ("bool", "bytes")):
        entry = made.nested_type.add(name=f"By{key.capitalize()}Entry")
        entry.options.map_entry = True
        for place, part in enumerate((key, value), 1):
            number = FIELD.Type.Value(f"TYPE_{part.upper()}")
            entry.field.add(name=("key", "value")[place - 1], number=place, label=1, type=number)
        made.field.add(
            name=f"by_{key}", number=next(numbers), label=3, type=FIELD.TYPE_MESSAGE,
            type_name=f".matrix.All.{entry.name}",
        )  # fmt: skip
    for kind in ("int64", "string", "bool"):
        number = FIELD.Type.Value(f"TYPE_{kind.upper()}")
        name = f"optional_{kind}"
        made.field.add(
            name=name, number=next(numbers), label=1, type=number, proto3_optional=True,
            oneof_index=len(made.oneof_decl),
        )  # fmt: skip
        made.oneof_decl.add(name=f"_{name}")
    return file


FILE = _file()


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    waiting = [*known_imports().values(), FILE]
    while waiting:
        file = waiting.pop(0)
        try:
            pool.Add(file)
        except TypeError:  # it imports one of those that wait
            waiting.append(file)
    return pool


POOL = _pool()
ALL: type[Message] = GetMessageClass(POOL.FindMessageTypeByName("matrix.All"))
NESTED = [
    GetMessageClass(POOL.FindMessageTypeByName(f"matrix.{name}"))
    for name in ("First", "All", "All.Inner", "All.Inner.Unused", "All.Inner.Innermost")
]


def filled(kind: type[Message], choices: random.Random, most: int = 9) -> Message:
    """A message with some fields set."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if choices.random() < most / len(kind.DESCRIPTOR.fields):
            _set(message, field, choices)
    return message


def _set(message: Any, field: Any, choices: random.Random) -> None:
    kept_back = getattr(message, field.name)
    if field.message_type is None:
        if field.is_repeated:
            kept_back.extend(_scalar(field, choices) for _ in range(choices.randint(0, 3)))
        else:
            setattr(message, field.name, _scalar(field, choices))
    elif field.message_type.GetOptions().map_entry:
        parts = field.message_type.fields_by_name
        for _ in range(choices.randint(0, 1)):  # more have no order
            kept_back[_scalar(parts["key"], choices)] = _scalar(parts["value"], choices)
    else:
        kind = GetMessageClass(field.message_type)
        if field.is_repeated:
            kept_back.extend(_message(kind, choices) for _ in range(choices.randint(0, 2)))
        else:
            kept_back.CopyFrom(_message(kind, choices))


def _message(kind: type[Message], choices: random.Random) -> Message:
    name = kind.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        found: Any = kind()
        found.seconds = choices.randint(0, 10**9)
        found.nanos = choices.randint(0, 999_999) * 1_000
        return cast("Message", found)
    return filled(kind, choices, most=2)


def _scalar(field: Any, choices: random.Random) -> Any:
    if field.enum_type is not None:
        return choices.choice([0, 7, 99])
    kind = field.type
    if kind == FIELD.TYPE_STRING:
        return choices.choice(["", "a", "Ä", "\U0001f600"])
    if kind == FIELD.TYPE_BYTES:
        return choices.choice([b"", b"\0", b"\xff\xfe"])
    if kind == FIELD.TYPE_BOOL:
        return choices.random() < 0.5
    if kind in (FIELD.TYPE_DOUBLE, FIELD.TYPE_FLOAT):
        return choices.choice([0.0, -0.0, 1.5, float("inf"), -2.0])
    is_small = kind in (
        FIELD.TYPE_INT32, FIELD.TYPE_UINT32, FIELD.TYPE_FIXED32, FIELD.TYPE_SFIXED32,
        FIELD.TYPE_SINT32,
    )  # fmt: skip
    largest = (1 << (31 if is_small else 63)) - 1
    return choices.choice([0, 1, 127, 128, largest])


@pytest.mark.parametrize("kind", NESTED, ids=lambda kind: kind.DESCRIPTOR.full_name)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1 << 60))
async def test_protobuf_is_as_confluent_kafka_has_it(kind: type[Message], seed: int) -> None:
    value = filled(kind, random.Random(seed))
    async with EmbeddedSchemaRegistry() as server, SchemaRegistry(server.url) as registry:
        ours = ProtobufSerializer(registry, kind)
        data, _ = await ours.serialize("t", value)
        assert data is not None
        with confluent.SchemaRegistryClient.new_client({"url": f"mock://{seed}"}) as client:
            theirs = confluent.ProtobufSerializer(kind, client)
            assert theirs(value, CONTEXT)[5:] == data[5:]
            reads = confluent.ProtobufDeserializer(kind, {"use.deprecated.format": False})
            assert reads(data, CONTEXT) == value
        for reader in (ProtobufDeserializer(registry, kind), ProtobufDeserializer(registry)):
            found = await reader.deserialize("t", data)
            assert found.SerializeToString(deterministic=True) == value.SerializeToString(
                deterministic=True
            )
        await _through_columns(registry, ours, data, value)


async def _through_columns(
    registry: SchemaRegistry, serializer: ProtobufSerializer, data: bytes, value: Message
) -> None:
    """A message that a column keeps is written as the same message."""
    reads = ProtobufDeserializer(registry)
    rows = pa.array([data], pa.binary())
    try:
        reads.deserialize_column("t", None, rows)
    except NotPrepared as needed:
        await needed.prepare()
    found = reads.deserialize_column("t", None, rows)
    assert not found.errors, found.errors
    encode = serializer.column_encoder("t")
    (again,) = encode(pa.chunked_array([found.data])).data.to_pylist()
    assert str(type(value).FromString(_body(again, data, value))) == str(value)


def _body(framed: bytes, data: bytes, value: Message) -> bytes:
    return framed[len(data) - value.ByteSize() :]

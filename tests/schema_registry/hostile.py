"""Hostile records: a few bytes that expand to very large values."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2

from aioprod import DecodingLimits
from aioprod.schema_registry import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    Schema,
    SchemaRegistry,
)
from aioprod.schema_registry.serializers import SchemaDeserializer


class Hostile(NamedTuple):
    """A record, and the schema that it was written with.

    Attributes:
        name: name of the case.
        schema: schema of the writer.
        data: the bytes after the id.
        reader: the schema to read with, if any.
    """

    name: str
    schema: Schema
    data: bytes
    reader: Any = None


def zigzag(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": kind} for each, kind in fields.items()],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _avro(name: str, schema: Any, data: bytes, reader: Any = None) -> Hostile:
    return Hostile(name, Schema(json.dumps(schema)), data, reader)


def _json(name: str, schema: Any, data: bytes) -> Hostile:
    return Hostile(name, Schema(json.dumps(schema), "JSON"), data)


NODE = record("Node", next=["null", "Node"])
MANY = zigzag(1 << 40)
WITHOUT_BYTES: dict[str, Any] = {
    "null": "null",
    "record": record("Nothing"),
    "record of nulls": record("Nulls", a="null", b=record("Inner", c="null")),
    "fixed": {"type": "fixed", "name": "None", "size": 0},
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
BINARY_TREE: dict[str, Any] = record("L0", a="null")
for _level in range(1, 40):
    BINARY_TREE = record(f"L{_level}", a=BINARY_TREE, b=f"L{_level - 1}")

AVRO = [
    _avro("recursion", NODE, b"\x02" * 300_000 + b"\0"),
    _avro("skipped recursion", record("R", a=NODE), b"\x02" * 300_000 + b"\0", record("R")),
    _avro("recursion in arrays", record("T", kids=array("T")), b"\x02" * 300_000),
    _avro(
        "recursion in maps",
        record("M", kids={"type": "map", "values": "M"}),
        b"\x02\0" * 150_000,
    ),
    *(
        _avro(f"many of {name}", record("E", flags=array(kind)), MANY + b"\0")
        for name, kind in WITHOUT_BYTES.items()
    ),
    *(
        _avro(f"skipped: many of {name}", record("E", f=array(kind)), MANY + b"\0", record("E"))
        for name, kind in WITHOUT_BYTES.items()
    ),
    _avro("a negative count", record("E", f=array("null")), zigzag(-(1 << 40)) + b"\x02\0"),
    _avro("the most negative", record("E", f=array("null")), b"\xff" * 9 + b"\x01\0\0"),
    _avro("many blocks", record("E", f=array("null")), zigzag(1_000) * 100_000 + b"\0"),
    _avro("arrays of arrays", record("E", f=array(array("null"))), zigzag(9) + MANY + b"\0"),
    _avro("without any array", BINARY_TREE, b""),
    _avro("a large decimal", record("O", amount=DECIMAL), zigzag(100_000) + b"\x7f" * 100_000),
    _avro(
        "a large decimal in a union",
        record("O", amount=["null", DECIMAL]),
        b"\x02" + zigzag(100_000) + b"\x7f" * 100_000,
    ),
    _avro(
        "a large fixed decimal",
        record("O", amount={**DECIMAL, "type": "fixed", "name": "F", "size": 100_000}),
        b"\x7f" * 100_000,
    ),
    *(
        _avro(f"a fixed of {size} bytes", record("R", f=["null", fixed]), b"\x02abc")
        for size in ((1 << 31) - 1, 1 << 40, 1 << 62)
        for fixed in [{"type": "fixed", "name": "Large", "size": size}]
    ),
    _avro("an endless type", record("X", x="X"), b""),
    _avro("a long string", record("S", s="string"), zigzag(1 << 60) + b"x"),
    _avro("a negative string", record("S", s="string"), zigzag(-9) + b"x"),
    _avro("many of a byte", record("B", b=array("boolean")), MANY + b"\1"),
]


def _nested(opening: str, closing: str, times: int) -> bytes:
    return (opening * times + "1" + closing * times).encode()


_EITHER = {"properties": {"n": {"$ref": "#"}}}
_EXPONENTIAL = {"anyOf": [{**_EITHER, "required": ["x"]}, {**_EITHER, "required": ["y"]}]}
_DOUBLED: dict[str, Any] = {
    f"d{level}": {"allOf": [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(40)
}
_LATEST = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
# Each level has alternatives that do not fit a large value.
_TREE = {
    "anyOf": [
        {"type": "string"},
        {"enum": ["x"]},
        {"const": ["x"]},
        {"maxProperties": 0},
        {"not": {"type": "object"}},
        {"oneOf": [{"type": "array"}, {"type": "null"}]},
        {"properties": {"n": {"$ref": "#"}}, "required": ["n"]},
    ]
}
_ONES = json.dumps([1] * 30_000)
_TEXT = json.dumps("a" * 5_000 + "!").encode()

JSON = [
    _json("deep arrays", {}, _nested("[", "]", 100_000)),
    _json("deep arrays, never closed", {}, b"[" * 300_000),
    _json("deep objects", {}, _nested('{"a":', "}", 50_000)),
    _json("deep in UTF-16", {}, _nested("[", "]", 50_000).decode().encode("utf-16")),
    _json("deep after a text", {}, b'["]]]]]]]]",' + _nested("[", "]", 150) + b"]"),
    _json("quotes that are never closed", {}, b"[" * 101 + b'\\"' * 100_000),
    _json("a huge number", {"type": "integer"}, b"9" * 100_000),
    _json("a huge exponent", {"multipleOf": 0.01}, b"1e400000"),
    _json("a large number", {"multipleOf": 1e-300}, b"9" * 4_000),
    _json("branches", _EXPONENTIAL, _nested('{"n":', "}", 60).replace(b"1", b"{}")),
    _json("doubled", {"$ref": "#/definitions/d0", "definitions": {**_DOUBLED, "d40": {}}}, b"1"),
    _json(
        "doubled in fields",
        {
            "$ref": "#/definitions/d0",
            "definitions": {
                **{
                    f"d{level}": {
                        "type": "object",
                        "properties": {
                            name: {"$ref": f"#/definitions/d{level + 1}"} for name in "ab"
                        },
                        "required": ["a"],
                    }
                    for level in range(40)
                },
                "d40": {"type": "integer"},
            },
        },
        b"{}",
    ),
    _json("a schema that is itself", {"$ref": "#"}, b"1"),
    _json("a circle", {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#"}}}, b"1"),
    _json(
        "a large value that fits no alternative",
        _TREE,
        _nested('{"n":', "}", 90).replace(b"1", json.dumps({"a": "x" * 60_000}).encode()),
    ),
    *(
        _json(f"unevaluatedItems besides {list(schema)}", {**_LATEST, **schema}, text.encode())
        for schema, text in (
            ({"unevaluatedItems": {"type": "integer"}}, _ONES[:-1] + ',"x"]'),
            ({"prefixItems": [{}], "unevaluatedItems": False}, _ONES),
            (
                {"allOf": [{"items": {"type": "integer"}}], "unevaluatedItems": {}},
                _ONES[:-1] + ',"x"]',
            ),
            ({"contains": {"type": "integer"}, "unevaluatedItems": False}, _ONES[:-1] + ',"x"]'),
        )
    ),
    _json(
        "many constants",
        {"items": {"enum": [[number] for number in range(999)]}},
        b"[%s[-1]]" % (b"[998]," * 9_999),
    ),
    *(
        _json(f"pattern {pattern}", {"pattern": pattern, "maxLength": 1}, _TEXT)
        for pattern in ("^(a+)+$", "(a|a)*$", "^(a|aa)+$", "(.*)*,", "^(?=(a+)+$)", "a*a*a*a*b")
    ),
    _json(
        "patternProperties",
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        json.dumps({"a" * 5_000 + "!": 1}).encode(),
    ),
    _json(
        "unevaluatedProperties",
        {**_LATEST, "patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
        json.dumps({"a" * 5_000 + "!": 1}).encode(),
    ),
    _json("propertyNames", {"propertyNames": {"pattern": "^(a+)+$"}}, b'{"%s!":1}' % (b"a" * 99)),
    _json(
        "many unique objects that are not",
        {"uniqueItems": True},
        json.dumps([*({"a": number} for number in range(20_000)), {"a": 1}]).encode(),
    ),
    _json(
        "numbers of one hash",
        {"uniqueItems": True},
        json.dumps([number * sys.hash_info.modulus for number in (*range(20_000), 1)]).encode(),
    ),
]

_FIELD = descriptor_pb2.FieldDescriptorProto
_LINK = descriptor_pb2.FileDescriptorProto(name="link.proto", package="hostile", syntax="proto3")
_made = _LINK.message_type.add(name="Link")
_made.field.add(
    name="next", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE,
    type_name=".hostile.Link",
)  # fmt: skip
_made.field.add(name="n", number=2, label=_FIELD.LABEL_REPEATED, type=_FIELD.TYPE_INT64)


_FIELDS = descriptor_pb2.FileDescriptorProto(name="fields.proto", package="wide", syntax="proto3")
for _level in range(40):
    _made = _FIELDS.message_type.add(name=f"M{_level}")
    for _number, _name in enumerate("ab", 1):
        _made.field.add(
            name=_name, number=_number, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_MESSAGE,
            type_name=f".wide.M{_level + 1}",
        )  # fmt: skip
_FIELDS.message_type.add(name="M40")


def link_schema(file: descriptor_pb2.FileDescriptorProto = _LINK) -> Schema:
    return Schema(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


def _links(depth: int) -> bytes:
    """Nested messages; the length of each is written before it."""
    found = b""
    for _ in range(depth):
        length, left = bytearray(), len(found)
        while left > 0x7F:
            length.append(left & 0x7F | 0x80)
            left >>= 7
        found = b"\x0a" + bytes([*length, left]) + found
    return found


PROTOBUF = [
    Hostile("deep messages", link_schema(), b"\0" + _links(30_000)),
    Hostile("doubled in fields", link_schema(_FIELDS), b"\0\x0a\xff"),
    Hostile("deep unknown groups", link_schema(), b"\0" + b"\x1b" * 100_000 + b"\x1c" * 100_000),
    Hostile("a length beyond the end", link_schema(), b"\0\x12" + b"\xff" * 8 + b"\x7f"),
    Hostile("many message indexes", link_schema(), zigzag(1 << 40) + b"\0"),
    Hostile("an index that is too large", link_schema(), zigzag(1) + zigzag(1 << 40)),
]

ALL = [*AVRO, *JSON, *PROTOBUF]
_MAKE: dict[str, Callable[..., SchemaDeserializer[Any]]] = {
    "AVRO": AvroDeserializer,
    "JSON": JsonSchemaDeserializer,
    "PROTOBUF": ProtobufDeserializer,
}


def deserializer(registry: SchemaRegistry, case: Hostile) -> SchemaDeserializer[Any]:
    make = _MAKE[case.schema.type]
    given = () if case.reader is None else (case.reader,)
    if case.schema.type == "PROTOBUF":
        return make(registry, *given)
    return make(registry, *given, limits=DecodingLimits(max_checks=10_000))


def framed(schema_id: int, case: Hostile) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + case.data

"""Payloads of a Schema Registry: ids, Avro, JSON Schema, Protobuf, and schemas themselves.

A record or a schema that can't be read is a ValueError.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from fuzz.running import instrumented, run

with instrumented(__name__):
    from google.protobuf.struct_pb2 import Struct

    from aioprod.decoding_limits import DecodingLimits
    from aioprod.errors import ConfigError
    from aioprod.schema_registry import (
        AvroDeserializer,
        AvroSerializer,
        JsonSchemaDeserializer,
        ProtobufDeserializer,
        Schema,
        SchemaRegistry,
    )
    from aioprod.schema_registry.wire_format import find_id, read_indexes, write_id

_AVRO = """{"type": "record", "name": "Node", "fields": [
 {"name": "id", "type": "long"},
 {"name": "name", "type": ["null", "string"], "default": null},
 {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}, "default": 0},
 {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
 {"name": "price", "default": "\\u0000",
  "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
 {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "A"},
 {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
 {"name": "sum", "type": {"type": "fixed", "name": "Sum", "size": 4}, "default": "abcd"},
 {"name": "nulls", "type": {"type": "array", "items": "null"}, "default": []},
 {"name": "next", "type": ["null", "Node"], "default": null},
 {"name": "all", "type": {"type": "array", "items": "Node"}, "default": []}]}"""
_JSON = """{"type": "object", "required": ["id"], "properties": {
 "id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "pattern": "^(a+)+$"},
 "all": {"type": "array", "uniqueItems": true, "items": {"$ref": "#"}}},
 "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]}}"""
_LIMITS = DecodingLimits(max_empty_values=1_000, max_checks=1_000)
_REGISTRY = SchemaRegistry("http://localhost:1")
_AVRO_READER = AvroDeserializer(_REGISTRY, limits=_LIMITS)
_JSON_READER = JsonSchemaDeserializer(_REGISTRY, limits=_LIMITS)
_PROTOBUF_READER = ProtobufDeserializer(_REGISTRY, Struct)


def _parsed(deserializer: Any, text: str) -> Any:
    return _result(deserializer.parse(Schema(text)))


def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing: these schemas have no references."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("it waits")


_AVRO_SCHEMA, _JSON_SCHEMA = _parsed(_AVRO_READER, _AVRO), _parsed(_JSON_READER, _JSON)


def TestOneInput(data: bytes) -> None:
    """Choose what the bytes are by the first one."""
    if not data:
        return
    try:
        _FORMS[data[0] % len(_FORMS)](data[1:])
    except (ValueError, ConfigError):
        pass


def _avro(data: bytes) -> None:
    _AVRO_READER.decode(_AVRO_SCHEMA, data)


def _json(data: bytes) -> None:
    _JSON_READER.decode(_JSON_SCHEMA, data)


def _protobuf(data: bytes) -> None:
    _PROTOBUF_READER("topic", (), data)


def _ids(data: bytes) -> None:
    schema_id, source, end = find_id((("__value_schema_id", data[1:]),), bool(data[:1]), data)
    assert source.startswith(write_id(schema_id)) and end <= len(source)
    indexes, end = read_indexes(source, end)
    assert indexes and end <= len(source)


def _avro_schema(data: bytes) -> None:
    """A schema of the registry, and a record of it."""
    text, _, record = data.partition(b"\0")
    schema = _parsed(AvroDeserializer(_REGISTRY, limits=_LIMITS), text.decode("utf-8", "replace"))
    _AVRO_READER.decode(schema, record)


def _json_schema(data: bytes) -> None:
    text, _, record = data.partition(b"\0")
    schema = _parsed(_JSON_READER, text.decode("utf-8", "replace"))
    _JSON_READER.decode(schema, record)


_FORMS = (_avro, _json, _protobuf, _ids, _avro_schema, _json_schema)


#: They raised other errors than ValueError.
_FINDINGS = (
    b'\4{"type": "enum", "name": "E", "symbols": ["A"]}\0\x10',
    b'\4["null", "int"]\0\x10',
    b'\4"string"\0\x10a',
    b'\4{"type": "int", "logicalType": "date"}\0\xfe\xff\xff\xff\x0f',
    b'\4{"type": "enum", "name": "E", "symbols": ["not a name"]}\0\0',
    b'\5{"$ref": "#/$defs/missing"}\x001',
    b'\5{"type": "unknown"}\x001',
    b'\5{"minimum": "1"}\x001',
    b'\5{"properties": 1}\0{"a": 1}',
    b"\x051\x001",
    b'\5"text"\x001',
)


def seeds() -> list[bytes]:
    """Return a record of each format, ids, and schemas with a record."""
    record: dict[str, Any] = {"id": 7, "name": "a", "tags": {"x": 1.5}, "nulls": [None] * 3}
    record["next"] = {"id": 8, "all": [{"id": 9}]}
    avro = AvroSerializer(_REGISTRY, _AVRO)
    packed = avro.encode(_result(avro.parse(Schema(_AVRO), None)), record)
    message = Struct()
    message.update({"a": [1, "b", None, {"c": True}]})
    text = b'{"id": 1, "name": "aaa", "all": [{"id": 2}], "x": 1.5, "y": null}'
    return [
        b"\0" + packed,
        b"\1" + text,
        b"\2" + write_id(1) + b"\0" + message.SerializeToString(),
        b"\3" + write_id(1) + b"\4\2\4",
        b"\4" + _AVRO.encode() + b"\0" + packed,
        b"\4" + b'["null", "int", {"type": "array", "items": "string"}]\0\2\4',
        b"\5" + _JSON.encode() + b"\0" + text,
        b"\5" + b'{"$defs": {"a": {"type": "number"}}, "items": {"$ref": "#/$defs/a"}}\0[1]',
        *_FINDINGS,
    ]


if __name__ == "__main__":
    run(TestOneInput, seeds())

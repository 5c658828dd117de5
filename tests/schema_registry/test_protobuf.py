"""Protobuf: places of messages in their files, imports, classes made of schemas."""

from __future__ import annotations

from typing import Any

import pytest

from aioprod import ConfigError
from aioprod.schema_registry import ProtobufDeserializer, ProtobufSerializer, Schema, SchemaRegistry
from aioprod.schema_registry.protobuf import indexes_of
from aioprod.schema_registry.wire_format import read_indexes, write_indexes
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry.messages import EXAMPLES, Inner, Note, User


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("in_header", [False, True])
async def test_messages_go_there_and_back(
    registry: SchemaRegistry, value: Any, in_header: bool
) -> None:
    serializer = ProtobufSerializer(registry, type(value), id_in_header=in_header)
    data, headers = await serializer.serialize("t", value)
    assert bool(headers) == in_header
    reader = ProtobufDeserializer(registry, type(value))
    assert await reader.deserialize("t", data, headers) == value
    made = await ProtobufDeserializer(registry).deserialize("t", data, headers)
    assert type(made) is not type(value)
    assert made.DESCRIPTOR.full_name == value.DESCRIPTOR.full_name
    assert made.SerializeToString() == value.SerializeToString()


async def test_imported_files_are_references(
    registry: SchemaRegistry, server: EmbeddedSchemaRegistry
) -> None:
    serializer = ProtobufSerializer(registry, User, reference_subject=lambda path: f"ref-{path}")
    await serializer.serialize("users", EXAMPLES[1])
    assert server.subjects() == ["ref-shop/address.proto", "users-value"]
    (reference,) = (await registry.get_version("users-value")).schema.references
    assert (reference.name, reference.subject) == ("shop/address.proto", "ref-shop/address.proto")
    known = ProtobufSerializer(
        registry, User, auto_register=False, reference_subject=lambda path: f"ref-{path}"
    )
    assert (await known.serialize("users", EXAMPLES[1]))[0] is not None


async def test_a_call_without_the_schema_needs_no_registry() -> None:
    async with SchemaRegistry("http://127.0.0.1:1") as nowhere:
        read = ProtobufDeserializer(nowhere, Note)
        assert read("t", (), b"\0\0\0\0\1\0\n\1x").text == "x"
        assert read("t", (), None) is None
        with pytest.raises(ValueError, match="the data is not a Note"):
            read("t", (), b"\0\0\0\0\1\0\xff")
        with pytest.raises(ValueError, match="truncated"):
            read("t", (), b"\0\0\0\0\1")


async def test_a_proto_text_has_no_classes(registry: SchemaRegistry) -> None:
    text = 'syntax = "proto3"; message A { string b = 1; }'
    found = await registry.register("t-value", Schema(text, "PROTOBUF"))
    data = b"\0" + found.id.to_bytes(4, "big") + b"\0"
    with pytest.raises(Exception, match="give message_type"):
        await ProtobufDeserializer(registry).deserialize("t", data)


async def test_a_place_that_no_message_has(registry: SchemaRegistry) -> None:
    data, _ = await ProtobufSerializer(registry, Note).serialize("t", EXAMPLES[0])
    assert data is not None
    with pytest.raises(ValueError, match=r"no message at \[1\]"):
        await ProtobufDeserializer(registry).deserialize("t", data[:5] + b"\2\2")


async def test_other_types_are_refused(registry: SchemaRegistry) -> None:
    with pytest.raises(TypeError, match="must be Note, not User"):
        await ProtobufSerializer(registry, Note).serialize("t", EXAMPLES[1])
    with pytest.raises(ConfigError, match="message_type"):
        ProtobufDeserializer(registry, int)  # type: ignore[arg-type]


def test_places_in_files() -> None:
    assert indexes_of(Inner.DESCRIPTOR) == [1, 0, 1]
    for indexes in ([0], [1], [1, 0, 1], [0, 0], [63, 64, 8192]):
        data = b"x" + write_indexes(indexes)
        assert read_indexes(data, 1) == (tuple(indexes), len(data))
    assert write_indexes([0]) == b"\0"
    for bad in (b"", b"\2", b"\x80" * 11, b"\xff\xff\xff\7", b"\1"):
        with pytest.raises(ValueError, match=r"truncated|message indexes"):
            read_indexes(bad, 0)

"""confluent-kafka is the judge: its serializers write the same bytes, its client and deserializers
work with ours, and with the embedded registry.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Iterator
from typing import Any

import pytest

from aioprod import schema_registry as ours
from aioprod.testing.registry import EmbeddedSchemaRegistry
from tests.schema_registry import confluent
from tests.schema_registry.messages import EXAMPLES

RECORD = {
    "type": "record",
    "name": "Mix",
    "namespace": "shop",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": ["null", "long"], "default": None},
        {"name": "list", "type": {"type": "array", "items": "double"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "map", "type": {"type": "map", "values": "bytes"}},
    ],
}
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=datetime.UTC)
MIX: dict[str, Any] = {"text": "Ä", "number": 1 << 40, "list": [1.5], "at": NOW, "map": {"k": b"v"}}
OBJECT = {"title": "Mix", "type": "object", "properties": {"text": {"type": "string"}}}
# confluent-kafka reads no data of less than 6 bytes, even if the id is in a header.
AVRO = [(RECORD, MIX), ("string", "a text"), ("bytes", b"\0\1abcd"), (["null", "int"], 1 << 30)]


def pairs(registry: ours.SchemaRegistry, client: Any, **theirs: Any) -> Iterator[tuple[Any, ...]]:
    """Our serializer and deserializer, theirs, and a value, for each format."""
    for schema, value in AVRO:
        text = json.dumps(schema)
        yield (
            lambda text=text, **options: ours.AvroSerializer(registry, text, **options),
            ours.AvroDeserializer(registry),
            confluent.AvroSerializer(client, text, conf=theirs),
            confluent.AvroDeserializer(client),
            value,
        )
    yield (
        lambda **options: ours.JsonSchemaSerializer(registry, OBJECT, **options),
        ours.JsonSchemaDeserializer(registry),
        confluent.JSONSerializer(
            json.dumps(OBJECT),
            client,
            conf=theirs,
            json_encode=lambda it: json.dumps(it, ensure_ascii=False, separators=(",", ":")),
        ),
        confluent.JSONDeserializer(None, schema_registry_client=client),
        {"text": "Ä"},
    )
    for message in EXAMPLES:
        kind = type(message)
        yield (
            lambda kind=kind, **options: ours.ProtobufSerializer(registry, kind, **options),
            ours.ProtobufDeserializer(registry),
            confluent.ProtobufSerializer(kind, client, conf=theirs),
            confluent.ProtobufDeserializer(kind, {"use.deprecated.format": False}, client),
            message,
        )


def shown(value: Any) -> Any:
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value


async def test_bytes_are_those_of_its_serializers_with_its_mock_registry(
    registry: ours.SchemaRegistry,
) -> None:
    client = confluent.SchemaRegistryClient.new_client({"url": "mock://judge"})
    for number, (make, _, their_serializer, _, value) in enumerate(pairs(registry, client)):
        topic = f"topic-{number}"
        context = confluent.SerializationContext(topic, confluent.MessageField.VALUE)
        theirs = await asyncio.to_thread(their_serializer, value, context)
        data, headers = await make().serialize(topic, value)
        assert (data, headers) == (theirs, ()), value


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("in_header", [False, True])
async def test_each_reads_what_the_other_has_written_to_the_embedded_registry(
    server: EmbeddedSchemaRegistry, registry: ours.SchemaRegistry, in_header: bool, field: str
) -> None:
    theirs = {"schema.id.serializer": confluent.header_schema_id_serializer} if in_header else {}
    with confluent.SchemaRegistryClient({"url": server.url}) as client:
        await compare(registry, client, theirs, in_header, field)


async def compare(
    registry: ours.SchemaRegistry, client: Any, theirs: Any, in_header: bool, field: str
) -> None:
    is_key = field == "key"
    place = confluent.MessageField.KEY if is_key else confluent.MessageField.VALUE
    for number, found in enumerate(pairs(registry, client, **theirs)):
        make, reader, their_serializer, their_reader, value = found
        reader = type(reader)(registry, is_key=is_key)
        topic = f"topic-{number}"
        context = confluent.SerializationContext(topic, place, headers=[])
        their_data = await asyncio.to_thread(their_serializer, value, context)
        data, headers = await make(id_in_header=in_header, is_key=is_key).serialize(topic, value)
        assert (data, headers) == (their_data, tuple(context.headers or ()))
        assert bool(headers) == in_header
        assert shown(await reader.deserialize(topic, their_data, context.headers)) == shown(value)
        context = confluent.SerializationContext(topic, place, headers=list(headers))
        assert shown(await asyncio.to_thread(their_reader, data, context)) == shown(value)


async def test_its_client_works_with_the_embedded_registry(server: EmbeddedSchemaRegistry) -> None:
    def use() -> None:
        with confluent.SchemaRegistryClient({"url": server.url}) as client:
            check(client)

    def check(client: Any) -> None:
        text = json.dumps(RECORD)
        schema = confluent.Schema(text, "AVRO")
        number = client.register_schema("s/1", schema)
        assert client.get_schema(number).schema_str == json.dumps(RECORD, separators=(",", ":"))
        assert client.lookup_schema("s/1", schema).version == 1
        assert client.get_latest_version("s/1").schema_id == number
        assert client.get_subjects() == ["s/1"] and client.get_versions("s/1") == [1]
        client.set_compatibility("s/1", level="FULL")
        assert client.get_compatibility("s/1") == "FULL"
        assert not client.test_compatibility("s/1", confluent.Schema('"long"', "AVRO"))
        assert client.delete_subject("s/1") == [1]
        assert client.delete_subject("s/1", permanent=True) == [1]

    await asyncio.to_thread(use)

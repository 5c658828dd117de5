"""Keys and values with schemas, as JSON: Avro's JSON encoding, JSON, and Protobuf's JSON mapping.

Needs the extra ``schema-registry``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from aioprod.cli.formats import JsonText
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
from aioprod.schema_registry.avro import Parsing, read_by
from aioprod.schema_registry.avro_json import from_json, to_json
from aioprod.schema_registry.avro_resolution import UNDERLYING
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.serializers import SchemaDeserializer, SchemaSerializer
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.schema_registry.wire_format import SchemaId, find_id
from aioprod.types import Headers

_FIRST = (0,)


def deserializers(registry: SchemaRegistry, which: str) -> dict[str, object]:
    """Return the settings of a consumer that decodes ``value``, ``key`` or ``both``."""
    return {
        f"{part}_deserializer": RegistryDeserializer(registry, is_key=part == "key")
        for part in ("key", "value")
        if which in (part, "both")
    }


def serializers(
    registry: SchemaRegistry, subject: str, key_subject: str | None
) -> dict[str, object]:
    """Return the settings of a producer that encodes values, and keys if they have a subject."""
    settings: dict[str, object] = {
        "value_serializer": RegistrySerializer(registry, subject, is_key=False)
    }
    if key_subject is not None:
        settings["key_serializer"] = RegistrySerializer(registry, key_subject, is_key=True)
    return settings


class RegistryDeserializer:
    """Deserializes data in the format of the schema whose id they have."""

    def __init__(self, registry: SchemaRegistry, *, is_key: bool) -> None:
        self._registry = registry
        self._is_key = is_key
        self._formats: dict[str, SchemaDeserializer[Any]] = {
            "AVRO": _AvroToJson(registry, is_key=is_key),
            "JSON": JsonSchemaDeserializer(registry, is_key=is_key),
            "PROTOBUF": ProtobufDeserializer(registry, is_key=is_key),
        }
        self._known: BoundedCache[SchemaId, SchemaDeserializer[Any]] = BoundedCache(1_000)

    def __call__(self, topic: str, headers: Headers, data: bytes | None, /) -> JsonText | None:
        """Return JSON; a null is None."""
        if data is None:
            return None
        schema_id, _, _ = find_id(headers, self._is_key, data)
        deserializer = self._known.get(schema_id)
        if deserializer is None:
            raise NotPrepared(partial(self._prepare, schema_id))
        content = deserializer(topic, headers, data)
        if isinstance(content, Message):
            content = MessageToDict(content, preserving_proto_field_name=True)
        return JsonText(json.dumps(content, ensure_ascii=False).encode())

    async def _prepare(self, schema_id: SchemaId) -> None:
        if isinstance(schema_id, int):
            schema = await self._registry.get_schema(schema_id)
        else:
            schema = await self._registry.get_schema_by_guid(str(schema_id))
        self._known.put(schema_id, self._formats[schema.type])


class RegistrySerializer:
    """Serializes what JSON makes of a line by the latest schema of a subject."""

    def __init__(self, registry: SchemaRegistry, subject: str, *, is_key: bool) -> None:
        self._registry = registry
        self._subject = subject
        self._is_key = is_key
        self._serializer: SchemaSerializer[Any] | None = None

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> Any:
        """Return the bytes; None is a null."""
        if data is None:
            return None
        if self._serializer is None:
            raise NotPrepared(self._prepare)
        return self._serializer(topic, headers, data)

    async def _prepare(self) -> None:
        found = await self._registry.get_version(self._subject)
        options: SerializerOptions = {"is_key": self._is_key, "use_schema_id": found.id}
        if found.schema.type == "AVRO":
            self._serializer = _JsonToAvro(self._registry, **options)
        elif found.schema.type == "JSON":
            self._serializer = JsonSchemaSerializer(self._registry, **options)
        else:
            described = await self._registry.get_schema(found.id, form=ProtobufDeserializer.form)
            messages = await ProtobufDeserializer(self._registry).parse(described)
            self._serializer = _JsonToProtobuf(self._registry, messages.at(_FIRST), **options)


class _AvroToJson(AvroDeserializer):
    def decoder(self, parsed: Parsing) -> Callable[[bytes], Any]:
        read = read_by(parsed, parsed.node, UNDERLYING)
        return lambda data: to_json(parsed.node, read(data, 0))


class _JsonToAvro(AvroSerializer):
    def encode(self, parsed: Parsing, data: Any) -> bytes:
        return super().encode(parsed, from_json(parsed.node, data))


class _JsonToProtobuf(ProtobufSerializer):
    def encode(self, parsed: bool, data: Any) -> bytes:
        return super().encode(parsed, ParseDict(data, self._type()))

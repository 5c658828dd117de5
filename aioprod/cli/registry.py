"""Keys and values with schemas, as JSON: Avro's JSON encoding, JSON, and Protobuf's JSON mapping.

Needs the extra ``schema-registry``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from aioprod.cli.formats import JsonText, WithSchema
from aioprod.preparation import NotPrepared
from aioprod.schema_registry import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaRegistry,
    SchemaRegistryError,
)
from aioprod.schema_registry.avro import Parsing, read_by
from aioprod.schema_registry.avro_json import from_json, to_json
from aioprod.schema_registry.avro_resolution import UNDERLYING
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.serializers import SchemaDeserializer, SchemaSerializer
from aioprod.schema_registry.sharing import BoundedCache
from aioprod.schema_registry.wire_format import (
    KEY_HEADER,
    VALUE_HEADER,
    SchemaId,
    find_id,
    read_id,
    write_id,
)
from aioprod.types import Headers

_FIRST = (0,)
_ID_SIZE = 5
_NULL = object()
"""A null with a schema: Avro's type "null", as opposed to a record without a value."""


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
    """Deserializes data in the format of its schema, whose id it contains."""

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
        text = JsonText(json.dumps(content, ensure_ascii=False).encode())
        text.schema_id = schema_id if isinstance(schema_id, int) else str(schema_id)
        return text

    async def _prepare(self, schema_id: SchemaId) -> None:
        if isinstance(schema_id, int):
            schema = await self._registry.get_schema(schema_id)
        else:
            schema = await self._registry.get_schema_by_guid(str(schema_id))
        self._known.put(schema_id, self._formats[schema.type])


class RegistrySerializer:
    """Serializes the parsed JSON of a line. Uses the schema whose id the line or a header has, if
    the subject has this schema, and otherwise the subject's latest one.
    """

    def __init__(self, registry: SchemaRegistry, subject: str, *, is_key: bool) -> None:
        self._registry = registry
        self._subject = subject
        self._is_key = is_key
        self._known: BoundedCache[SchemaId | None, _Known] = BoundedCache(1_000)

    def __call__(self, topic: str, headers: Headers, data: Any, /) -> Any:
        """Return the bytes; None for a null, unless it has a schema."""
        schema_id: SchemaId | None = None
        if isinstance(data, WithSchema):
            schema_id = data.schema_id if isinstance(data.schema_id, int) else _guid(data.schema_id)
            data = _NULL if data.content is None else data.content
        if data is None:
            return None
        wanted = KEY_HEADER if self._is_key else VALUE_HEADER
        header = next((value for name, value in headers if name == wanted and value), None)
        if header is not None:
            schema_id, _ = read_id(header)
        known = self._known.get(schema_id)
        if known is None:
            raise NotPrepared(partial(self._prepare, schema_id))
        serializer, has_id = known
        if header is not None and not has_id:
            raise ValueError(
                f"the header {wanted} names the schema {schema_id}, which subject {self._subject} "
                "does not have: remove the header, or give the --subject of that schema"
            )
        encoded: Any = serializer(topic, headers, data)
        if not has_id or schema_id is None or (header is None and isinstance(schema_id, int)):
            return encoded
        suffix = serializer.id_suffix(None)
        body = encoded[_ID_SIZE + len(suffix) :]
        return body if header is not None else write_id(schema_id) + suffix + body

    async def _prepare(self, schema_id: SchemaId | None) -> None:
        number = None if schema_id is None else await self._number_of(schema_id)
        if number is None:
            found = await self._registry.get_version(self._subject)
            self._known.put(schema_id, _Known(await self._serializer_of(found.schema, found.id)))
        else:
            schema = await self._registry.get_schema(number)
            made = await self._serializer_of(schema, number)
            self._known.put(schema_id, _Known(made, has_id=schema_id is not None))

    async def _number_of(self, schema_id: SchemaId) -> int | None:
        """Return a schema's number in the subject; None if the subject does not have it."""
        try:
            if isinstance(schema_id, int):
                places = await self._registry.places(schema_id)
                return schema_id if self._subject in {name for name, _ in places} else None
            schema = await self._registry.get_schema_by_guid(str(schema_id))
            return (await self._registry.lookup(self._subject, schema)).id
        except SchemaRegistryError as error:
            if error.retriable:
                raise
            return None

    async def _serializer_of(self, schema: Schema, number: int) -> SchemaSerializer[Any]:
        options: SerializerOptions = {"is_key": self._is_key, "use_schema_id": number}
        if schema.type == "AVRO":
            return _JsonToAvro(self._registry, **options)
        if schema.type == "JSON":
            return _JsonToJson(self._registry, **options)
        described = await self._registry.get_schema(number, form=ProtobufDeserializer.form)
        messages = await ProtobufDeserializer(self._registry).parse(described)
        return _JsonToProtobuf(self._registry, messages.at(_FIRST), **options)


class _Known(NamedTuple):
    """A serializer for a schema id.

    Attributes:
        serializer: serializer with a schema of the subject.
        has_id: whether this schema has the requested id.
    """

    serializer: SchemaSerializer[Any]
    has_id: bool = False


def _guid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError(f"schema id {text!r}: must be a number, or a GUID") from None


class _AvroToJson(AvroDeserializer):
    def decoder(self, parsed: Parsing) -> Callable[[bytes], Any]:
        read = read_by(parsed, parsed.node, UNDERLYING)
        return lambda data: to_json(parsed.node, read(data, 0))


class _JsonToAvro(AvroSerializer):
    def encode(self, parsed: Parsing, data: Any) -> bytes:
        content = from_json(parsed.node, None if data is _NULL else data)
        return super().encode(parsed, content)


class _JsonToJson(JsonSchemaSerializer):
    def encode(self, parsed: Any, data: Any) -> bytes:
        return super().encode(parsed, None if data is _NULL else data)


class _JsonToProtobuf(ProtobufSerializer):
    def encode(self, parsed: bool, data: Any) -> bytes:
        return super().encode(parsed, ParseDict(data, self._type()))

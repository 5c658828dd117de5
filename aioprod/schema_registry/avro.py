"""Avro, by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import fastavro
from fastavro.schema import SchemaParseException

from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.avro_models import avro_schema, from_avro, to_avro
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.schemas import Schema
from aioprod.schema_registry.serializers import (
    GivenSchema,
    JsonSchemaTextDeserializer,
    JsonSchemaTextSerializer,
)
from aioprod.schema_registry.wire_format import Place

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.schema_registry.columns import ColumnTypes, Decode

Parsed = Any
"""A schema as fastavro has it: it describes schemas by plain dictionaries, lists and texts."""


class Parsing(NamedTuple):
    """A schema that was parsed with those that it refers to.

    Attributes:
        schema: the schema.
        is_bytes: whether it is "bytes".
        names: the full names of its types, by their names without the namespace.
    """

    schema: Parsed
    is_bytes: bool
    names: Mapping[str, str]


@set_module("aioprod.schema_registry")
class AvroSerializer(JsonSchemaTextSerializer[Parsing]):
    """Serializes dictionaries, dataclasses and pydantic models as Avro.

    Args:
        registry: the client of the registry.
        schema: the schema: its text, the object that JSON makes of it, a :class:`Schema` (with
            references), or a class (dataclass or pydantic model). None if the registry's is used.
        to_dict: makes of the data what fastavro writes; by default models become dictionaries.
        strict: refuse dictionaries with fields that the schema does not have.
        options: as of :class:`SchemaSerializer`: ``is_key``, ``auto_register``,
            ``use_latest_version``, ``use_schema_id``, ``latest_ttl_ms``, ``normalize``,
            ``subject``, ``id_in_header``.

    Raises:
        ConfigError: if the schema is invalid, or options contradict each other.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        strict: bool = False,
        **options: Unpack[SerializerOptions],
    ) -> None:
        super().__init__(registry, schema, schema_from, **options)
        self._to_dict = to_dict
        self._strict = strict

    def record_name(self, content: Any) -> str | None:
        """Return the full name of a record."""
        return full_name(content)

    async def parse(self, schema: Schema, kind: Hashable) -> Parsing:
        """Parse a schema with its references."""
        return await parsed_with_references(self.registry, schema)

    def encode(self, parsed: Parsing, data: Any) -> bytes:
        """Serialize data; of the type "bytes" they are stored without their length."""
        convert = self._to_dict
        data = to_avro(data, parsed.names) if convert is None else convert(data)
        if parsed.is_bytes:
            return bytes(data)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed.schema, data, strict=self._strict)
        return out.getvalue()

    def encode_column(
        self, parsed: Parsing, prefix: bytes, column: pa.Array, first_row: int
    ) -> pa.Array:
        """Serialize the values of a column, all at once.

        Raises:
            TypeError, ValueError: if the column does not fit the schema; the text names it.
        """
        from aioprod.schema_registry.avro_columns import encode_column
        from aioprod.schema_registry.avro_types import avro_type

        if self._to_dict is not None:
            raise TypeError("to_dict is for records: columns are written as they are")
        kind = avro_type(parsed.schema)
        return encode_column(
            kind,
            column,
            prefix=prefix,
            first_row=first_row,
            strict=self._strict,
            is_bytes=parsed.is_bytes,
        )


@set_module("aioprod.schema_registry")
class AvroDeserializer(JsonSchemaTextDeserializer[Parsing]):
    """Deserializes Avro to dictionaries, or to a model.

    Args:
        registry: the client of the registry.
        reader_schema: the schema that the application knows: records of other versions are read as
            this one, by Avro's rules for schema resolution. Any form that
            :class:`AvroSerializer` takes. None: each record is read as it was written.
        model: a dataclass or pydantic model to make of each record; its schema is the reader's
            unless ``reader_schema`` is given.
        from_dict: makes the result of what fastavro reads, in place of ``model``.
        is_key: whether it deserializes keys.

    Raises:
        ConfigError: if the schema is invalid.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        reader_schema: GivenSchema = None,
        *,
        model: type | None = None,
        from_dict: Callable[[Any], Any] | None = None,
        is_key: bool = False,
    ) -> None:
        super().__init__(
            registry, reader_schema, schema_from, model=model, from_dict=from_dict, is_key=is_key
        )
        self._reader: Parsed = None

    async def parse(self, schema: Schema) -> Parsing:
        """Parse the schema of a record, and the reader's when it is first needed."""
        await self.parse_reader()
        return await parsed_with_references(self.registry, schema)

    async def parse_reader(self) -> None:
        """Parse the reader's schema, once."""
        if self._reader_schema is not None and self._reader is None:
            self._reader = (await parsed_with_references(self.registry, self._reader_schema)).schema

    def decode(self, parsed: Parsing, data: bytes) -> Any:
        """Deserialize data by the schema of the record and the reader's.

        Raises:
            ValueError: if bytes are left over.
        """
        if parsed.is_bytes:
            found: Any = data
        else:
            source = io.BytesIO(data)
            found = fastavro.schemaless_reader(source, parsed.schema, self._reader)
            if left := len(data) - source.tell():
                raise ValueError(f"{left} bytes follow the Avro data")
        return self._result(found, from_avro)

    def column_types(self, place: Place | None, newest: Parsing | None) -> ColumnTypes:
        """Return the types of the reader's schema, or of the newest."""
        from aioprod.schema_registry.avro_types import avro_type
        from aioprod.schema_registry.columns import ColumnTypes

        kind = avro_type(self._reader if newest is None else newest.schema)
        return ColumnTypes(kind.physical, kind.arrow)

    def column_decoder(
        self, parsed: Parsing, place: Place, reader: Place | None, newest: Parsing | None
    ) -> Decode:
        """Return what decodes records for the reader's schema, or the newest."""
        from aioprod.schema_registry.avro_types import without_logical_types

        if parsed.is_bytes:
            return lambda data, start: data[start:]
        known = self._reader if newest is None else newest.schema
        written, wanted = (
            fastavro.parse_schema(without_logical_types(each)) for each in (parsed.schema, known)
        )
        as_written = None if written == wanted else wanted
        read = fastavro.schemaless_reader

        def decode(data: bytes, start: int) -> Any:
            source = io.BytesIO(data)
            source.seek(start)
            found = read(source, written, as_written)
            if left := len(data) - source.tell():
                raise ValueError(f"{left} bytes follow the Avro data")
            return found

        return decode


def schema_from(given: GivenSchema) -> Schema | None:
    """Return a schema that may be given in several forms.

    Raises:
        ConfigError: if it is not valid JSON, or not an Avro schema.
    """
    if given is None or isinstance(given, Schema):
        schema = given
    elif isinstance(given, type):
        schema = avro_schema(given)
    elif isinstance(given, str):
        # A name alone, such as "string", is a schema.
        text = given.strip()
        schema = Schema(text if text[:1] in ("{", "[", '"') else json.dumps(text))
    else:
        schema = Schema(json.dumps(given))
    if schema is not None:
        try:
            content = json.loads(schema.text)
            if not schema.references:
                _parse(content, {})
        except (ValueError, KeyError, SchemaParseException) as error:
            raise ConfigError(f"schema: invalid Avro schema: {error!r}") from error
    return schema


async def parsed_with_references(registry: SchemaRegistry, schema: Schema) -> Parsing:
    """Parse a schema with those that it refers to."""
    used: dict[str, Any] = {}
    for each in (await registry.resolve(schema)).values():
        _parse(json.loads(each.text), used)
    content = json.loads(schema.text)
    kind = content.get("type") if isinstance(content, dict) else content
    named = dict(used)
    parsed = _parse(content, named)
    if used:
        # fastavro parses a schema that is no record again for each call, without other schemas.
        named = {}
        parsed = _parse(_with_definitions(parsed, used, set()), named)
    names = {name.rpartition(".")[2]: name for name in named}
    return Parsing(parsed, kind == "bytes" and not _logical(content), names)


def _with_definitions(schema: Any, used: Mapping[str, Any], written: set[str]) -> Any:
    """Return a schema in which the first use of each name is the definition of that name."""
    if isinstance(schema, list):
        return [_with_definitions(each, used, written) for each in schema]
    if isinstance(schema, str):
        if schema not in used or schema in written:
            return schema
        schema = used[schema]
    if "name" in schema:
        written.add(schema["name"])
    found = {name: value for name, value in schema.items() if not name.startswith("__")}
    for part in ("type", "items", "values"):
        if part in found:
            found[part] = _with_definitions(found[part], used, written)
    if "fields" in found:
        found["fields"] = [
            _with_definitions_of_field(each, used, written) for each in found["fields"]
        ]
    return found


def _with_definitions_of_field(
    field: Mapping[str, Any], used: Mapping[str, Any], written: set[str]
) -> dict[str, Any]:
    return {**field, "type": _with_definitions(field["type"], used, written)}


def _parse(content: Any, named: dict[str, Any]) -> Parsed:
    return fastavro.parse_schema(content, named_schemas=named)


def _logical(content: Any) -> bool:
    return isinstance(content, dict) and "logicalType" in content


def full_name(content: Any) -> str | None:
    """Return the full name of a schema, None if it has no name."""
    if not isinstance(content, dict) or "name" not in content:
        return content if isinstance(content, str) else None
    name, namespace = content["name"], content.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name

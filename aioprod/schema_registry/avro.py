"""Avro: the serializer and the deserializer."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from aioprod.decoding_limits import DEFAULT_LIMITS, DecodingLimits
from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.avro_models import avro_schema
from aioprod.schema_registry.avro_nodes import AvroNode, all_nodes, described, parse_node
from aioprod.schema_registry.avro_objects import ObjectMaker, keep_branch, mark_branch
from aioprod.schema_registry.avro_resolution import Form, converting, nothing, reading
from aioprod.schema_registry.avro_writing import default_bytes, writer_of
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.schemas import Schema, load_schema
from aioprod.schema_registry.serializers import (
    GivenSchema,
    JsonSchemaTextDeserializer,
    JsonSchemaTextSerializer,
)
from aioprod.schema_registry.wire_format import Place

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.schema_registry.columns import ColumnTypes, Decode

_ROWS = Form("all", mark_branch)
_OBJECTS = Form("all", keep_branch, of_models=True)
_COLUMNS = Form("decimal", nothing)


@dataclass(slots=True, eq=False)
class Parsing:
    """A parsed schema, with the schemas that it refers to.

    Attributes:
        node: its type.
        is_bytes: whether it is "bytes", whose data has no length in front.
        encode: converts a value to bytes; created when first used.
        decode: converts bytes to a value; created when first used.
    """

    node: AvroNode
    is_bytes: bool
    encode: Callable[[Any], bytes] | None = None
    decode: Callable[[bytes], Any] | None = None

    @property
    def schema(self) -> Any:
        """The schema as JSON, without references."""
        return described(self.node)


@set_module("aioprod.schema_registry")
class AvroSerializer(JsonSchemaTextSerializer[Parsing]):
    """Serializes dictionaries, dataclasses and pydantic models as Avro.

    Args:
        registry: the client of the registry.
        schema: the schema: its text, the parsed JSON (a dict or list), a :class:`Schema` (with
            references), or a class (dataclass or pydantic model). None to use the registry's.
        to_dict: converts the data to a dictionary; by default models are written directly.
        strict: refuse dictionaries and models with fields that the schema does not have.
        options: as in :class:`SchemaSerializer`: ``is_key``, ``auto_register``,
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
        """Serialize data; data of the type "bytes" are stored without their length.

        Raises:
            TypeError, ValueError: if the data doesn't fit the schema; the message names the field.
        """
        if self._to_dict is not None:
            data = self._to_dict(data)
        if parsed.is_bytes and isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        if parsed.encode is None:
            parsed.encode = writer_of(parsed.node, strict=self._strict)
        return parsed.encode(data)

    def encode_column(
        self, parsed: Parsing, prefix: bytes, column: pa.Array, first_row: int
    ) -> pa.Array:
        """Serialize the values of a column, all at once.

        Raises:
            TypeError, ValueError: if the column does not fit the schema; the message names it.
        """
        from aioprod.schema_registry.avro_columns import encode_column
        from aioprod.schema_registry.avro_types import avro_type

        if self._to_dict is not None:
            raise TypeError("to_dict is not called for columns: serialize records, or leave it out")
        kind = avro_type(parsed.node)
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
    """Deserializes Avro to dictionaries, or to objects of a model.

    Args:
        registry: the client of the registry.
        reader_schema: the schema that the application knows. Records of other versions are
            converted to it, by Avro's rules for schema resolution. Any form that
            :class:`AvroSerializer` accepts. None: each record is read by its own schema.
        model: a dataclass or pydantic model to convert each record to; its schema is the reader's
            unless ``reader_schema`` is given.
        from_dict: converts what was read to the result, instead of ``model``.
        is_key: whether it deserializes keys.
        limits: limits on the cost of decoding a record.

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
        limits: DecodingLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(
            registry, reader_schema, schema_from, model=model, from_dict=from_dict, is_key=is_key
        )
        self._limits = limits
        self._reader: AvroNode | None = None
        self._maker: ObjectMaker | None = None

    async def parse(self, schema: Schema) -> Parsing:
        """Parse the schema of a record, and the reader's when it is first needed."""
        await self.parse_reader()
        return await parsed_with_references(self.registry, schema)

    async def parse_reader(self) -> None:
        """Parse the reader's schema, once."""
        if self._reader_schema is not None and self._reader is None:
            reader = (await parsed_with_references(self.registry, self._reader_schema)).node
            if self._model is not None and self._from_dict is None:
                self._maker = ObjectMaker(reader, self._model)
            self._reader = reader

    def decode(self, parsed: Parsing, data: bytes) -> Any:
        """Deserialize data by the record's schema and the reader's.

        Raises:
            ValueError: if they don't fit, bytes are left over, or they exceed a limit.
        """
        if parsed.decode is None:
            parsed.decode = self.decoder(parsed)
        return parsed.decode(data)

    def decoder(self, parsed: Parsing) -> Callable[[bytes], Any]:
        """Return a function that deserializes the records of a schema.

        Raises:
            ValueError: if the reader's schema can read no record of it.
        """
        finish: Callable[[Any], Any] | None = self._from_dict or self._maker
        form = _ROWS if self._maker is None else _OBJECTS
        form = form._replace(limits=self._limits)
        read = read_by(parsed, self._reader or parsed.node, form)
        if finish is None:
            return lambda data: read(data, 0)
        return lambda data: finish(read(data, 0))

    def column_types(self, place: Place | None, newest: Parsing | None) -> ColumnTypes:
        """Return the column types of the reader's schema, or of the newest schema."""
        from aioprod.schema_registry.avro_types import avro_type
        from aioprod.schema_registry.columns import ColumnTypes

        kind = avro_type(self._known(newest))
        return ColumnTypes(kind.physical, kind.arrow)

    def column_decoder(
        self, parsed: Parsing, place: Place, reader: Place | None, newest: Parsing | None
    ) -> Decode:
        """Return a function that decodes records to the reader's schema, or to the newest one."""
        return read_by(parsed, self._known(newest), _COLUMNS._replace(limits=self._limits))

    def _known(self, newest: Parsing | None) -> AvroNode:
        if newest is not None:
            return newest.node
        assert self._reader is not None
        return self._reader


def read_by(parsed: Parsing, reader: AvroNode, form: Form) -> Callable[[bytes, int], Any]:
    """Return a function that decodes the records of a schema: ``(data, start) -> value``.

    Raises:
        ValueError: if the reader's schema can read no record of it.
    """
    if not parsed.is_bytes:
        return reading(parsed.node, reader, form)
    convert = converting(parsed.node, reader, form)
    return lambda data, start: convert(data[start:])


def schema_from(given: GivenSchema) -> Schema | None:
    """Return a schema that was given in one of several forms.

    Raises:
        ConfigError: if it is not valid JSON, or not an Avro schema.
    """
    if given is None or isinstance(given, Schema):
        schema = given
    elif isinstance(given, type):
        schema = avro_schema(given)
    elif isinstance(given, str):
        # A name alone, such as "string", is also a schema.
        text = given.strip()
        schema = Schema(text if text[:1] in ("{", "[", '"') else json.dumps(text))
    else:
        schema = Schema(json.dumps(given))
    if schema is not None:
        try:
            content = load_schema(schema.text)
            if not schema.references:
                _check_defaults(parse_node(content))
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"schema: invalid Avro schema: {error}") from error
    return schema


def _check_defaults(node: AvroNode) -> None:
    for each in all_nodes(node):
        for field in each.fields:
            try:
                default_bytes(field)
            except ValueError as error:
                raise ValueError(f"{each.name}.{error}") from None


async def parsed_with_references(registry: SchemaRegistry, schema: Schema) -> Parsing:
    """Parse a schema, with the schemas that it refers to.

    Raises:
        ValueError: if it is not an Avro schema.
    """
    named: dict[str, AvroNode] = {}
    try:
        for each in (await registry.resolve(schema)).values():
            parse_node(load_schema(each.text), named)
        node = parse_node(load_schema(schema.text), named)
    except RecursionError:
        raise ValueError("the types of the schema are nested too deeply") from None
    return Parsing(node, node.kind == "bytes" and node.logical is None)


def full_name(content: Any) -> str | None:
    """Return the full name of a schema; None if it has no name."""
    if not isinstance(content, dict) or "name" not in content:
        return content if isinstance(content, str) else None
    name, namespace = content["name"], content.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name

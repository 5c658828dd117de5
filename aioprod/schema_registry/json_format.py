"""JSON Schema, by jsonschema."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.json_models import from_json, json_schema, to_json
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
    from aioprod.schema_registry.json_columns import JsonType

Check = Callable[[Any], None]


class Validation(NamedTuple):
    """A schema with those that it refers to.

    Attributes:
        check: raises ValueError for what does not fit the schema.
        content: what JSON makes of the schema.
        used: the same for those that it refers to, by the names of the references.
    """

    check: Check
    content: Any
    used: Mapping[str, Any]


@set_module("aioprod.schema_registry")
class JsonSchemaSerializer(JsonSchemaTextSerializer[Validation]):
    """Serializes dictionaries, dataclasses and pydantic models as JSON, and checks them by a
    schema. The JSON is compact and in UTF-8.

    Args:
        registry: the client of the registry.
        schema: the schema: its text, the object that JSON makes of it, a :class:`Schema` (with
            references), or a class (dataclass or pydantic model). None if the registry's is used.
        to_dict: makes of the data what JSON has; by default models become dictionaries.
        validate: check data by the schema that they are written with.
        options: as of :class:`AvroSerializer`.

    Raises:
        ConfigError: if the schema is invalid, or options contradict each other.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: GivenSchema = None,
        *,
        to_dict: Callable[[Any], Any] = to_json,
        validate: bool = True,
        **options: Unpack[SerializerOptions],
    ) -> None:
        super().__init__(registry, schema, schema_from, **options)
        self._to_dict = to_dict
        self._validate = validate

    def record_name(self, content: Any) -> str | None:
        """Return the title."""
        return content.get("title") if isinstance(content, dict) else None

    async def parse(self, schema: Schema, kind: Hashable) -> Validation:
        """Make the check of a schema."""
        return await _validation(self.registry, schema)

    def encode(self, parsed: Validation, data: Any) -> bytes:
        """Check and serialize data."""
        content = self._to_dict(data)
        if self._validate:
            parsed.check(content)
        return json.dumps(
            content, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode()

    def encode_column(
        self, parsed: Validation, prefix: bytes, column: pa.Array, first_row: int
    ) -> pa.Array:
        """Serialize each value of a column. What is null is left out if the schema allows it to be
        missing.
        """
        from aioprod.schema_registry.columns import encode_one_by_one, python_values
        from aioprod.schema_registry.json_columns import json_type

        write = json_type(parsed.content, parsed.used).write
        values = python_values(column)
        if write is not None:
            values = [None if each is None else write(each) for each in values]
        return encode_one_by_one(values, prefix, partial(self.encode, parsed), first_row)


@set_module("aioprod.schema_registry")
class JsonSchemaDeserializer(JsonSchemaTextDeserializer[Validation]):
    """Deserializes JSON to dictionaries, or to a model.

    Args:
        registry: the client of the registry.
        reader_schema: the schema by which records are checked, in place of the one that they were
            written with. Any form that :class:`JsonSchemaSerializer` takes.
        model: a dataclass or pydantic model to make of each record; its schema is the reader's
            unless ``reader_schema`` is given.
        from_dict: makes the result of what JSON has, in place of ``model``.
        validate: check records by the schema.
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
        validate: bool = True,
        is_key: bool = False,
    ) -> None:
        super().__init__(
            registry, reader_schema, schema_from, model=model, from_dict=from_dict, is_key=is_key
        )
        self._reader: Validation | None = None
        self._validate = validate

    async def parse(self, schema: Schema) -> Validation:
        """Make the check of the reader's schema, or of the record's."""
        if self._reader_schema is None:
            return await _validation(self.registry, schema)
        await self.parse_reader()
        assert self._reader is not None
        return self._reader

    async def parse_reader(self) -> None:
        """Make the check of the reader's schema, once."""
        if self._reader_schema is not None and self._reader is None:
            self._reader = await _validation(self.registry, self._reader_schema)

    def decode(self, parsed: Validation, data: bytes) -> Any:
        """Deserialize and check data."""
        content = json.loads(data)
        if self._validate:
            parsed.check(content)
        return self._result(content, from_json)

    def column_types(self, place: Place | None, newest: Validation | None) -> ColumnTypes:
        """Return the types of the reader's schema, or of the newest."""
        from aioprod.schema_registry.columns import ColumnTypes

        found = self._json_type(newest).arrow
        return ColumnTypes(found, found)

    def column_decoder(
        self, parsed: Validation, place: Place, reader: Place | None, newest: Validation | None
    ) -> Decode:
        """Return what decodes records for the reader's schema, or the newest."""
        read, check, validates = self._json_type(newest).read, parsed.check, self._validate

        def decode(data: bytes, start: int) -> Any:
            content = json.loads(data[start:])
            if validates:
                check(content)
            return content if read is None or content is None else read(content)

        return decode

    def _json_type(self, newest: Validation | None) -> JsonType:
        from aioprod.schema_registry.json_columns import json_type

        known = self._reader if newest is None else newest
        assert known is not None
        return json_type(known.content, known.used)


def schema_from(given: GivenSchema) -> Schema | None:
    """Return a schema that may be given in several forms.

    Raises:
        ConfigError: if it is not valid JSON, or not a JSON Schema.
    """
    if given is None or isinstance(given, Schema):
        schema = given
    elif isinstance(given, type):
        schema = json_schema(given)
    else:
        schema = Schema(given if isinstance(given, str) else json.dumps(given), "JSON")
    if schema is not None:
        try:
            content = json.loads(schema.text)
            validator_for(content).check_schema(content)
        except ValueError as error:
            raise ConfigError(f"schema: invalid JSON: {error}") from error
        except SchemaError as error:
            raise ConfigError(f"schema: invalid JSON Schema: {error.message}") from error
    return schema


async def _validation(registry: SchemaRegistry, schema: Schema) -> Validation:
    # Without a function that retrieves, so that nothing but the schema registry is asked.
    known: Registry[Any] = Registry()
    used = {}
    for name, each in (await registry.resolve(schema)).items():
        used[name] = content = json.loads(each.text)
        resource = Resource.from_contents(content, default_specification=DRAFT7)
        known = known.with_resource(name, resource)
    content = json.loads(schema.text)
    validate = validator_for(content)(content, registry=known).validate

    def check(data: Any) -> None:
        try:
            validate(data)
        except ValidationError as error:
            # Its text would show the data.
            where = "".join(f"/{part}" for part in error.absolute_path) or "/"
            raise ValueError(
                f"the data at {where} break {error.validator!r} of the schema"
            ) from None

    return Validation(check, content, used)

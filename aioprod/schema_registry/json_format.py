"""JSON Schema, validated by the package jsonschema."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError

from aioprod.decoding_limits import DEFAULT_LIMITS, DecodingLimits, beyond, load_json
from aioprod.errors import ConfigError
from aioprod.public_module import set_module
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.json_models import from_json, json_schema, to_json
from aioprod.schema_registry.json_references import (
    Document,
    check_ends,
    document_of,
    draft_of,
    subschemas,
)
from aioprod.schema_registry.json_validation import Steps, first_error, limited
from aioprod.schema_registry.linear_patterns import compiled
from aioprod.schema_registry.model_fields import is_pydantic
from aioprod.schema_registry.options import SerializerOptions
from aioprod.schema_registry.pydantic_json import readable_schemas
from aioprod.schema_registry.schemas import Schema, invalid_if_it_fails, load_schema
from aioprod.schema_registry.serializers import (
    GivenSchema,
    JsonSchemaTextDeserializer,
    JsonSchemaTextSerializer,
)
from aioprod.schema_registry.wire_format import Place
from aioprod.schema_registry.work_apart import TakesLong

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from aioprod.schema_registry.columns import ColumnTypes, Decode
    from aioprod.schema_registry.json_columns import JsonType

_CHECKS_PER_BYTE = 4
_CHECKS_IN_LOOP = 1_000
"""This many steps take a few milliseconds."""
_LONGEST_PATH = 200


class Validation(NamedTuple):
    """A schema that validates data.

    Attributes:
        document: the schema, with the schemas that it refers to.
        validator: jsonschema's validator, with limits.
        limits: limits on the cost of validating a record.
        other: an alternative, if data of two schemas are valid; None if there is only one.
    """

    document: Document
    validator: Any
    limits: DecodingLimits
    other: Any = None

    def check(self, data: Any, size: int, *, may_wait: bool = False) -> None:
        """Validate data.

        Args:
            size: the size of their JSON, in bytes.
            may_wait: whether a long validation may be stopped in the event loop.

        Raises:
            ValueError: if they don't fit the schema, or exceed a limit.
            TakesLong: if a thread should validate them.
        """
        steps = _steps(self.limits, size, may_wait=may_wait)
        try:
            error = first_error(self.validator, data, steps)
            if error is not None and self.other is not None:
                error = first_error(self.other, data, steps) and error
        except RecursionError:
            raise ValueError("validation exceeds Python's recursion limit") from None
        except (ValueError, TakesLong):
            raise
        except (
            Exception
        ) as error:  # an invalid schema; jsonschema's error text may contain the data
            missing = getattr(error, "ref", None)
            fault = f"no {missing!r}" if missing else type(error).__name__
            raise ValueError(f"the schema is not valid: {fault}") from None
        if error is not None:
            # Its text may contain the data.
            where = "".join(f"/{part}" for part in error.absolute_path) or "/"
            if len(where) > _LONGEST_PATH:
                where = f"{where[:_LONGEST_PATH]}..."
            if error.validator is None:  # the schema false
                raise ValueError(f"the schema allows no data at {where}")
            raise ValueError(f"the data at {where} violate {error.validator!r} of the schema")


def _steps(limits: DecodingLimits, size: int, *, may_wait: bool) -> Steps:
    """Return the steps that are left for data of this size; in the event loop these are few."""
    most = limits.max_checks + _CHECKS_PER_BYTE * size
    if may_wait and most > _CHECKS_IN_LOOP and _is_in_loop():
        return Steps(_CHECKS_IN_LOOP, TakesLong)
    return Steps(most, partial(beyond, "to check", "max_checks", limits.max_checks))


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@set_module("aioprod.schema_registry")
class JsonSchemaSerializer(JsonSchemaTextSerializer[Validation]):
    """Serializes dictionaries, dataclasses and pydantic models as JSON, and validates them by a
    schema. The JSON is compact, in UTF-8.

    Args:
        registry: the client of the registry.
        schema: the schema: its text, the parsed JSON (a dict or list), a :class:`Schema` (with
            references), or a class (dataclass or pydantic model). None to use the registry's.
        to_dict: converts the data for JSON; by default models are converted to dictionaries.
        validate: validate data by the schema that they are written with.
        limits: limits on the cost of validating a record.
        options: as in :class:`AvroSerializer`.

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
        limits: DecodingLimits = DEFAULT_LIMITS,
        **options: Unpack[SerializerOptions],
    ) -> None:
        super().__init__(registry, schema, schema_from, **options)
        self._limits = limits
        self._to_dict = to_dict
        self._validate = validate

    def record_name(self, content: Any) -> str | None:
        """Return the schema's title."""
        return content.get("title") if isinstance(content, dict) else None

    async def parse(self, schema: Schema, kind: Hashable) -> Validation:
        """Return the validation by a schema."""
        return await _validation(self.registry, schema, self._limits)

    def encode(self, parsed: Validation, data: Any) -> bytes:
        """Validate and serialize data."""
        content = self._to_dict(data)
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if self._validate:
            parsed.check(content, len(text))
        return text.encode()

    def encode_column(
        self, parsed: Validation, prefix: bytes, column: pa.Array, first_row: int
    ) -> pa.Array:
        """Serialize each value of a column. Nulls are left out if the schema allows them to be
        missing.
        """
        from aioprod.schema_registry.columns import encode_one_by_one, python_values
        from aioprod.schema_registry.json_columns import json_type

        write = json_type(parsed.document).write
        values = python_values(column)
        if write is not None:
            values = [None if each is None else write(each) for each in values]
        return encode_one_by_one(values, prefix, partial(self.encode, parsed), first_row)


@set_module("aioprod.schema_registry")
class JsonSchemaDeserializer(JsonSchemaTextDeserializer[Validation]):
    """Deserializes JSON to dictionaries, or to objects of a model.

    Args:
        registry: the client of the registry.
        reader_schema: the schema that validates records, instead of their own. Any form that
            :class:`JsonSchemaSerializer` accepts.
        model: a dataclass or pydantic model to convert each record to; its schema is the reader's
            unless ``reader_schema`` is given.
        from_dict: converts the parsed JSON to the result, instead of ``model``.
        validate: validate records by the schema.
        is_key: whether it deserializes keys.
        limits: limits on the cost of reading a record.

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
        limits: DecodingLimits = DEFAULT_LIMITS,
    ) -> None:
        super().__init__(
            registry, reader_schema, schema_from, model=model, from_dict=from_dict, is_key=is_key
        )
        self._limits = limits
        self._other: Schema | None = None
        if is_pydantic(self._model) and (reader_schema is None or reader_schema is self._model):
            # A model may read other names than it writes.
            own, *others = readable_schemas(self._model)
            self._reader_schema = schema_from(own)
            self._other = schema_from(others[0]) if others else None
        self._reader: Validation | None = None
        self._validate = validate

    async def parse(self, schema: Schema) -> Validation:
        """Return the validation by the reader's schema, or by the record's."""
        if self._reader_schema is None:
            return await _validation(self.registry, schema, self._limits)
        await self.parse_reader()
        assert self._reader is not None
        return self._reader

    async def parse_reader(self) -> None:
        """Parse the reader's schema, once."""
        if self._reader_schema is not None and self._reader is None:
            found = await _validation(self.registry, self._reader_schema, self._limits)
            if self._other is not None:
                other = await _validation(self.registry, self._other, self._limits)
                found = found._replace(other=other.validator)
            self._reader = found

    def decode(self, parsed: Validation, data: bytes) -> Any:
        """Deserialize and validate data."""
        content = load_json(data, self._limits.max_depth)
        if self._validate:
            parsed.check(content, len(data), may_wait=True)
        steps = _steps(self._limits, len(data), may_wait=True)
        return self._result(content, partial(from_json, spend=steps.spend))

    def column_types(self, place: Place | None, newest: Validation | None) -> ColumnTypes:
        """Return the column types of the reader's schema, or of the newest schema."""
        from aioprod.schema_registry.columns import ColumnTypes

        found = self._json_type(newest).arrow
        return ColumnTypes(found, found)

    def column_decoder(
        self, parsed: Validation, place: Place, reader: Place | None, newest: Validation | None
    ) -> Decode:
        """Return a function that decodes records to the reader's schema, or to the newest one."""
        read, check, validates = self._json_type(newest).read, parsed.check, self._validate
        max_depth = self._limits.max_depth

        def decode(data: bytes, start: int) -> Any:
            content = load_json(data[start:], max_depth)
            if validates:
                check(content, len(data), may_wait=True)
            return content if read is None or content is None else read(content)

        return decode

    def _json_type(self, newest: Validation | None) -> JsonType:
        from aioprod.schema_registry.json_columns import json_type

        known = self._reader if newest is None else newest
        assert known is not None
        return json_type(known.document)


def schema_from(given: GivenSchema) -> Schema | None:
    """Return a schema that was given in one of several forms.

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
            content = load_schema(schema.text)
            _check_schema(content)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"schema: invalid JSON: {error}") from error
        except SchemaError as error:
            raise ConfigError(f"schema: invalid JSON Schema: {error.message}") from error
    return schema


def _check_schema(content: Any) -> None:
    # Without formats: a pattern that Python can't compile may be valid in JavaScript.
    draft_of(content).check_schema(content, format_checker=FormatChecker(formats=()))


async def _validation(
    registry: SchemaRegistry, schema: Schema, limits: DecodingLimits
) -> Validation:
    used = await registry.resolve(schema)
    with invalid_if_it_fails("JSON Schema"):
        document = document_of(schema, used)
        check_ends(document)
        if limits.linear_patterns:
            _compile_patterns(document.content)
        kind = limited(document.draft, limits.linear_patterns)
        return Validation(document, kind(document.content, registry=document.known), limits)


def _compile_patterns(content: Any) -> None:
    for schema in subschemas(content):
        if isinstance(schema, dict):
            for pattern in (schema.get("pattern", ""), *schema.get("patternProperties", ())):
                compiled(pattern)

"""Spark's types for the columns of a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from aioprod.errors import ConfigError, SerializationError
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.schema_registry.avro import AvroDeserializer
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.json_format import JsonSchemaDeserializer
from aioprod.schema_registry.protobuf import Messages, ProtobufDeserializer
from aioprod.schema_registry.serializers import SchemaDeserializer
from aioprod.spark.registered.schemas import RegisteredValue, open_registry

_MOST_DIGITS = 38

T = TypeVar("T")


def spark_shape(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type for a schema's type in Spark. Timestamps have microseconds; times, and
    timestamps with nanoseconds, are numbers, as in Spark's ``from_avro``.

    Raises:
        ConfigError: if Spark has no such type.
    """
    types = pa.types
    if types.is_struct(kind):
        return pa.struct([(field.name, spark_shape(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(spark_shape(kind.value_type))
    if types.is_map(kind):
        return pa.map_(spark_shape(kind.key_type), spark_shape(kind.item_type))
    if types.is_timestamp(kind):
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us", kind.tz)
    if types.is_time(kind):
        return pa.int32() if types.is_time32(kind) else pa.int64()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0)
    if types.is_null(kind) or (types.is_decimal(kind) and kind.precision > _MOST_DIGITS):
        raise ConfigError(f"the schema has a type that Spark does not have: {kind}")
    return kind


def spark_type(value: RegisteredValue) -> DataType:
    """Return Spark's type of the values.

    Raises:
        ConfigError: if a column can't have the type of the schema.
    """
    return from_arrow_type(spark_shape(asyncio.run(_arrow_type(value))), prefer_timestamp_ntz=True)


def reader_of(
    value: RegisteredValue, registry: SchemaRegistry, message: Any = None
) -> SchemaDeserializer[Any]:
    """Return the deserializer for values with the schema.

    Args:
        message: the class of Protobuf messages.
    """
    limits, is_key = value.options.limits, value.options.column == "key"
    if value.options.format == "avro":
        return AvroDeserializer(registry, value.schema, limits=limits, is_key=is_key)
    if value.options.format == "json-schema":
        return JsonSchemaDeserializer(registry, value.schema, limits=limits, is_key=is_key)
    return ProtobufDeserializer(registry, message, is_key=is_key)


async def message_of(value: RegisteredValue, registry: SchemaRegistry) -> Any:
    """Return the class of the messages; None for other formats.

    Raises:
        ConfigError: if the registry returns no descriptor, or the schema has no such message.
    """
    if value.options.format != "protobuf":
        return None
    wanted = value.options.message
    try:
        messages: Messages = await ProtobufDeserializer(registry).parse(value.schema)
        return messages.named(wanted) if wanted else messages.at((0,))
    except ValueError as error:
        raise ConfigError(f"option {value.options.column}.format=protobuf: {error}") from None


async def _arrow_type(value: RegisteredValue) -> pa.DataType:
    async with open_registry(value.options.settings) as registry:
        reader = reader_of(value, registry, await message_of(value, registry))
        try:
            return (await reader.own_types()).arrow
        except ValueError as error:
            raise ConfigError(
                f"the schema of subject {value.options.subject} is not one of columns: {error}"
            ) from None


async def prepared(call: Callable[[], T]) -> T:
    """Call a function, and prepare what it needs, until it succeeds.

    Raises:
        SerializationError: if it is never prepared, for example with more schemas than the cache
            keeps.
    """
    for _ in range(MOST_ATTEMPTS):
        try:
            return call()
        except NotPrepared as needed:
            await needed.prepare()
            if needed.error is not None:
                raise needed.error from None
    raise SerializationError(
        f"the values have too many schemas: they were asked for {MOST_ATTEMPTS} times"
    )

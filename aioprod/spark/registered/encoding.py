"""Encodes the values and keys of a write with schemas, in tasks. Tasks send requests to the
registry only for the references of JSON Schemas and Protobuf files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import DataType

from aioprod.errors import ConfigError
from aioprod.schema_registry.avro import AvroSerializer
from aioprod.schema_registry.columns import encode_in_portions
from aioprod.schema_registry.json_format import JsonSchemaSerializer
from aioprod.schema_registry.protobuf import ProtobufSerializer
from aioprod.schema_registry.wire_format import write_id
from aioprod.spark._versions import arrow_type
from aioprod.spark.errors import SinkError
from aioprod.spark.registered.columns import message_of
from aioprod.spark.registered.schemas import RegisteredValue, open_registry

Encode = Callable[[pa.Array], pa.ChunkedArray]


def encoded(value: RegisteredValue, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches with encoded values, and encoded keys if these have a schema.

    Raises:
        SinkError: if a value does not match the schema; the message names the field and the row.
    """
    for each in (value, value.key):
        if each is not None:
            batches = _encoded(each, asyncio.run(_encoder(each)), batches)
    return batches


def check_value(value: RegisteredValue, kind: DataType) -> None:
    """Check on the driver that a column matches the schema.

    Raises:
        ConfigError: if it does not; the message names the field.
    """
    try:
        empty = pa.array([], arrow_type(kind))
        asyncio.run(_encoder(value))(empty)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the column {value.options.column} does not fit version {value.version} of subject "
            f"{value.options.subject}: {error}"
        ) from None


def _encoded(
    value: RegisteredValue, encode: Encode, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    before, name = 0, value.options.column
    for batch in batches:
        place = batch.schema.get_field_index(name)
        try:
            column = encode(batch.column(place))
        except (TypeError, ValueError) as error:
            raise SinkError(
                f"rows {before} to {before + batch.num_rows - 1} of this task: the column {name} "
                f"does not fit version {value.version} of subject {value.options.subject}: {error}"
            ) from None
        before += batch.num_rows
        yield batch.set_column(place, name, pa.concat_arrays(column.chunks))


async def _encoder(value: RegisteredValue) -> Encode:
    async with open_registry(value.options.settings) as registry:
        form = value.options.format
        serializer: Any
        if form == "protobuf":
            serializer = ProtobufSerializer(registry, await message_of(value, registry))
        elif form == "avro":
            serializer = AvroSerializer(registry, value.schema, strict=True)
        else:
            serializer = JsonSchemaSerializer(registry, value.schema)
        parsed = await serializer.parse(value.schema, None)
    prefix = write_id(value.schema_id) + serializer.id_suffix(None)
    # A schema that matches no column is detected with the first column.
    return partial(_portions, partial(serializer.encode_column, parsed, prefix))


def _portions(encode: Callable[[pa.Array, int], pa.Array], column: pa.Array) -> pa.ChunkedArray:
    if not len(column):
        return pa.chunked_array([encode(column, 0)])
    return encode_in_portions(column, encode)

"""Decodes the values of the source's rows by their schemas, in tasks."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError, KafkaTimeoutError
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.schemas import SchemaRegistryError
from aioprod.schema_registry.serializers import SchemaDeserializer
from aioprod.spark.registered.columns import message_of, prepared, reader_of, spark_shape
from aioprod.spark.registered.schemas import RegisteredValue, open_registry
from aioprod.spark.typed.options import RAW_VALUE

_VALUE = "value"


class RegisteredRows:
    """Turns rows with binary values into rows with the types of a schema.

    Args:
        value: the schema to read with.
        registry: asked for the schemas that records were written with; they are kept.
        deserializer: reads the values.
        kind: the type of the values.
    """

    def __init__(
        self,
        value: RegisteredValue,
        registry: SchemaRegistry,
        deserializer: SchemaDeserializer[Any],
        kind: pa.DataType,
    ) -> None:
        self._options = value.options
        self._registry = registry
        self._deserializer = deserializer
        self._kind = kind

    @classmethod
    async def open(cls, value: RegisteredValue) -> Self:
        """Make it with a client of the registry."""
        registry = open_registry(value.options.settings)
        try:
            deserializer = reader_of(value, registry, await message_of(value, registry))
            kind = spark_shape((await deserializer.own_types()).arrow)
        except BaseException:
            await registry.close()
            raise
        return cls(value, registry, deserializer, kind)

    async def close(self) -> None:
        """Close the client."""
        await self._registry.close()

    async def decode(self, rows: pa.RecordBatch, *, keep_headers: bool) -> pa.RecordBatch:
        """Return the rows with decoded values; without malformed ones with ``mode=dropmalformed``.

        Args:
            rows: with the column ``headers``, where an id may be.
            keep_headers: whether the result has it.

        Raises:
            CorruptRecordError: if a value is malformed with ``mode=failfast``; the text names the
                record.
            SchemaRegistryError, KafkaTimeoutError: if the registry can't be reached.
        """
        raw = rows.column(_VALUE)
        topic = rows.column("topic")[0].as_py() if rows.num_rows else ""
        decoded = await prepared(
            lambda: self._deserializer.deserialize_column(
                topic, rows.column("headers"), raw, shape=spark_shape
            )
        )
        for error in decoded.errors.values():
            if isinstance(error, KafkaTimeoutError) or (
                isinstance(error, SchemaRegistryError) and error.retriable
            ):
                raise error
        if decoded.errors and self._options.mode == "failfast":
            raise self._malformed(rows, decoded.errors)
        values = decoded.data
        if values.type != self._kind:  # all are null
            values = pa.nulls(len(values), self._kind)
        found = rows.set_column(rows.schema.get_field_index(_VALUE), _VALUE, values)
        if not keep_headers:
            found = found.drop_columns(["headers"])
        if self._options.include_raw:
            found = found.append_column(RAW_VALUE, raw)
        if self._options.mode == "dropmalformed" and decoded.errors:
            kept = np.ones(rows.num_rows, bool)
            kept[list(decoded.errors)] = False
            found = found.filter(pa.array(kept))
        return found

    def _malformed(self, rows: pa.RecordBatch, errors: Any) -> CorruptRecordError:
        row = min(errors)
        topic, partition, offset = (
            rows.column(name)[row].as_py() for name in ("topic", "partition", "offset")
        )
        return CorruptRecordError(
            f"{topic}-{partition}, offset {offset}: the value can't be read by the schema of "
            f"subject {self._options.subject}, and mode=failfast: {errors[row]}"
        )

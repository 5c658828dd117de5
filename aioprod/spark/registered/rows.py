"""Decodes the values of the source's rows by their schemas, in tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError, KafkaTimeoutError
from aioprod.logs import get_logger
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.schemas import SchemaRegistryError
from aioprod.schema_registry.serializers import SchemaDeserializer
from aioprod.spark.registered.columns import message_of, prepared, reader_of, spark_shape
from aioprod.spark.registered.schemas import RegisteredValue, open_registry
from aioprod.spark.typed.options import RAW_VALUE

log = get_logger(__name__)

_VALUE = "value"
_CURES = (
    ". To go on without such values, set mode=permissive (null; includeRawValue=true keeps their "
    "bytes for a dead-letter topic) or mode=dropmalformed"
)


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
        self._value = value
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
        """Return the rows with decoded values. With ``mode=permissive`` malformed ones are null,
        with ``mode=dropmalformed`` left out; their number and the first one's error are logged.

        Args:
            rows: with the column ``headers``, where an id may be.
            keep_headers: whether the result has it.

        Raises:
            CorruptRecordError: if a value is malformed with ``mode=failfast``, the default; the
                text names the record, and the schema that it was written by.
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
        if decoded.errors:
            text = self._malformed(rows, decoded.errors)
            if self._options.mode == "failfast":
                raise CorruptRecordError(f"{text}{_CURES}")
            log.warning("mode=%s: %s", self._options.mode, text)
        values = decoded.data
        if values.type != self._kind:  # all are null: another type would be an error
            values = values.cast(self._kind)
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

    def _malformed(self, rows: pa.RecordBatch, errors: Mapping[int, Exception]) -> str:
        """Say how many values of a batch can't be read, and why not the first of them."""
        row = min(errors)
        topic, partition, offset, value, headers = (
            rows.column(name)[row].as_py()
            for name in ("topic", "partition", "offset", _VALUE, "headers")
        )
        read_by = self._value
        text = (
            f"{topic}-{partition}, offset {offset}: the value can't be read by version "
            f"{read_by.version} (id {read_by.schema_id}) of the schema of subject "
            f"{self._options.subject}: {errors[row]}"
        )
        try:
            place, _ = self._deserializer.locate(
                [(each["key"], each["value"]) for each in headers or ()], value
            )
        except ValueError:
            pass
        else:
            known = not isinstance(errors[row], SchemaRegistryError)
            if known and place.schema_id != read_by.schema_id:
                text += (
                    f". It was written by schema id {place.schema_id}; if that is newer, start the "
                    "query again: load() asks for the latest version, and a running query keeps it"
                )
        if len(errors) > 1:
            text += f". {len(errors)} of {rows.num_rows} values of this batch can't be read"
        return text

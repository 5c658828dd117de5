"""Decodes the values and keys of the source's rows with their schemas, in tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.errors import CorruptRecordError, KafkaTimeoutError
from aioprod.logs import Logger, get_logger
from aioprod.schema_registry.client import SchemaRegistry
from aioprod.schema_registry.schemas import SchemaRegistryError
from aioprod.schema_registry.serializers import SchemaDeserializer
from aioprod.spark.registered.columns import message_of, prepared, reader_of, spark_shape
from aioprod.spark.registered.schemas import RegisteredValue, open_registry
from aioprod.spark.typed.options import RAW_VALUE

log: Logger = get_logger(__name__)

_VALUE = "value"
_CURES = (
    ". To go on without such values, set mode=permissive (null; includeRawValue=true keeps their "
    "bytes) or mode=dropmalformed, or in a stream deadLetterTopic=TOPIC instead of mode"
)


@dataclass(frozen=True, slots=True)
class RegisteredColumn:
    """Decodes the column of values, or that of keys.

    Attributes:
        schema: the schema to read with.
        deserializer: reads the column.
        kind: the type of the result.
    """

    schema: RegisteredValue
    deserializer: SchemaDeserializer[Any]
    kind: pa.DataType

    @classmethod
    async def open(cls, schema: RegisteredValue, registry: SchemaRegistry) -> Self:
        """Create it with a client of the registry."""
        deserializer = reader_of(schema, registry, await message_of(schema, registry))
        return cls(schema, deserializer, spark_shape((await deserializer.own_types()).arrow))

    @property
    def name(self) -> str:
        return self.schema.options.column

    async def decode(self, rows: pa.RecordBatch) -> tuple[pa.Array, Mapping[int, Exception]]:
        """Return the decoded column, and the errors of malformed entries, which are null.

        Raises:
            SchemaRegistryError, KafkaTimeoutError: if the registry can't be reached.
        """
        topic = rows.column("topic")[0].as_py() if rows.num_rows else ""
        decoded = await prepared(
            lambda: self.deserializer.deserialize_column(
                topic, rows.column("headers"), rows.column(self.name), shape=spark_shape
            )
        )
        for error in decoded.errors.values():
            if isinstance(error, KafkaTimeoutError) or (
                isinstance(error, SchemaRegistryError) and error.retriable
            ):
                raise error
        data = decoded.data
        if pa.types.is_null(data.type):  # no record has a known schema
            data = pa.nulls(len(data), self.kind)
        return data, decoded.errors


class RegisteredRows:
    """Converts rows with binary values, and keys, to rows with the types of their schemas.

    Args:
        value: the schema of values, with the options of the read.
        registry: the registry with the schemas that records were written with; they are cached.
        columns: the columns to decode.
    """

    def __init__(
        self, value: RegisteredValue, registry: SchemaRegistry, columns: Sequence[RegisteredColumn]
    ) -> None:
        self._options = value.options
        self._registry = registry
        self._columns = columns

    @classmethod
    async def open(cls, value: RegisteredValue) -> Self:
        """Create it with a client of the registry."""
        registry = open_registry(value.options.settings)
        try:
            columns = [
                await RegisteredColumn.open(each, registry)
                for each in (value, value.key)
                if each is not None
            ]
        except BaseException:
            await registry.close()
            raise
        return cls(value, registry, columns)

    async def close(self) -> None:
        """Close the client."""
        await self._registry.close()

    async def decode(
        self, rows: pa.RecordBatch, *, keep_headers: bool, rejected: dict[int, str] | None = None
    ) -> pa.RecordBatch:
        """Return the rows with decoded values and keys. With ``mode=permissive``, malformed ones
        are null; with ``mode=dropmalformed``, their rows are dropped. Their number and the first
        error are logged.

        Args:
            rows: rows with the column ``headers``, which may contain an id.
            keep_headers: True if the result has this column.
            rejected: gets the reason of each malformed row by its number, instead of the log.

        Raises:
            CorruptRecordError: if a value is malformed with ``mode=failfast``, the default; the
                message names the record and the schema that it was written with.
            SchemaRegistryError, KafkaTimeoutError: if the registry can't be reached.
        """
        found = rows
        errors: dict[int, tuple[RegisteredColumn, Exception]] = {}
        for column in self._columns:
            data, malformed = await column.decode(rows)
            found = found.set_column(found.schema.get_field_index(column.name), column.name, data)
            errors = {row: (column, error) for row, error in malformed.items()} | errors
        if rejected is not None:
            rejected |= {
                row: str(error) if column.name == _VALUE else f"the {column.name}: {error}"
                for row, (column, error) in sorted(errors.items())
            }
        elif errors:
            text = _describe_malformed(rows, errors)
            if self._options.mode == "failfast":
                raise CorruptRecordError(f"{text}{_CURES}")
            log.warning("mode=%s: %s", self._options.mode, text)
        if not keep_headers:
            found = found.drop_columns(["headers"])
        if self._options.include_raw:
            found = found.append_column(RAW_VALUE, rows.column(_VALUE))
        if self._options.mode == "dropmalformed" and errors:
            kept = np.ones(rows.num_rows, bool)
            kept[list(errors)] = False
            found = found.filter(pa.array(kept))
        return found


def _describe_malformed(
    rows: pa.RecordBatch, errors: Mapping[int, tuple[RegisteredColumn, Exception]]
) -> str:
    """Return a message with the number of rows in a batch that can't be read, and the reason for
    the first one.
    """
    row = min(errors)
    column, error = errors[row]
    topic, partition, offset, data, headers = (
        rows.column(name)[row].as_py()
        for name in ("topic", "partition", "offset", column.name, "headers")
    )
    read_by = column.schema
    text = (
        f"{topic}-{partition}, offset {offset}: the {column.name} can't be read by version "
        f"{read_by.version} (id {read_by.schema_id}) of the schema of subject "
        f"{read_by.options.subject}: {error}"
    )
    try:
        place, _ = column.deserializer.locate(
            [(each["key"], each["value"]) for each in headers or ()], data
        )
    except ValueError:
        pass
    else:
        known = not isinstance(error, SchemaRegistryError)
        if known and place.schema_id != read_by.schema_id:
            text += (
                f". It was written by schema id {place.schema_id}; if that is newer, start the "
                "query again: load() asks for the latest version, and a running query keeps it"
            )
    if len(errors) > 1:
        text += f". {len(errors)} of {rows.num_rows} values of this batch can't be read"
    return text

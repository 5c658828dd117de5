"""Serializes the columns of a table before they are sent. Imports pyarrow and numpy, which are
optional, so import this module on demand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.column_serialization import (
    ColumnSerializer,
    EncodedColumn,
    column_encoder,
    column_failure,
)
from aioprod.config.producer import ProducerConfig
from aioprod.errors import ConfigError, SerializationError
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.protocol.arrow_columns import headers_as_lists, record_table
from aioprod.serialization import BytesSerializer
from aioprod.types import Header
from aioprod.user_code import ENDS_PROGRAM

Encode = Callable[[Any], EncodedColumn]
Prepare = Callable[[NotPrepared], Awaitable[None]]

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ColumnsSerializer:
    """The serializers of a producer.

    Args:
        serializers: by the name of the column.
    """

    def __init__(self, serializers: Mapping[str, ColumnSerializer]) -> None:
        self._serializers = serializers

    @classmethod
    def of(cls, config: ProducerConfig) -> Self | None:
        """Return those of a producer, None if it has none.

        Raises:
            ConfigError: if one can't serialize columns, or single records are needed.
        """
        found: dict[str, ColumnSerializer] = {}
        for name, given in (("key", config.key_serializer), ("value", config.value_serializer)):
            if given is None or type(given) is BytesSerializer:
                continue
            if not isinstance(given, ColumnSerializer):
                raise ConfigError(
                    f"{name}_serializer={given!r}: send_arrow needs one that serializes columns, "
                    "such as those of aioprod.schema_registry; without one, keys and values are "
                    "bytes or text"
                )
            found[name] = given
        if not found:
            return None
        for name, value in (
            ("partitioner", config.partitioner),
            ("interceptors", config.interceptors),
        ):
            if value:
                raise ConfigError(
                    f"{name}={value!r} needs single records, and send_arrow serializes whole "
                    "columns: leave it out, or serialize the column before"
                )
        return cls(found)

    async def prepared(self, topic: str, data: Any, prepare: Prepare) -> Callable[[], pa.Table]:
        """Return what serializes the columns of a table; any thread may call it.

        Args:
            prepare: awaits what a serializer needs.

        Raises:
            SerializationError: if a serializer can't be prepared.
        """
        if isinstance(data, pa.RecordBatch):
            data = pa.Table.from_batches([data])
        if not isinstance(data, pa.Table):
            record_table(data)  # which refuses it
        encoders = {
            name: await _encoder(name, serializer, topic, prepare)
            for name, serializer in self._serializers.items()
            if data.schema.names.count(name) == 1
        }
        return partial(_serialized, topic, data, encoders)


async def _encoder(name: str, serializer: ColumnSerializer, topic: str, prepare: Prepare) -> Encode:
    for _ in range(MOST_ATTEMPTS):
        try:
            return column_encoder(name, serializer, topic)
        except NotPrepared as needed:
            await prepare(needed)
            if needed.error is not None:
                raise needed.error from needed.error.__cause__
    raise SerializationError(
        f"{name}_serializer asked to be prepared {MOST_ATTEMPTS} times for topic {topic!r}"
    )


def _serialized(topic: str, table: pa.Table, encoders: Mapping[str, Encode]) -> pa.Table:
    for name, encode in encoders.items():
        column = table.column(name)
        try:
            data, headers = encode(column)
        except ENDS_PROGRAM:
            raise
        except BaseException as error:
            raise column_failure(name, topic, error) from error
        table = table.set_column(table.schema.get_field_index(name), name, data)
        for header in headers:
            table = _with_header(table, header, column)
    return table


def _with_header(table: pa.Table, header: Header, column: pa.ChunkedArray) -> pa.Table:
    """Add a header to the records whose key or value is not null."""
    added = column.is_valid().to_numpy()
    count = table.num_rows
    if "headers" in table.schema.names and not pa.types.is_null(table.schema.field("headers").type):
        given = headers_as_lists(table.column("headers"))
    else:
        given = pa.nulls(count, _HEADERS)
    lengths = given.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    entries = given.flatten()
    name, value = header
    own = pa.array([{"key": name, "value": value}], _HEADERS.value_type)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths + added, out=offsets[1:])
    # Each record's own headers, and after them the new one, which is the last of all entries.
    places = np.full(offsets[-1], len(entries))
    is_own = np.ones(len(places), bool)
    is_own[offsets[1:][added] - 1] = False
    places[is_own] = np.arange(len(entries))
    items = pa.concat_arrays([entries, own]).take(pa.array(places))
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    if "headers" in table.schema.names:
        table = table.drop_columns("headers")
    return table.append_column("headers", lists)

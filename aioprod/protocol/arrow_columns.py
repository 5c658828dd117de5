"""Checks Arrow tables of records, and splits them into portions with simple column types. Imports
pyarrow, which is optional, so import this module on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.errors import InvalidPartitionError, SerializationError

_COLUMNS: Final = ("value", "key", "headers", "timestamp", "partition")
_DATA: Final = (
    "binary, string, large_binary, large_string, binary_view, string_view, fixed_size_binary or "
    "a dictionary of one of them"
)
_HEADERS: Final = (
    "list<struct<key: string, value: binary>> or map<string, binary>; key may be called name, "
    "value may be string"
)
_TIMESTAMP: Final = "timestamp of any unit, or int64 of milliseconds since 1970"
_BYTES: Final = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
_NAMES: Final = ({"key", "value"}, {"name", "value"})
_LATEST: Final = 2**62
#: Arrow has 32-bit offsets in a column, so an encoded record must be smaller than 2 GiB.
_LARGEST_ROW: Final = 2**31 - 2**16


def record_table(data: object) -> pa.Table:
    """Check the rows to send. Return them as a table with timestamps as int64 and partitions as
    int32.

    Copies only timestamps, partitions, and keys and values of types without offsets (views,
    dictionaries).

    Raises:
        SerializationError: if the data is not a table, a column is unknown, missing or of a type
            that can't be sent, or an offset, a timestamp or a header name is invalid.
        InvalidPartitionError: if a partition number is invalid.
    """
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if not isinstance(data, pa.Table):
        raise SerializationError(
            f"Arrow data of type {type(data).__name__}: must be a pyarrow.Table or "
            "pyarrow.RecordBatch"
        )
    names = data.schema.names
    if "value" not in names:
        raise SerializationError(
            f"the column value is required; the table has {', '.join(names) or 'no columns'}"
        )
    for name in names:
        if name not in _COLUMNS or names.count(name) > 1:
            what = "duplicated" if name in _COLUMNS else "unknown"
            raise SerializationError(
                f"column {name!r} is {what}; a table of records has the columns "
                f"{', '.join(_COLUMNS)}, all but value optional"
            )
    # A column of type null has no values.
    given = {
        name: data.column(name)
        for name in names
        if name == "value" or not pa.types.is_null(data.schema.field(name).type)
    }
    checks = {
        "value": _data,
        "key": _data,
        "headers": _headers,
        "timestamp": _timestamps,
        "partition": _partitions,
    }
    return pa.table({name: checks[name](name, column) for name, column in given.items()})


def is_checked_quickly(data: object) -> bool:
    """Return whether :func:`record_table` takes less than 2 ns per row. That is so if the table has
    only keys and values, of types that it does not copy.
    """
    return isinstance(data, pa.Table | pa.RecordBatch) and all(
        field.name in ("key", "value") and _is_data(field.type) for field in data.schema
    )


def largest_partition(table: pa.Table) -> int:
    """Return the largest number in the column ``partition``; -1 without such a column."""
    largest = (
        pc.max(table.column("partition")).as_py() if "partition" in table.schema.names else None
    )
    return -1 if largest is None else int(largest)


def windows(
    table: pa.Table, *, max_rows: int, max_bytes: int, max_row_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Split the rows of a ``record_table`` into portions, in order. Each portion comes with the
    number of its first row. Its keys and values are binary, its headers lists of structs.

    Args:
        max_bytes: limit on the size of a portion's columns; a larger row gets a separate portion.
        max_row_bytes: the portion of a larger row, or of one with nearly 2 GiB, is None.
    """
    max_row_bytes = min(max_row_bytes, _LARGEST_ROW)
    start = 0
    while start < table.num_rows:
        window = table.slice(start, max_rows)
        while (size := window.nbytes) > max_bytes and window.num_rows > 1:
            window = window.slice(0, max(1, window.num_rows * max_bytes // size))
        yield start, _plain(window) if size <= max_row_bytes or window.num_rows > 1 else None
        start += window.num_rows


# -- checks ----------------------------------------------------------------------------------------


def _refused(name: str, column: pa.ChunkedArray, allowed: str) -> SerializationError:
    return SerializationError(f"column {name!r} is of type {column.type}: must be {allowed}")


def _is_data(kind: pa.DataType) -> bool:
    types = pa.types
    tests = (
        types.is_binary,
        types.is_string,
        types.is_large_binary,
        types.is_large_string,
        types.is_fixed_size_binary,
    )
    return any(test(kind) for test in tests)


def _data(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_null(kind):
        return column
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (_is_data(values) or pa.types.is_binary_view(values) or pa.types.is_string_view(values)):
        raise _refused(name, column, _DATA)
    _check_offsets(name, column)
    # For the other types, the size of a slice is unknown until each row is read.
    return column if _is_data(kind) else column.cast(pa.large_binary())


def _check_offsets(name: str, column: pa.ChunkedArray) -> None:
    """Refuse a column with offsets outside its data: Arrow's functions do not check them.

    Text is checked as bytes, which need not be UTF-8: 0.5 ns per row.
    """
    for chunk in column.chunks:
        try:
            if pa.types.is_dictionary(chunk.type):
                values = chunk.dictionary
                pa.DictionaryArray.from_arrays(chunk.indices, values, safe=True)
            else:
                values = chunk
            values.view(_as_bytes(values.type)).validate(full=True)
        except (pa.ArrowInvalid, IndexError) as error:
            raise SerializationError(f"column {name!r}: {error}") from None


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    """Return the binary type with the same layout as a text type."""
    types = pa.types
    if types.is_map(kind):
        return pa.map_(_as_bytes(kind.key_type), _as_bytes(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        of = pa.list_ if types.is_list(kind) else pa.large_list
        return of(pa.struct([(field.name, _as_bytes(field.type)) for field in kind.value_type]))
    return _BYTES.get(kind, kind)


def _headers(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_map(kind):
        names, values = kind.key_type, kind.item_type
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(
        entry := kind.value_type
    ):
        if entry.num_fields != 2 or {field.name for field in entry} not in _NAMES:
            raise _refused(name, column, _HEADERS)
        names, values = (entry.field(index).type for index in name_and_value(entry))
    else:
        raise _refused(name, column, _HEADERS)
    if not (pa.types.is_string(names) or pa.types.is_large_string(names)) or not _is_data(values):
        raise _refused(name, column, _HEADERS)
    _check_offsets(name, column)
    start = 0
    for chunk in column.chunks:
        entries = _plain_headers(chunk)
        keys = entries.flatten().flatten()[name_and_value(entries.type.value_type)[0]]
        if keys.null_count:
            ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(entries), 0))
            row = start + pc.sum(pc.less_equal(ends, pc.index(keys.is_null(), True))).as_py()
            raise SerializationError(
                f"column {name!r}, row {row}: a header has no name, but Kafka requires one"
            )
        start += len(chunk)
    return column


def headers_as_lists(column: pa.ChunkedArray) -> pa.ListArray:
    """Return checked headers as one array of lists of ``key`` and ``value``.

    Raises:
        SerializationError: see :func:`record_table`.
    """
    entries = pa.concat_arrays(
        [_plain_headers(each) for each in _headers("headers", column).chunks]
    )
    name, value = name_and_value(entries.type.value_type)
    flat = entries.flatten()
    items = pa.StructArray.from_arrays(
        [flat.field(name).cast(pa.string()), flat.field(value).cast(pa.binary())],
        names=["key", "value"],
    )
    lengths = pc.fill_null(pc.list_value_length(entries), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, items)


def name_and_value(entry: pa.StructType) -> tuple[int, int]:
    """Return the indexes of the fields with a header's name and value."""
    value = entry.get_field_index("value")
    return 1 - value, value


def _timestamps(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_timestamp(kind):
        try:
            column = column.cast(pa.timestamp("ms", kind.tz), safe=kind.unit == "s").cast(
                pa.int64()
            )
        except pa.ArrowInvalid as error:
            raise SerializationError(f"column {name!r}: {error}") from None
    elif not pa.types.is_int64(kind):
        raise _refused(name, column, _TIMESTAMP)
    wrong = pc.or_(pc.less(column, -_LATEST), pc.greater_equal(column, _LATEST))
    if (row := pc.index(wrong, True).as_py()) >= 0:
        raise SerializationError(
            f"column {name!r}, row {row}: {column[row]} must be milliseconds since 1970, of at "
            "most 62 bits"
        )
    return column


def _partitions(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_integer(column.type):
        raise _refused(name, column, "an integer")
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise InvalidPartitionError(f"column {name!r}: {error}") from None


# -- plain types -----------------------------------------------------------------------------------


def _plain(window: pa.Table) -> pa.RecordBatch:
    plain = {"value": as_binary, "key": as_binary, "headers": _plain_headers}
    (batch,) = window.combine_chunks().to_batches()
    names = batch.schema.names
    return pa.RecordBatch.from_arrays(
        [
            plain[name](batch.column(name)) if name in plain else batch.column(name)
            for name in names
        ],
        names=names,
    )


def as_binary(column: pa.Array) -> pa.Array:
    """Cast a column of less than 2 GiB to binary. Text and bytes have the same layout in Arrow, so
    most casts copy nothing.
    """
    try:
        return column.cast(pa.binary())
    except pa.ArrowInvalid:  # the bytes before the slice exceed 2 GiB
        return pa.concat_arrays([column]).cast(pa.binary())


def _plain_headers(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_map(kind):  # most of Arrow's functions do not support maps
        return column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    return column

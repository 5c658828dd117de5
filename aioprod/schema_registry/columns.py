"""Serializes and deserializes Arrow columns with the serializers of records. Imports pyarrow, which
is optional: import this module lazily.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.schema_registry.wire_format import Place
from aioprod.schema_registry.work_apart import TakesLong
from aioprod.types import Headers

_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 64 << 20
_MOST_TYPES: Final = 4_000
_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)

Decode = Callable[[bytes, int], Any]
"""``(data, start) -> value of the column's physical type``."""


class ColumnTypes(NamedTuple):
    """The types of a column that is read.

    Attributes:
        physical: the type that is created from Python values.
        arrow: the type of the result.
    """

    physical: pa.DataType
    arrow: pa.DataType


UNKNOWN: Final = ColumnTypes(pa.null(), pa.null())
"""The type of a column of nulls whose schema is not known yet."""

Shape = Callable[[pa.DataType], pa.DataType]


def count_types() -> Iterator[None]:
    """Return an iterator to advance before each type of a schema is converted to a column: types
    that refer to each other can stand for any number of columns.

    Raises:
        ValueError: raised by the iterator if there are too many.
    """
    yield from repeat(None, _MOST_TYPES)
    raise ValueError(f"the schema has more than {_MOST_TYPES} types: too many for columns")


def encode_in_portions(
    column: pa.Array | pa.ChunkedArray, encode: Callable[[pa.Array, int], pa.Array]
) -> pa.ChunkedArray:
    """Encode a column in portions whose bytes fit into one array.

    Args:
        encode: called with a portion, and the number of its first row.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    encoded = []
    before = 0
    for chunk in chunks:
        rows = _MOST_ROWS
        if chunk.nbytes > _MOST_BYTES:
            rows = max(1, min(rows, len(chunk) * _MOST_BYTES // chunk.nbytes))
        for start in range(0, len(chunk), rows):
            encoded.append(encode(chunk.slice(start, rows), before + start))
        before += len(chunk)
    return pa.chunked_array(encoded, pa.binary())


class Row(NamedTuple):
    """A record that is not null.

    Attributes:
        place: its schema.
        data, start: its bytes, and where they begin in ``data``.
    """

    place: Place
    data: bytes
    start: int


def rows_of(
    column: pa.Array,
    headers: pa.Array | None,
    locate: Callable[[Headers, bytes], tuple[Place, int]],
) -> tuple[list[Row | None], dict[int, Exception]]:
    """Return the records of a column, None for nulls, and the errors of records without an id."""
    found: list[Row | None] = []
    errors: dict[int, Exception] = {}
    for number, data in enumerate(column.to_pylist()):
        row = None
        if data is not None:
            try:
                row = Row(*_located(locate, _headers(headers, number), data))
            except ValueError as error:
                errors[number] = error
        found.append(row)
    return found, errors


def column_of(
    rows: Sequence[Row | None],
    errors: dict[int, Exception],
    decoders: Mapping[Place, Decode],
    types: ColumnTypes,
    shape: Shape | None = None,
) -> pa.Array:
    """Decode rows. A row that can't be decoded is null, and its error is added to ``errors``.

    Args:
        shape: returns the type of the column for ``types.arrow``.

    Raises:
        TakesLong: if this should run in a thread.
    """
    values: list[Any] = []
    for number, row in enumerate(rows):
        value = None
        if row is not None:
            try:
                value = decoders[row.place](row.data, row.start)
            except TakesLong:
                raise
            except Exception as error:
                errors[number] = error
        values.append(value)
    try:
        return _array(values, types, shape)
    except _MISFITS:
        pieces = []
    for number, value in enumerate(values):
        try:
            pieces.append(_array([value], types, shape))
        except _MISFITS as error:
            errors[number] = ValueError(f"it does not fit {types.arrow}: {error}")
            pieces.append(pa.nulls(1, _result(types, shape)))
    return pa.concat_arrays(pieces)


def encode_one_by_one(
    values: Sequence[Any], prefix: bytes, encode: Callable[[Any], bytes], first_row: int
) -> pa.Array:
    """Return the encoded records of values; None is a null.

    Raises:
        ValueError: if a value does not fit; the message names its row.
    """
    encoded: list[bytes | None] = []
    for row, value in enumerate(values, first_row):
        try:
            encoded.append(None if value is None else prefix + encode(value))
        except (TypeError, ValueError) as error:
            raise ValueError(f"row {row}: {error}") from error
    return pa.array(encoded, pa.binary())


def python_values(column: pa.Array) -> list[Any]:
    """Return the values of a column for the serializers of records: structs and maps are
    dictionaries. Faster than ``to_pylist``, which creates an object for each of their values.
    """
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return list(column.to_pylist())
    if pa.types.is_struct(kind):
        return _structs(column)
    if pa.types.is_map(kind):
        entries = column.cast(
            pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
        )
        items = entries.flatten()
        pairs = list(zip(*(python_values(items.field(place)) for place in (0, 1)), strict=True))
        return [None if each is None else dict(each) for each in _cut(entries, pairs)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _cut(column, python_values(column.flatten()))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column = column.cast(pa.timestamp("us", kind.tz))
    if not column.null_count and (pa.types.is_integer(kind) or pa.types.is_float64(kind)):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    return list(column.to_pylist())


def _structs(column: pa.Array) -> list[Any]:
    names = [field.name for field in column.type]
    if not names:
        return [{} if valid else None for valid in column.is_valid().to_pylist()]
    values = zip(*(python_values(column.field(n)) for n in range(len(names))), strict=True)
    found: list[Any] = [dict(zip(names, each, strict=True)) for each in values]
    if column.null_count:
        for row, valid in enumerate(column.is_valid().to_pylist()):
            if not valid:
                found[row] = None
    return found


def _cut(lists: pa.Array, items: Sequence[Any]) -> list[Any]:
    """Split the items of lists."""
    found: list[Any] = []
    start = 0
    for length in lists.value_lengths().to_pylist():
        if length is None:
            found.append(None)
        else:
            found.append(list(items[start : start + length]))
            start += length
    return found


def _headers(headers: pa.Array | None, row: int) -> Headers:
    if headers is None:
        return ()
    return tuple((each["key"], each["value"]) for each in headers[row].as_py() or ())


def _located(
    locate: Callable[[Headers, bytes], tuple[Place, int]], headers: Headers, data: bytes
) -> tuple[Place, bytes, int]:
    place, start = locate(headers, data)
    return place, data, start


def _array(values: list[Any], types: ColumnTypes, shape: Shape | None) -> pa.Array:
    found = _relabeled(pa.array(values, types.physical), types.arrow)
    return _relabeled(found, _result(types, shape))


def _result(types: ColumnTypes, shape: Shape | None) -> pa.DataType:
    """Return the type of the result: a shape is for the types of schemas."""
    return types.arrow if shape is None or types is UNKNOWN else shape(types.arrow)


def _relabeled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return an unsliced column with other types of its leaves. Arrow's own cast of nested types
    loses lists of nulls.
    """
    if column.type == kind:
        return column
    if pa.types.is_struct(kind):
        fields = [_relabeled(column.field(place), field.type) for place, field in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:1], children=fields)
    if pa.types.is_map(kind):
        entry = pa.struct([kind.key_field, kind.item_field])
        items = [column.keys, _relabeled(column.items, kind.item_type)]
        entries = pa.Array.from_buffers(entry, len(items[0]), [None], children=items)
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], children=[entries])
    if pa.types.is_list(kind):
        items = [_relabeled(column.values, kind.value_type)]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], children=items)
    return column.cast(kind)


def newest_of(places: Iterable[Place]) -> Place:
    """Return the newest place: that of the highest number; of GUIDs, which have no order, the one
    that was found last.
    """
    found = list(places)
    if any(isinstance(each.schema_id, uuid.UUID) for each in found):
        return found[-1]
    return max(found)

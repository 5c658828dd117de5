"""Encodes columns as Avro, all rows at once: each field becomes a column of bytes, and Arrow joins
them by row. Imports pyarrow, which is optional: import this module lazily.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.schema_registry.arrow_bytes import (
    Int64s,
    Part,
    constant,
    fixed_bytes,
    integers,
    joined,
    joined_lists,
    spread,
    zigzag_varints,
)
from aioprod.schema_registry.avro_types import AvroField, AvroType
from aioprod.schema_registry.avro_writing import default_bytes

_FLAGS: Final = pa.array([b"\0", b"\1"], pa.binary())
_END_OF_ARRAY: Final = pa.array([b"", b"\0"], pa.binary())


def encode_column(
    kind: AvroType,
    column: pa.Array,
    *,
    prefix: bytes,
    first_row: int = 0,
    strict: bool = False,
    is_bytes: bool = False,
) -> pa.Array:
    """Return the encoded records of a column; a null stays null, and means a null record.

    Args:
        prefix: the bytes before each record.
        first_row: the number of the first row, for errors.
        strict: refuse fields of structs that the schema does not have.
        is_bytes: whether a record is only its bytes, without their length.

    Raises:
        TypeError: if the type of a column does not fit; the message names both.
        ValueError: if a value does not fit.
    """
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(valid) + first_row
    present = column.drop_null() if column.null_count else column
    parts = _Encoder(strict).parts(kind, present, rows, "")
    if is_bytes:
        parts = parts[-1:]
    encoded = joined([constant(prefix), *parts], len(present))
    if len(present) == len(column):
        return encoded
    return encoded.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


class _Encoder:
    """Each method returns the parts of all rows of a column. ``rows`` are the numbers of the rows,
    for errors; ``path`` is the name of the nested column.
    """

    def __init__(self, strict: bool) -> None:
        self._strict = strict

    def parts(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if kind.kind == "null":
            if (
                len(column)
                and not pa.types.is_null(column.type)
                and column.null_count < len(column)
            ):
                raise _refused(kind, column, path)
            return [] if kind.branch is None else [constant(bytes([kind.branch * 2]))]
        if column.null_count:
            return [self._with_nulls(kind, column, rows, path)]
        if pa.types.is_null(column.type):
            column = pa.nulls(0, kind.arrow)
        parts = getattr(self, f"_{kind.kind}")(kind, column, rows, path)
        return parts if kind.branch is None else [constant(bytes([kind.branch * 2])), *parts]

    def _with_nulls(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> pa.Array:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if kind.null_branch is None:
            raise ValueError(
                f"{_at(path)}row {rows[np.argmin(valid)]} is null, which {kind.name} does not "
                'allow: give the schema a union with "null"'
            )
        present = column.drop_null()
        encoded = joined(self.parts(kind, present, rows[valid], path), len(present))
        return spread(encoded, valid, bytes([kind.null_branch * 2]))

    # -- types -------------------------------------------------------------------------------------

    def _boolean(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if not pa.types.is_boolean(column.type):
            raise _refused(kind, column, path)
        return [_FLAGS.take(column.cast(pa.int8()))]

    def _int(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        types = pa.types
        given, wanted = column.type, kind.arrow
        # Spark has no types for times and nanoseconds, and passes them as numbers.
        is_number = types.is_time(wanted) or (types.is_timestamp(wanted) and wanted.unit == "ns")
        fits = (
            (types.is_integer(given) and types.is_integer(wanted))
            or (types.is_date(given) and types.is_date(wanted))
            or (types.is_time(given) and types.is_time(wanted))
            or (types.is_integer(given) and is_number)
            or (
                types.is_timestamp(given)
                and types.is_timestamp(wanted)
                and (given.tz is None) == (wanted.tz is None)
            )
        )
        if not fits:
            raise _refused(kind, column, path)
        if is_number and types.is_integer(given):
            kind = replace(kind, arrow=kind.physical)
        found = _cast(kind, column, path)
        if not types.is_integer(found.type):
            found = found.view(kind.physical)
        return [zigzag_varints(integers(found))]

    _long = _int

    def _float(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise _refused(kind, column, path)
        found = _cast(kind, column, path)
        if pa.types.is_float64(column.type) and pa.types.is_float32(found.type):
            lost = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(column)))
            if (place := pc.index(lost, True).as_py()) >= 0:
                raise ValueError(f"{_at(path)}row {rows[place]} is too large for {kind.name}")
        return [fixed_bytes(found)]

    _double = _float

    def _bytes(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if kind.is_decimal:
            found = pa.array(_decimals(kind, column, path), pa.binary())
            return [zigzag_varints(integers(pc.binary_length(found))), found]
        if not _is_binary(column.type):
            raise _refused(kind, column, path)
        return _with_length(column)

    def _string(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if not _is_text(column.type):
            raise _refused(kind, column, path)
        return _with_length(column)

    def _enum(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if not _is_text(column.type):
            raise _refused(kind, column, path)
        text = column.cast(pa.string())
        places = pc.index_in(text, pa.array(kind.symbols, pa.string()))
        if places.null_count:
            place = pc.index(places.is_null(), True).as_py()
            raise ValueError(f"{_at(path)}row {rows[place]} is not a symbol of {kind.name}")
        symbols = zigzag_varints(np.arange(len(kind.symbols), dtype=np.int64))
        return [symbols.take(places)]

    def _fixed(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if kind.is_decimal:
            return [pa.array(_decimals(kind, column, path), pa.binary())]
        if not _is_binary(column.type):
            raise _refused(kind, column, path)
        found = column.cast(pa.binary())
        wrong = pc.not_equal(pc.binary_length(found), kind.size)
        if (place := pc.index(wrong, True).as_py()) >= 0:
            size = pc.binary_length(found)[place]
            raise ValueError(f"{_at(path)}row {rows[place]} has {size} bytes: must be {kind.name}")
        return [found]

    def _array(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        types = pa.types
        given = column.type
        if not (
            types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)
        ):
            raise _refused(kind, column, path)
        assert kind.items is not None
        lengths, items = integers(pc.list_value_length(column)), column.flatten()
        parts = self.parts(kind.items, items, np.repeat(rows, lengths), f"{path}[]")
        return _blocks(parts, lengths)

    def _map(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        given = column.type
        if not pa.types.is_map(given) or not _is_text(given.key_type):
            raise _refused(kind, column, path)
        assert kind.items is not None
        # A sliced map returns the keys of the whole array.
        entry = pa.struct([("key", given.key_type), ("value", given.item_type)])
        entries = column.cast(pa.list_(entry))
        lengths, items = integers(pc.list_value_length(entries)), entries.flatten()
        rows = np.repeat(rows, lengths)
        keys, values = (items.field(place) for place in (0, 1))
        return _blocks(
            [*_with_length(keys), *self.parts(kind.items, values, rows, f"{path}{{}}")], lengths
        )

    def _record(self, kind: AvroType, column: pa.Array, rows: Int64s, path: str) -> list[Part]:
        if not pa.types.is_struct(column.type):
            raise _refused(kind, column, path)
        names = [each.name for each in column.type]
        known = {each.name for each in kind.fields}
        for name in names:
            if names.count(name) > 1:
                raise TypeError(f"{_at(path)}the field {name!r} occurs twice")
            if self._strict and name not in known:
                raise TypeError(f"{_at(path)}{kind.name} has no field {name!r}, and strict is set")
        parts: list[Part] = []
        for each in kind.fields:
            below = f"{path}.{each.name}" if path else each.name
            if each.name in names:
                field = column.field(names.index(each.name))
                parts += self.parts(each.kind, field, rows, below)
            else:
                parts.append(constant(self._default(each, column.type, below)))
        return parts

    def _default(self, field: AvroField, given: pa.DataType, path: str) -> bytes:
        """Return the bytes of a field that the column lacks."""
        found = default_bytes(field.node)
        if found is None:
            raise TypeError(
                f"{path}: {field.kind.name} has no default, and the column has no field "
                f"{field.name!r}: it has {', '.join(each.name for each in given) or 'none'}"
            )
        return found


def _blocks(parts: list[Part], lengths: Int64s) -> list[Part]:
    """Encode lists as one block each, followed by an end."""
    items = joined(parts, int(lengths.sum()))
    end = _END_OF_ARRAY.take(pa.array((lengths > 0).astype(np.int8)))
    return [zigzag_varints(lengths), joined_lists(items, lengths), end]


def _with_length(column: pa.Array) -> list[Part]:
    data = column.cast(pa.binary())
    return [zigzag_varints(integers(pc.binary_length(data))), data]


def _decimals(kind: AvroType, column: pa.Array, path: str) -> list[bytes]:
    if not (pa.types.is_decimal(column.type) or pa.types.is_integer(column.type)):
        raise _refused(kind, column, path)
    found = _cast(kind, column, path)
    width = found.type.byte_width
    buffer = found.buffers()[1]
    data = b"" if buffer is None else bytes(buffer)[found.offset * width :]
    numbers = [
        int.from_bytes(data[place : place + width], "little", signed=True)
        for place in range(0, len(found) * width, width)
    ]
    try:
        return [
            number.to_bytes(kind.size or (number.bit_length() + 8) // 8, "big", signed=True)
            for number in numbers
        ]
    except OverflowError:
        raise ValueError(f"{_at(path)}a number does not fit {kind.size} bytes") from None


def _cast(kind: AvroType, column: pa.Array, path: str) -> Any:
    try:
        return column.cast(kind.arrow)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{_at(path)}the column of {column.type} does not fit {kind.name}: {error}"
        ) from None


def _is_text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )


def _refused(kind: AvroType, column: pa.Array, path: str) -> TypeError:
    return TypeError(f"{_at(path)}a column of {column.type} can't be written as {kind.name}")


def _at(path: str) -> str:
    return f"{path}: " if path else ""

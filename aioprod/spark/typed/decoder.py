"""Decodes a column of JSON values into structs, as Spark's ``from_json`` does.

Arrow's JSON reader decodes many values at once in C++. For malformed or unusual values it differs
from Spark: it fails for a whole block, or accepts values that Spark rejects. So unusual values are
not passed to it, and blocks that it rejects are halved until few values remain. `RecordDecoder`
decodes both kinds.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]

from aioprod.spark._versions import arrow_type
from aioprod.spark.typed.options import TypedOptions
from aioprod.spark.typed.record_decoder import MAX_NUMBER_LENGTH, RecordDecoder, Row
from aioprod.spark.typed.times import time_zone

_Flags = npt.NDArray[np.bool_]
_Places = npt.NDArray[np.int64]

# A block that Arrow rejects is halved down to this number of values.
_FEW: Final = 8
# Text that Arrow and Spark read as the same time or date. Spark accepts more.
_TIMESTAMP: Final = r"^[1-9]\d{3}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?"
_ZONE: Final = r"(?:Z|[+-](?:0\d|1[0-7]):[0-5]\d)$"
_DATE: Final = r"^[1-9]\d{3}-\d\d-\d\d$"
# Text that Arrow and Jackson read differently: lone surrogates, and names of numbers. A search for
# plain bytes takes a tenth of the time of a pattern.
_UNUSUAL: Final = {b"\\u": r"\\u[dD]", b"NaN": "NaN", b"Inf": "Inf"}
_LONG_NUMBER: Final = re.compile(rb"[-+.0-9eE]{%d}" % MAX_NUMBER_LENGTH)
# The depth of Python's parser is limited by its stack.
_DEEP: Final = 500


class MalformedValueError(ValueError):
    """A value is malformed, and the mode is failfast; ``row`` is its number in the column."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class ValueDecoder:
    """Decodes columns of values according to the options of a read."""

    def __init__(self, options: TypedOptions) -> None:
        self._options = options
        decoded = options.decoded_schema
        self._type = arrow_type(decoded)
        zone = time_zone(options.time_zone)
        self._records = RecordDecoder(
            decoded, zone=zone, allow_non_numeric=options.allow_non_numeric
        )
        self._converter = _Converter(utc=zone is datetime.UTC)
        self._parse_options = pj.ParseOptions(
            explicit_schema=pa.schema([(f.name, _parsed_type(f.type)) for f in self._type]),
            unexpected_field_behavior="ignore",
        )
        self._corrupt_place = next(
            (
                place
                for place, name in enumerate(options.schema.names)
                if name == options.corrupt_column
            ),
            None,
        )

    def decode(self, values: pa.BinaryArray) -> tuple[pa.StructArray, _Flags]:
        """Return the structs, and flags for malformed values.

        Raises:
            MalformedValueError: for the first malformed value, in mode failfast.
        """
        count = len(values)
        slow = _unusual(values)
        fast = np.flatnonzero(~slow)
        pieces: list[pa.StructArray] = []
        places: list[_Places] = []
        stack = [fast] if len(fast) else []
        while stack:
            chosen = stack.pop()
            part = values if len(chosen) == count else values.take(pa.array(chosen))
            decoded = self._by_arrow(part)
            if decoded is None:
                if len(chosen) <= _FEW:
                    slow[chosen] = True
                else:
                    middle = len(chosen) // 2
                    stack += [chosen[:middle], chosen[middle:]]
                continue
            structs, differs = decoded
            if differs.any():
                slow[chosen[differs]] = True
                structs, chosen = structs.filter(pa.array(~differs)), chosen[~differs]
            pieces.append(structs)
            places.append(chosen)
        malformed = np.zeros(count, np.bool_)
        if slow.any():
            remaining = np.flatnonzero(slow)
            structs, malformed[remaining] = self._one_by_one(values.take(pa.array(remaining)))
            pieces.append(structs)
            places.append(remaining)
        return self._with_corrupt(self._joined(pieces, places), values, malformed), malformed

    def _joined(self, pieces: list[pa.StructArray], places: list[_Places]) -> pa.StructArray:
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return pa.array([], self._type)
        return pa.concat_arrays(pieces).take(pa.array(np.argsort(np.concatenate(places))))

    def _by_arrow(self, values: pa.BinaryArray) -> tuple[pa.StructArray, _Flags] | None:
        """Return Arrow's result, with flags for values that Spark may read differently; None if
        Arrow rejects a value.
        """
        lines = pc.binary_join(
            pa.LargeListArray.from_arrays(pa.array([0, len(values)], pa.int64()), values), b"\n"
        )
        text = lines[0].as_buffer()
        try:
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=self._parse_options,
            )
            if table.num_rows != len(values):
                return None
            differs = np.zeros(len(values), np.bool_)
            columns = []
            for field in self._type:
                column = table.column(field.name).combine_chunks()
                column, uncertain = self._converter.converted(column, field.type)
                columns.append(column)
                if uncertain is not None:
                    differs |= uncertain
        except pa.ArrowInvalid:
            return None
        return pa.StructArray.from_arrays(columns, fields=list(self._type)), differs

    def _one_by_one(self, values: pa.BinaryArray) -> tuple[pa.StructArray, _Flags]:
        rows: list[Row | None] = []
        malformed = np.zeros(len(values), np.bool_)
        for place, value in enumerate(values.to_pylist()):
            row = None
            if value is not None:
                row, malformed[place] = self._records.decode(value)
            rows.append(row)
        return pa.array(rows, self._type), malformed

    def _with_corrupt(
        self, structs: pa.StructArray, values: pa.BinaryArray, malformed: _Flags
    ) -> pa.StructArray:
        if self._options.mode == "failfast" and malformed.any():
            raise MalformedValueError(int(np.flatnonzero(malformed)[0]))
        if self._corrupt_place is None:
            return structs
        if malformed.any():
            texts = pc.if_else(pa.array(malformed), values, pa.scalar(None, values.type))
            # Not cast: as in Spark, the text may be invalid UTF-8.
            corrupt = pa.Array.from_buffers(pa.string(), len(texts), texts.buffers())
        else:
            corrupt = pa.nulls(len(values), pa.string())
        columns, fields = [structs.field(i) for i in range(len(self._type))], list(self._type)
        columns.insert(self._corrupt_place, corrupt)
        fields.insert(self._corrupt_place, pa.field(self._options.corrupt_column, pa.string()))
        missing = structs.is_null() if structs.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=missing)


def _unusual(values: pa.BinaryArray) -> _Flags:
    """Return flags for the values that Arrow may read differently from Spark."""
    usual = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
    slow = ~_flags(usual)
    data = values.buffers()[2]
    text = b"" if data is None else bytes(data)
    for needle, pattern in _UNUSUAL.items():
        if needle in text:
            slow |= _flags(pc.match_substring_regex(values, pattern))
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        slow |= np.fromiter((not _is_utf8(value) for value in values.to_pylist()), np.bool_)
    long = _flags(pc.greater_equal(pc.binary_length(values), _DEEP))
    for place in np.flatnonzero(long):
        slow[place] |= _beyond_limits(values[place].as_py())
    return slow


def _flags(found: pa.BooleanArray) -> _Flags:
    flags: _Flags = found.fill_null(False).to_numpy(zero_copy_only=False)
    return flags


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _beyond_limits(value: bytes) -> bool:
    """Return True if a value may exceed a limit that Arrow does not have."""
    deep = value.count(b"[") + value.count(b"{") >= _DEEP
    return deep or _LONG_NUMBER.search(value) is not None


def _parsed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type with which Arrow's reader reads a field. Dates and times are read as text,
    because Arrow's own parser accepts other text than Spark's.
    """
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _parsed_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _parsed_type(kind.value_type)))
    return kind


class _Converter:
    """Converts the results of Arrow's reader to a field's type."""

    def __init__(self, *, utc: bool) -> None:
        self._utc = utc

    def converted(self, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, _Flags | None]:
        """Return the column with the type, and flags for values that Spark may read differently.

        Raises:
            pa.ArrowInvalid: if a text looks like a date or time but is invalid.
        """
        if pa.types.is_timestamp(kind):
            return self._timestamps(column, kind)
        if pa.types.is_date(kind):
            fits = pc.match_substring_regex(column, _DATE)
            return _only(column, fits).cast(kind), _not(fits)
        if pa.types.is_decimal(kind):
            column.validate(full=True)  # Arrow's reader does not check the precision
            return column, None
        if pa.types.is_floating(kind):
            numbers = column.to_numpy(zero_copy_only=False)
            # Jackson's integers have no negative zero.
            negative_zero = np.signbit(numbers) & (numbers == 0)
            return column, negative_zero if negative_zero.any() else None
        if pa.types.is_struct(kind):
            return self._struct(column, kind)
        if pa.types.is_list(kind):
            return self._list(column, kind)
        return column, None

    def _timestamps(self, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, _Flags | None]:
        zoned = pc.match_substring_regex(column, _TIMESTAMP + _ZONE)
        if not self._utc or pc.all(zoned).as_py() is not False:
            return _only(column, zoned).cast(kind), _not(zoned)
        local = pc.match_substring_regex(column, _TIMESTAMP + "$")
        moments = pc.coalesce(
            _only(column, zoned).cast(kind),
            _only(column, local).cast(pa.timestamp("us")).cast(kind),
        )
        return moments, _not(pc.or_(zoned, local))

    def _struct(self, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, _Flags | None]:
        differs: _Flags | None = None
        columns = []
        for place, field in enumerate(kind):
            child, uncertain = self.converted(column.field(place), field.type)
            columns.append(child)
            if uncertain is not None:
                differs = uncertain if differs is None else differs | uncertain
        return (
            pa.StructArray.from_arrays(columns, fields=list(kind), mask=column.is_null()),
            differs,
        )

    def _list(self, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, _Flags | None]:
        elements, uncertain = self.converted(column.values, kind.value_type)
        found = pa.ListArray.from_arrays(
            column.offsets,
            elements,
            type=kind,
            mask=column.is_null() if column.null_count else None,
        )
        if uncertain is None:
            return found, None
        differs = np.zeros(len(column), np.bool_)
        parents = pc.list_parent_indices(column).to_numpy(zero_copy_only=False)
        differs[parents[uncertain]] = True
        return found, differs


def _only(column: pa.Array, fits: pa.BooleanArray) -> pa.Array:
    if pc.all(fits).as_py() is not False:
        return column
    return pc.if_else(fits, column, pa.scalar(None, column.type))


def _not(fits: pa.BooleanArray) -> _Flags | None:
    """Return flags for text that does not fit; a null does."""
    if pc.all(fits).as_py() is not False:
        return None
    flags: _Flags = pc.invert(fits).fill_null(False).to_numpy(zero_copy_only=False)
    return flags

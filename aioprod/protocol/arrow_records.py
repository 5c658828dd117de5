"""Encodes Arrow rows as records, split into batches. Imports pyarrow, which is optional, so import
this module on demand.

The accelerator encodes each batch when it is read, row by row. Without it, whole columns are
encoded at once in Arrow's C++: each field and each varint of the records is a column of bytes.
``binary_join_element_wise`` joins them to one column of records, whose data is the concatenated
bodies of the batches.

Nanoseconds of CPU per row (pyarrow 26, CPython 3.11, 10,000 rows at a time, batches of 64 KiB,
including the choice of partitions), with the accelerator and without: values of 10 bytes 22 and 83,
of 100 bytes 66 and 95, of 1,000 bytes 700 and 1,060 (most of it new memory); of 100 bytes with two
headers 135 and 570, with 10,000 keys hashed to 6 partitions 105 and 450. Each call into Arrow costs
5 to 10 us, so portions are large: 4 MiB instead of 256 KiB.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from aioprod.native import accelerated
from aioprod.protocol.arrow_columns import name_and_value
from aioprod.protocol.arrow_header_names import names_of_text
from aioprod.varints import encode_varint, varint_size

# Two bytes of a varint contain 14 bits. One step of `_varints` encodes these with a table.
_BITS: Final = 14
_TABLE_SIZE: Final = 1 << _BITS
_NULL: Final = 1  # the zig-zag form of length -1
# Typed scalars, so that sums and products of lengths have 64 bits.
_TWO: Final = pa.scalar(2, pa.int64())
_ZERO_BYTE: Final = pa.scalar(b"\0", pa.binary())
_NULL_BYTE: Final = pa.scalar(b"\1", pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class EncodedRecords:
    """The records of one batch, for ``record_batch.build_batch``.

    Attributes:
        body: the encoded records, with offset deltas from 0.
        count: the number of records.
        base_timestamp: timestamp of the first record, in milliseconds since 1970.
        max_timestamp: the latest timestamp.
        timestamps: timestamp of each record; None if all have ``base_timestamp``.
    """

    body: bytes
    count: int
    base_timestamp: int
    max_timestamp: int
    timestamps: Sequence[int] | None


class RecordBatches:
    """An iterable of batches; each one is encoded when it is read."""

    def __init__(self, batches: ColumnBatches, timestamps: int | pa.Array) -> None:
        self.cuts: list[int] = batches.cuts
        self._body = batches.body
        self._timestamps = timestamps

    def __len__(self) -> int:
        return len(self.cuts) - 1

    def __getitem__(self, index: int) -> EncodedRecords:
        body, (start, end) = self._body(index), self.cuts[index : index + 2]
        timestamps = self._timestamps
        if isinstance(timestamps, int):
            return EncodedRecords(body, end - start, timestamps, timestamps, None)
        times = _times(timestamps, start, end)
        return EncodedRecords(body, len(times), times[0], max(times), times)

    def __iter__(self) -> Iterator[EncodedRecords]:
        return map(self.__getitem__, range(len(self)))


def encode(
    rows: pa.RecordBatch,
    ends: list[int],
    *,
    limit: int,
    timestamp: int,
    order: pa.Array | None = None,
) -> RecordBatches:
    """Encode rows as the records of full batches. Batches are 1 to 3 % smaller than the limit, as
    each delta is assumed to have its maximum size.

    Args:
        rows: at least one row, from ``arrow_columns.windows``; the column ``partition`` is ignored.
        ends: ascending numbers of the rows at which another partition begins, and so another batch;
            the last is the number of rows.
        limit: maximum size of a batch's records in bytes; a larger record gets a separate batch.
        timestamp: timestamp of rows without one, in milliseconds since 1970.
        order: the numbers of the rows in the order of the records, as uint64; None for the order of
            the rows.
    """
    names = rows.schema.names
    timestamps = _timestamps(rows, timestamp)
    if not isinstance(timestamps, int) and order is not None:
        timestamps = timestamps.take(order)
    batches = ColumnBatches(
        rows.column("key") if "key" in names else None,
        rows.column("value"),
        _headers(rows.column("headers")) if "headers" in names else None,
        None if isinstance(timestamps, int) else timestamps,
        order,
        ends,
        limit,
        _largest_delta_size(timestamps),
    )
    return RecordBatches(batches, timestamps)


@accelerated
class ColumnBatches:
    """Columns that are split into batches and encoded as records.

    Args:
        key, value: binary; None if no row has a key.
        headers: the indexes at which each row's headers begin, and the end of the last, as int32;
            the names and values of all headers, as binary. None if no row has headers.
        timestamps: timestamps in the order of the records, as int64; None if all are equal.
        order, ends, limit: see :func:`encode`.
        delta_size: encoded size of the largest timestamp delta in bytes.

    Attributes:
        cuts: the indexes of the first record of each batch, and the number of records.

    Raises:
        ValueError: if a column has offsets outside its data. Only the accelerator checks that.
    """

    cuts: list[int]

    def __init__(
        self,
        key: pa.Array | None,
        value: pa.Array,
        headers: tuple[pa.Array, pa.Array, pa.Array] | None,
        timestamps: pa.Array | None,
        order: pa.Array | None,
        ends: list[int],
        limit: int,
        delta_size: int,
        /,
    ) -> None:
        columns = [value] if key is None else [key, value]
        if order is not None:
            columns = [column.take(order) for column in columns]
        fields = [field for column in columns for field in _with_length(column)]
        for field in [] if headers is None else _encoded_headers(*headers):
            fields.append(field if order is None else field.take(order))
        no_headers = [_ZERO_BYTE] if headers is None else []
        sizes = reduce(pc.add, map(_size, fields))
        self.cuts = cuts = _cuts(
            sizes, ends, limit, 1 + delta_size + (key is None) + len(no_headers)
        )
        leads = [_offset_deltas(cuts, timestamps is None, key is None)]
        if timestamps is not None:
            leads = [*_varints(_timestamp_deltas(timestamps, cuts)), *leads]
        # One byte is for the attributes.
        sizes = reduce(pc.add, map(_size, leads), pc.add(sizes, 1 + len(no_headers)))
        records = _join(
            *_varints(pc.multiply(sizes, _TWO), _varints_and_attributes()),
            *leads,
            *fields,
            *no_headers,
        )
        _, offsets, self._data = records.buffers()
        self._ends = memoryview(offsets).cast("i")

    def body(self, index: int, /) -> bytes:
        """Return the encoded records of a batch."""
        start, end = self.cuts[index : index + 2]
        # A copy, as a view would keep the whole column in memory as long as one of its batches.
        with memoryview(self._data) as view:
            return bytes(view[self._ends[start] : self._ends[end]])


def _join(*columns: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(
        *columns, _NOTHING, null_handling="replace", null_replacement=""
    )


def _size(column: pa.Array) -> pa.Array:
    return _without_nulls(pc.binary_length(column), 0)


def _without_nulls(column: pa.Array, replacement: int) -> pa.Array:
    return pc.fill_null(column, replacement) if column.null_count else column


def _range(numbers: pa.Array) -> tuple[int, int]:
    least_and_most = pc.min_max(numbers)
    return least_and_most["min"].as_py(), least_and_most["max"].as_py()


# -- fields ----------------------------------------------------------------------------------------


def _with_length(column: pa.Array) -> list[pa.Array]:
    lengths = pc.multiply(pc.binary_length(column), _TWO)
    return [*_varints(_without_nulls(lengths, _NULL)), column]


def _headers(column: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the index at which each row's headers begin, and all names and values."""
    entries = column.flatten()
    name, value = name_and_value(entries.type)
    fields = entries.flatten()
    counts = _without_nulls(pc.list_value_length(column), 0)
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())]
    )
    names = names_of_text(fields[name].cast(pa.binary()))
    return offsets, names, fields[value].cast(pa.binary())


def _encoded_headers(offsets: pa.Array, names: pa.Array, values: pa.Array) -> list[pa.Array]:
    encoded = _join(*_with_length(names), *_with_length(values))
    return [
        *_varints(pc.multiply(pc.pairwise_diff(offsets).slice(1), _TWO)),
        pc.binary_join(pa.ListArray.from_arrays(offsets, encoded), _NOTHING),
    ]


# -- timestamps and offsets ------------------------------------------------------------------------


def _timestamps(rows: pa.RecordBatch, timestamp: int) -> int | pa.Array:
    """Return the timestamps of the rows, or a single number if all are equal."""
    if "timestamp" not in rows.schema.names:
        return timestamp
    timestamps = _without_nulls(rows.column("timestamp"), timestamp)
    oldest, newest = _range(timestamps)
    return oldest if oldest == newest else timestamps


def _largest_delta_size(timestamps: int | pa.Array) -> int:
    if isinstance(timestamps, int):
        return 1
    oldest, newest = _range(timestamps)
    return varint_size(newest - oldest)


def _timestamp_deltas(timestamps: pa.Array, cuts: Sequence[int]) -> pa.Array:
    """Return the zig-zag encoded deltas of timestamps, from the first row of each batch."""
    batches = pc.list_parent_indices(
        pa.ListArray.from_arrays(pa.array(cuts, pa.int32()), timestamps)
    )
    deltas = pc.subtract(timestamps, timestamps.take(pa.array(cuts[:-1])).take(batches))
    return pc.subtract(pc.multiply(pc.abs(deltas), _TWO), pc.less(deltas, 0).cast(pa.int64()))


def _offset_deltas(cuts: Sequence[int], timestamp_before: bool, null_key_behind: bool) -> pa.Array:
    counts = [end - start for start, end in pairwise(cuts)]
    table = _offset_delta_table(max(counts).bit_length(), timestamp_before, null_key_behind)
    return pa.concat_arrays([table.slice(0, count) for count in counts])


@cache
def _offset_delta_table(bits: int, timestamp_before: bool, null_key_behind: bool) -> pa.Array:
    """Return the varints of all numbers of up to ``bits`` bits; optionally, each with a timestamp
    delta of 0 before it, and the length of a null key after it.
    """
    before = _ZERO_BYTE if timestamp_before else _NOTHING
    return _join(
        before,
        *_varints(pa.array(range(0, 2 << bits, 2), pa.int64())),
        _NULL_BYTE if null_key_behind else _NOTHING,
    )


# -- varints ---------------------------------------------------------------------------------------


def _varints(numbers: pa.Array, last: pa.Array | None = None) -> list[pa.Array]:
    """Return columns that, joined, are the varints of zig-zag encoded numbers.

    ``last`` is the table for the last column.
    """
    columns = []
    while (pc.max(numbers).as_py() or 0) >= _TABLE_SIZE:
        long = pc.greater_equal(numbers, _TABLE_SIZE)
        columns.append(
            _continued_varints().take(
                pc.if_else(long, pc.bit_wise_and(numbers, _TABLE_SIZE - 1), _TABLE_SIZE)
            )
        )
        numbers = pc.if_else(long, pc.shift_right(numbers, _BITS), numbers)
    return [*columns, (_short_varints() if last is None else last).take(numbers)]


@cache
def _short_varints() -> pa.Array:
    return pa.array(
        [encode_varint((number >> 1) ^ -(number & 1)) for number in range(_TABLE_SIZE)], pa.binary()
    )


@cache
def _varints_and_attributes() -> pa.Array:
    return _join(_short_varints(), _ZERO_BYTE)


@cache
def _continued_varints() -> pa.Array:
    """Return a table of the first two bytes of longer varints, indexed by the number's lowest 14
    bits. The last entry is empty, for shorter varints.
    """
    return pa.array(
        [
            *(bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(_TABLE_SIZE)),
            b"",
        ],
        pa.binary(),
    )


# -- batches ---------------------------------------------------------------------------------------


def _cuts(sizes: pa.Array, ends: Sequence[int], limit: int, overhead: int) -> list[int]:
    """Return the indexes of the rows at which batches begin, and the number of rows.

    ``overhead`` is the number of bytes of a record besides its size, offset delta and length.
    """
    smallest, largest = _range(sizes)
    overhead += varint_size(min(len(sizes), limit // smallest + 1))
    overhead += varint_size(largest + overhead)
    bounds = memoryview(
        pc.cumulative_sum(pc.add(sizes, pa.scalar(overhead, pa.int64()))).buffers()[1]
    ).cast("q")
    cuts = [0]
    before = 0
    for end in ends:
        while (start := cuts[-1]) < end:
            cut = max(bisect_right(bounds, before + limit, start, end), start + 1)
            cuts.append(cut)
            before = bounds[cut - 1]
    return cuts


def _times(timestamps: pa.Array, start: int, end: int) -> array[int]:
    view = memoryview(timestamps.buffers()[1]).cast("q")[timestamps.offset :]
    return array("q", view[start:end].tobytes())

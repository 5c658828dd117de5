"""Reads record batches as columns: all records of many batches at once, with numpy and Arrow's C++.
Imports both, which are optional, so import this module on demand.

A record starts where the previous one ends. The accelerator finds the starts; without it a short
loop in Python, or numpy if many records have the same length. Then each field of all records is
read at once, at an array of positions. Arrow gathers keys and values: a column over the bytes of
the batches has an element for each key, each value and the bytes between them, and every fourth
element is selected.

Invalid batches raise the same errors as in ``record_reader``, which reads records one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]

from aioprod.counts import counted
from aioprod.errors import CorruptRecordError
from aioprod.native import accelerated
from aioprod.protocol.arrow_building import numbers_column, validity
from aioprod.protocol.arrow_header_names import text_of_names
from aioprod.protocol.batch_cursor import Batch
from aioprod.protocol.record_batch import HEADER_SIZE, BatchHeader
from aioprod.protocol.record_reader import plain_body
from aioprod.varints import read_uvarint

Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]

#: Bytes of records to read at once: fewer need more calls, more do not fit in the CPU's cache.
PORTION_BYTES: Final = 4 << 20
# After this number of records of one length, numpy counts how many more follow, which takes as long
# as 50 steps of the loop.
_STEPS: Final = 32
# The number of records that it compares first; four times as many after each full run. Always
# comparing all remaining records would take quadratic time in a batch of short runs.
_WINDOW: Final = 256
# The headers of fewer records than this are read one by one, as numpy's calls take as long.
_ROWS: Final = 48
_LARGEST: Final = np.iinfo(np.int64).max
HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class RecordArrays:
    """Records as columns of equal length.

    Attributes:
        offsets: the offsets in the partition.
        timestamps: milliseconds since 1970.
        timestamp_types: see ``Record.timestamp_type``.
        keys, values: binary columns.
        headers: for each record a list of structs of ``key`` and ``value``, or null; None if not
            requested.
    """

    offsets: Numbers
    timestamps: Numbers
    timestamp_types: npt.NDArray[np.int32]
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray | None


def read_arrays(
    data: bytes, batches: Iterable[Batch], *, include_headers: bool = True
) -> Iterator[RecordArrays]:
    """Return all records of the batches, in portions of about 4 MiB.

    Args:
        data: the fetched bytes.
        batches: batches in ``data``, as ``batch_cursor`` returns them.
        include_headers: if false, the bytes after a record's value are not read.

    Raises:
        CorruptRecordError: if a batch is invalid, after the portions before it were returned.
    """
    portion: list[tuple[BatchHeader, int, bytes | memoryview]] = []
    size = 0
    for header, place in batches:
        body = plain_body(data, place, header)
        portion.append((header, place + HEADER_SIZE, body))
        size += len(body)
        if size >= PORTION_BYTES:
            yield _read_portion(*_in_one(data, portion), include_headers)
            portion, size = [], 0
    if portion:
        yield _read_portion(*_in_one(data, portion), include_headers)


def _in_one(
    data: bytes, portion: Sequence[tuple[BatchHeader, int, bytes | memoryview]]
) -> tuple[bytes, list[_Batch]]:
    """Return the bytes of the records of all batches; the fetched bytes if none is compressed."""
    if all(isinstance(body, memoryview) for _, _, body in portion):
        return data, [_Batch(header, place, place + len(body)) for header, place, body in portion]
    ends = list(accumulate((len(body) for _, _, body in portion), initial=0))
    batches = [
        _Batch(header, start, end)
        for (header, _, _), (start, end) in zip(portion, pairwise(ends), strict=True)
    ]
    return b"".join(body for _, _, body in portion), batches


# While reading, only signs and sizes are checked: positions only increase, and reading past the end
# returns the last byte again. If each record ends as its length requires, everything else is valid,
# too.
def _read_portion(data: bytes, batches: Sequence[_Batch], include_headers: bool) -> RecordArrays:
    reader = _Reader(data, batches)
    number, position = reader.varints(_record_starts(data, batches))
    ends = position + reader.sizes(number, "length")
    # The attributes are unused, and skipped.
    number, position = reader.varints(position + 1, bits=64)
    timestamps = reader.timestamps(number)
    number, position = reader.varints(position)
    offsets = reader.offsets(number)
    key = reader.field(position)
    value = reader.field(key.end)
    number, position = reader.varints(value.end)
    counts = reader.sizes(number, "number of headers")
    names, contents, end_of_headers = (
        reader.headers(counts, position)
        if include_headers
        else (None, None, np.maximum(position, ends))
    )
    reader.refuse(
        np.where(counts > 0, end_of_headers, position) != ends,
        "a record does not have the length that it claims",
    )
    keys, values = _gathered(data, key, value)
    columns = _headers_column(data, counts, names, contents) if names and contents else None
    return RecordArrays(offsets, timestamps, reader.timestamp_types(), keys, values, columns)


def _record_starts(data: bytes, batches: Sequence[_Batch]) -> Numbers:
    """Return the start positions of records. Checks only that the records fill their batch."""
    found: list[bytes] = []
    for header, start, end in batches:
        starts = record_starts(data, start, end, header.record_count)
        if starts is None:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset}: its "
                f"bytes do not contain {counted(header.record_count, 'record')}"
            )
        found.append(starts)
    return np.frombuffer(b"".join(found), np.int64)


@accelerated
def record_starts(data: bytes, start: int, end: int, count: int, /) -> bytes | None:
    """Return the positions at which ``count`` records start, as numbers of 64 bits; None if they
    do not fill the bytes from ``start`` to ``end``.
    """
    starts: list[int] = []
    try:
        if _walk(data, start, end, count, starts) != end:
            return None
    except (IndexError, CorruptRecordError):
        return None
    return np.array(starts, np.int64).tobytes()


def _walk(data: bytes, start: int, end: int, left: int, starts: list[int]) -> int:
    """Append the starts of ``left`` records; return where the last one ends."""
    append = starts.append
    numbers = np.frombuffer(data, np.uint8)
    position = start
    while left:
        for _ in repeat(None, min(left, _STEPS)):
            append(position)
            length = data[position]
            if length < 128:
                position += (length >> 1) + 1
            elif (second := data[position + 1]) < 128:
                # -64 for the continuation bit, +2 for the length's own two bytes.
                position += (length >> 1) + (second << 6) - 62
            else:
                length, position = read_uvarint(data, position)
                position += length >> 1
        left -= min(left, _STEPS)
        size = position - starts[-1]
        if left and starts[-_STEPS:] == [*range(position - _STEPS * size, position, size)]:
            most = min(left, (end - position) // size)
            same = _same_length(numbers, starts[-1], size, most)
            starts += range(position, position + same * size, size)
            position += same * size
            left -= same
    return position


def _same_length(numbers: _Bytes, start: int, size: int, limit: int) -> int:
    """Return the number of records, up to ``limit``, that follow the one at ``start`` and have its
    length.
    """
    found, most = 0, _WINDOW
    while (left := min(most, limit - found)) > 0:
        place = start
        begin = start + size * found
        count = left
        while count > 0:
            same = numbers[begin + size : begin + size * (count + 1) : size] == numbers[place]
            if not same.all():
                count = int(same.argmin())
            if numbers[place] < 128:
                break
            place += 1
            begin += 1
        found += count
        if count < left:
            break
        most *= 4
    return found


class _Batch(NamedTuple):
    """A batch, and the position of its records."""

    header: BatchHeader
    start: int
    end: int


class _Field(NamedTuple):
    """The key or value of each record: the position of its bytes, and whether it is null."""

    null: _Flags
    start: Numbers
    end: Numbers


class _Reader:
    """Reads one field of all records at a time, from and to an array of positions."""

    def __init__(self, data: bytes, batches: Sequence[_Batch]) -> None:
        self._data = data
        self._bytes: _Bytes = np.frombuffer(data, np.uint8)
        self._batches = [batch.header for batch in batches]
        self._counts = np.array([header.record_count for header in self._batches])

    def varints(self, position: Numbers, bits: int = 63) -> tuple[Numbers, Numbers]:
        """Return the zig-zag encoded numbers at the positions, and where they end.

        Args:
            bits: maximum number of bits of a number.
        """
        first = self._at(position)
        long = first > 127
        if not long.any():
            return first.astype(np.int64), position + 1
        second = self._at(position + 1)
        numbers: Numbers = first.astype(np.int64) + long * ((second.astype(np.int64) << 7) - 128)
        longer = long & (second > 127)
        position = position + 1 + long
        if longer.any():
            rows = np.flatnonzero(longer)
            numbers[rows], position[rows] = self._long_varints(
                numbers[rows] - (1 << 14), position[rows], bits
            )
        return numbers, position

    def _long_varints(
        self, numbers: Numbers, position: Numbers, bits: int
    ) -> tuple[Numbers, Numbers]:
        """Return the same for numbers of more than two bytes."""
        more: _Flags = np.ones(len(numbers), np.bool_)
        for shift in range(14, 63, 7):
            byte = self._at(position).astype(np.int64)
            numbers = numbers | np.where(more, (byte & 127) << shift, 0)
            position = position + more
            more = more & (byte > 127)
            if not more.any():
                return numbers, position
        # Nine bytes have 63 bits: a tenth byte must be the last.
        byte = self._at(position).astype(np.int64) * more
        if (byte >> bits - 63).any():
            raise CorruptRecordError(
                f"batches from offset {self._batches[0].base_offset} on: number of more than "
                f"{bits} bits"
            )
        return numbers | byte << 63, position + more

    def sizes(self, number: Numbers, what: str) -> Numbers:
        """Decode zig-zag encoded sizes and counts. Values above the number of bytes are refused, so
        that sums do not overflow.
        """
        self.refuse((number & 1).astype(np.bool_), f"negative {what}")
        self.refuse(number > 2 * len(self._bytes), f"a {what} above the number of bytes")
        return number >> 1

    def field(self, position: Numbers) -> _Field:
        number, start = self.varints(position)
        null = (number & 1).astype(np.bool_)  # any negative length, as in Java
        return _Field(null, start, start + self.sizes(np.where(null, 0, number), "length"))

    def timestamps(self, number: Numbers) -> Numbers:
        # The highest bit of an unsigned 64-bit number is not a sign.
        created = self._of_batches([header.base_timestamp for header in self._batches]) + (
            (number >> 1 & _LARGEST) ^ -(number & 1)
        )
        types = self.timestamp_types()
        if not types.any():
            return created
        return np.where(
            types, self._of_batches([header.max_timestamp for header in self._batches]), created
        )

    def timestamp_types(self) -> npt.NDArray[np.int32]:
        return self._of_batches([header.timestamp_type for header in self._batches]).astype(
            np.int32
        )

    def offsets(self, number: Numbers) -> Numbers:
        deltas: Numbers = (number >> 1) ^ -(number & 1)
        last = self._of_batches([header.last_offset_delta for header in self._batches])
        starts = np.cumsum(self._counts) - self._counts
        wrong = deltas > last
        wrong[1:] |= deltas[1:] <= deltas[:-1]
        first = starts[self._counts > 0]
        wrong[first] = (deltas[first] < 0) | (deltas[first] > last[first])
        if wrong.any():
            # The records of batches without gaps are numbered, as in ``record_reader``.
            without_gaps = np.repeat(self._counts, self._counts) == last + 1
            self.refuse(wrong & ~without_gaps, "an offset delta that is impossible")
            places = np.arange(len(deltas)) - np.repeat(starts, self._counts)
            deltas = np.where(without_gaps, places, deltas)
        return self._of_batches([header.base_offset for header in self._batches]) + deltas

    def headers(self, counts: Numbers, position: Numbers) -> tuple[_Field, _Field, Numbers]:
        """Return names and values of all headers, in their order, and the end of each record. Reads
        the first header of all records, then the second, and so on.
        """
        total = int(counts.sum())
        self.refuse(
            np.broadcast_to(total > len(self._bytes), counts.shape), "more headers than bytes"
        )
        first = np.cumsum(counts) - counts
        names, values = (
            _Field(np.zeros(total, np.bool_), np.zeros(total, np.int64), np.zeros(total, np.int64))
            for _ in range(2)
        )
        rows = np.flatnonzero(counts)
        position = position.copy()
        index = 0
        while len(rows) >= _ROWS:
            number, start = self.varints(position[rows])
            name = _Field(
                np.zeros(len(rows), np.bool_),
                start,
                start + self.sizes(number, "length of a header's name"),
            )
            value = self.field(name.end)
            for all_of_them, some in ((names, name), (values, value)):
                for target, source in zip(all_of_them, some, strict=True):
                    target[first[rows] + index] = source
            position[rows] = value.end
            index += 1
            rows = rows[counts[rows] > index]
        for row in rows.tolist():
            place = slice(int(first[row]) + index, int(first[row] + counts[row]))
            count = place.stop - place.start
            found, position[row] = self._headers_of(row, int(position[row]), count)
            for target, numbers in zip((*names, *values), found, strict=True):
                target[place] = numbers
        return names, values, position

    def _headers_of(self, row: int, position: int, count: int) -> tuple[list[list[int]], int]:
        """Return the headers of one record, as lists of names and values, and the position after
        them.
        """
        data, size = self._data, 2 * len(self._data)
        ends: list[int] = []
        nulls: list[int] = []
        try:
            for _ in range(count):
                number, position = read_uvarint(data, position)
                value = position + (number >> 1)
                length, start = read_uvarint(data, value)
                null = length & 1
                if null:
                    length = 0
                if number & 1 or max(number, length) > size:
                    raise IndexError
                ends += (position, value, start, position := start + (length >> 1))
                nulls.append(null)
        except (IndexError, CorruptRecordError):
            wrong = np.arange(self._counts.sum()) == row
            self.refuse(wrong, "malformed headers")
        return [[0] * count, ends[::4], ends[1::4], nulls, ends[2::4], ends[3::4]], position

    def refuse(self, wrong: _Flags, why: str) -> None:
        if wrong.any():
            index = int(np.searchsorted(np.cumsum(self._counts), np.argmax(wrong), side="right"))
            raise CorruptRecordError(f"batch at offset {self._batches[index].base_offset}: {why}")

    def _at(self, position: Numbers) -> _Bytes:
        return self._bytes.take(position, mode="clip")

    def _of_batches(self, numbers: Sequence[int]) -> Numbers:
        """Return for each record the number of its batch."""
        return np.repeat(np.array(numbers, np.int64), self._counts)


# -- Arrow -----------------------------------------------------------------------------------------


def _gathered(data: bytes, *fields: _Field) -> list[pa.BinaryArray]:
    """Return columns with the bytes of fields that follow one another in each record."""
    count = len(fields[0].start)
    bounds = np.empty((count, 2 * len(fields)), np.int32)
    for index, field in enumerate(fields):
        bounds[:, 2 * index] = field.start
        bounds[:, 2 * index + 1] = field.end
    slots = pa.Array.from_buffers(
        pa.binary(), max(bounds.size - 1, 0), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    gathered = []
    for index, field in enumerate(fields):
        taken = slots.take(
            numbers_column(pa.int64(), np.arange(2 * index, bounds.size, 2 * len(fields)))
        )
        gathered.append(
            pa.Array.from_buffers(pa.binary(), count, [validity(field.null), *taken.buffers()[1:]])
        )
    return gathered


def _headers_column(data: bytes, counts: Numbers, names: _Field, values: _Field) -> pa.ListArray:
    return headers_column(counts, *_gathered(data, names, values))


def headers_column(counts: Numbers, names: pa.BinaryArray, values: pa.BinaryArray) -> pa.ListArray:
    """Return a column of headers, of which each row has ``counts`` entries, or is null without
    any.
    """
    entries = pa.StructArray.from_arrays(
        [text_of_names(names), values], fields=list(HEADERS_TYPE.value_type)
    )
    ends = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.Array.from_buffers(
        HEADERS_TYPE, len(counts), [validity(counts == 0), pa.py_buffer(ends)], children=[entries]
    )

"""Reads runs of records of equal length, many records at once.

Most batches contain long runs of records whose fields have the same lengths. In such a run, each
field is at the same distance from that of the previous record, so a slice with that step is the
column of all records. This module makes the checks of ``record_reader`` on columns, by comparing
bytes. The first difference ends the run.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from aioprod.protocol.record_headers import Header, HeaderBlocks

#: Records of shorter runs are read faster one by one.
SHORTEST: Final = 16

# Number of records to compare first; eight times as many after each full run, so that most batches
# are two runs: with offset deltas of one byte and of two. Always comparing all remaining records
# would take quadratic time in a batch of short runs.
_WINDOW: Final = 256
_BLOCK: Final = 64
_LOWEST_BYTES: Final = {
    flag: bytes(2 * delta & 127 | flag for delta in range(64)) for flag in (0, 128)
}
_LARGEST_OFFSET_BYTES: Final = 4  # of a varint: 134 million records


class _RecordLayout(NamedTuple):
    """The positions of the fields of a record, counted from its first byte.

    Attributes:
        size: bytes of the record, including its length.
        timestamp, offset: positions of the two deltas; ``key_length`` follows the offset delta.
        key_size, value_size: sizes in bytes; -1 for null.
        headers_size: number of bytes after the value; 0 if there are no headers.
        fixed: positions of bytes that are equal in all records of this layout.
    """

    size: int
    timestamp: int
    offset: int
    key_length: int
    key: int
    key_size: int
    value: int
    value_size: int
    headers_size: int
    fixed: tuple[int, ...]


class FixedWidthReader:
    """Reads the runs of records of equal layout at the start of a batch.

    Args:
        body: the batch's records, decompressed.
        base_timestamp: the base of the timestamp deltas, in milliseconds since 1970.
        blocks: a cache of decoded headers.
    """

    def __init__(self, body: bytes, base_timestamp: int, blocks: HeaderBlocks) -> None:
        self._body = body
        self._blocks = blocks
        self._base = base_timestamp
        self._by_byte: list[int] | None = None  # timestamps by their delta, if it has one byte

    def fill(
        self,
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[tuple[Header, ...]],
    ) -> tuple[int, int]:
        """Store the columns of one run after another, until a run is too short, or its offsets have
        gaps.

        Args:
            timestamps, keys, values, headers: lists to fill, with an element for each record of the
                batch: None, or for headers an empty tuple.

        Returns:
            The number of records that were read, and the position after them.

        Raises:
            CorruptRecordError, IndexError: if headers are malformed.
        """
        index, position, window = 0, 0, _WINDOW
        while (left := len(timestamps) - index) >= SHORTEST:
            layout = _layout_at(self._body, position)
            if layout is None:
                break
            left = min(left, _same_offset_length(layout, index))
            most = left if left < window + SHORTEST else window
            count = self._count_same_layout(layout, position, index, most)
            if count < SHORTEST:
                break
            run = self._timestamps(position, count, layout)
            if len(run) < SHORTEST:
                break
            window = 8 * window if len(run) == most else _WINDOW
            following, end = index + len(run), position + len(run) * layout.size
            timestamps[index:following] = run
            fields = _fields(self._body, position, end, layout)
            if layout.key_size >= 0:
                keys[index:following] = next(fields)
            if layout.value_size >= 0:
                values[index:following] = next(fields)
            if layout.headers_size:
                headers[index:following] = map(self._blocks.__getitem__, next(fields))
            index, position = following, end
        return index, position

    def _count_same_layout(
        self, layout: _RecordLayout, position: int, index: int, most: int
    ) -> int:
        """Return the number of records with this layout, beginning with record ``index``."""
        body = self._body
        count = min(most, (len(body) - position) // layout.size)
        end = position + count * layout.size
        for place in layout.fixed:
            if count < SHORTEST:
                return 0
            column = body[position + place : end : layout.size]
            first = column[:1]
            if column.count(first) != count:
                count -= len(column.lstrip(first))
                end = position + count * layout.size
        return (
            count
            if count >= SHORTEST and _offsets_follow(body, position, count, index, layout)
            else 0
        )

    def _timestamps(self, position: int, count: int, layout: _RecordLayout) -> list[int]:
        """Return the timestamps up to the first record whose delta has another length."""
        start, end, step = position + layout.timestamp, position + count * layout.size, layout.size
        length = layout.offset - layout.timestamp
        columns = [self._body[start + number : end : step] for number in range(length)]
        if all(column.count(column[:1]) == count for column in columns):
            number, _ = _varint(self._body, start)
            return [self._base + ((number >> 1) ^ -(number & 1))] * count
        if length == 1:
            (column,) = columns
            if not column.isascii():
                column = column[: next(place for place, byte in enumerate(column) if byte > 127)]
            return list(map(self._one_byte_timestamps().__getitem__, column))
        if length == 2:
            low, high = columns
            count = next(
                (
                    place
                    for place, first, second in zip(range(count), low, high, strict=False)
                    if first < 128 or second > 127
                ),
                count,
            )
            numbers = [
                first + (second << 7) - 128
                for first, second in zip(low[:count], high[:count], strict=True)
            ]
            return [self._base + ((number >> 1) ^ -(number & 1)) for number in numbers]
        return []

    def _one_byte_timestamps(self) -> list[int]:
        if self._by_byte is None:
            self._by_byte = [0] * 128
            self._by_byte[::2] = range(self._base, self._base + 64)
            self._by_byte[1::2] = range(self._base - 1, self._base - 65, -1)
        return self._by_byte


def _layout_at(body: bytes, position: int) -> _RecordLayout | None:
    """Return the layout of the record at ``position``; None if it is invalid, or a number has more
    than 5 bytes.
    """
    try:
        length, place = _varint(body, position)
        attributes = place
        _, offset = _varint(body, place + 1)
        _, key_length = _varint(body, offset)
        key_number, key = _varint(body, key_length)
        key_size = -1 if key_number == 1 else key_number >> 1
        value_length = key + max(key_size, 0)
        value_number, value = _varint(body, value_length)
        value_size = -1 if value_number == 1 else value_number >> 1
        end = value + max(value_size, 0)
        has_headers = body[end] != 0
        if (
            length & 1
            or (key_number & 1 and key_size >= 0)
            or (value_number & 1 and value_size >= 0)
        ):
            return None
    except IndexError:
        return None
    behind = attributes + (length >> 1) - end
    if behind < 1 or (behind != 1 and not has_headers):
        return None
    fixed = (
        *range(position, attributes),
        *range(key_length, key),
        *range(value_length, value),
        *(() if has_headers else (end,)),
    )
    return _RecordLayout(
        end + behind - position,
        attributes + 1 - position,
        offset - position,
        key_length - position,
        key - position,
        key_size,
        value - position,
        value_size,
        behind if has_headers else 0,
        tuple(place - position for place in fixed),
    )


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned varint of up to 5 bytes and its end. Raise IndexError if it is longer."""
    number = 0
    for shift in range(0, 35, 7):
        byte = body[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
    raise IndexError


def _same_offset_length(layout: _RecordLayout, index: int) -> int:
    """Return the number of further records whose offset delta has this length."""
    length = layout.key_length - layout.offset
    return 0 if length > _LARGEST_OFFSET_BYTES else (1 << 7 * length - 1) - index


def _offsets_follow(
    body: bytes, position: int, count: int, index: int, layout: _RecordLayout
) -> bool:
    """Return whether the offset deltas are consecutive, which they are not after compaction."""
    end = position + count * layout.size
    last = layout.key_length - layout.offset - 1
    for number in range(last + 1):
        expected = _offset_bytes(number, 128 if number < last else 0, index, count)
        if body[position + layout.offset + number : end : layout.size] != expected:
            return False
    return True


def _offset_bytes(number: int, flag: int, index: int, count: int) -> bytes:
    """Return byte ``number`` of the offset deltas of ``count`` records from ``index`` on."""
    if number == 0:
        pattern = _LOWEST_BYTES[flag]
        first = index & 63
        return (pattern * ((first + count) // 64 + 1))[first : first + count]
    shift = 7 * number - 1
    width = 1 << shift  # number of consecutive records with the same byte
    end = index + count - 1
    first, last = index >> shift, end >> shift
    if first == last:
        return bytes((first & 127 | flag,)) * count
    whole = [bytes((block & 127 | flag,)) * width for block in range(first + 1, last)]
    begin = bytes((first & 127 | flag,)) * (width - (index & width - 1))
    return b"".join((begin, *whole, bytes((last & 127 | flag,)) * ((end & width - 1) + 1)))


def _fields(body: bytes, position: int, end: int, layout: _RecordLayout) -> Iterator[list[Any]]:
    """Yield the keys, the values and the encoded headers of all records from ``position`` to
    ``end``; columns that the layout does not have are left out.
    """
    placed = (
        (layout.key, layout.key_size),
        (layout.value, layout.value_size),
        (layout.size - layout.headers_size, layout.headers_size or -1),
    )
    places = tuple([(place, size) for place, size in placed if size >= 0])
    if not places:
        return
    fields: list[Any] = []
    # One call per block of records, without a tuple for each record.
    block = _struct_of(places, layout.size, _BLOCK)
    while end - position >= block.size:
        fields += block.unpack_from(body, position)
        position += block.size
    if position < end:
        one = _struct_of(places, layout.size, 1)
        with memoryview(body) as whole, whole[position:end] as part:
            fields += chain.from_iterable(one.iter_unpack(part))
    for number in range(len(places)):
        yield fields[number :: len(places)]


@lru_cache(maxsize=256)
def _struct_of(places: tuple[tuple[int, int], ...], size: int, count: int) -> struct.Struct:
    one, at = "", 0
    for place, length in places:
        one += f"{place - at}x{length}s"
        at = place + length
    return struct.Struct(f"{one}{size - at}x" * count)

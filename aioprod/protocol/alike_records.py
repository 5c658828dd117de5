"""Records that are alike, many at once.

Most batches hold long stretches of records whose fields have the same lengths: then each field
stands at the same distance from the one of the record before, and a slice with that step is the
column of all of them. What is checked of every record by ``record_reader`` is checked here of
columns, by comparisons of bytes; what is not as expected ends the stretch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from aioprod.protocol.record_headers import Header, HeaderBlocks

#: Stretches shorter than this are read faster one by one.
SHORTEST: Final = 16

# How many records are looked at for being alike, at first; eight times as many after each full
# stretch, so that most batches are two stretches: one of offset deltas of a byte, one of two. All
# that are left would be looked at again and again in a batch of short stretches.
_WINDOW: Final = 256
_BLOCK: Final = 64
_LOWEST_BYTES: Final = {
    flag: bytes(2 * delta & 127 | flag for delta in range(64)) for flag in (0, 128)
}
_LARGEST_OFFSET_BYTES: Final = 4  # of a varint: 134 million records


class _Shape(NamedTuple):
    """Where the fields of a record are, counted from its first byte; a key or value that is null
    has length -1.

    Attributes:
        size: bytes of the record, its length included.
        timestamp, offset: where the two deltas begin; ``key_length`` follows the offset's.
        headers_size: bytes behind the value; 0 where there are no headers.
        fixed: places of bytes that are the same in all records alike.
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


class AlikeRecords:
    """Reads the records alike at the beginning of a batch.

    Args:
        body: the batch's records, decompressed.
        base_timestamp: what timestamp deltas count from.
        blocks: headers that were read already.
    """

    def __init__(self, body: bytes, base_timestamp: int, blocks: HeaderBlocks) -> None:
        self._body = body
        self._blocks = blocks
        self._base = base_timestamp
        self._by_byte: list[int] | None = None  # timestamps by a delta of one byte

    def fill(
        self,
        timestamps: list[int],
        keys: list[bytes | None],
        values: list[bytes | None],
        headers: list[tuple[Header, ...]],
    ) -> tuple[int, int]:
        """Store the columns of one stretch after another, until one is too short or is not of the
        plain kind: no gaps in the offsets.

        Args:
            timestamps, keys, values, headers: as long as the batch has records; keys and values are
                None, headers are empty.

        Returns:
            How many records were read, and the byte behind them.

        Raises:
            CorruptRecordError, UnicodeDecodeError, IndexError: there are headers that can't be
            read.
        """
        index, position, window = 0, 0, _WINDOW
        while (left := len(timestamps) - index) >= SHORTEST:
            shape = _shape(self._body, position)
            if shape is None:
                break
            left = min(left, _same_offset_length(shape, index))
            most = left if left < window + SHORTEST else window
            count = self._count_alike(shape, position, index, most)
            if count < SHORTEST:
                break
            stretch = self._timestamps(position, count, shape)
            if len(stretch) < SHORTEST:
                break
            window = 8 * window if len(stretch) == most else _WINDOW
            following, end = index + len(stretch), position + len(stretch) * shape.size
            timestamps[index:following] = stretch
            fields = _fields(self._body, position, end, shape)
            if shape.key_size >= 0:
                keys[index:following] = next(fields)
            if shape.value_size >= 0:
                values[index:following] = next(fields)
            if shape.headers_size:
                headers[index:following] = map(self._blocks.__getitem__, next(fields))
            index, position = following, end
        return index, position

    def _count_alike(self, shape: _Shape, position: int, index: int, most: int) -> int:
        """How many records from record ``index`` at byte ``position`` on have this shape."""
        body = self._body
        count = min(most, (len(body) - position) // shape.size)
        end = position + count * shape.size
        for place in shape.fixed:
            if count < SHORTEST:
                return 0
            column = body[position + place : end : shape.size]
            first = column[:1]
            if column.count(first) != count:
                count -= len(column.lstrip(first))
                end = position + count * shape.size
        return (
            count
            if count >= SHORTEST and _offsets_follow(body, position, count, index, shape)
            else 0
        )

    def _timestamps(self, position: int, count: int, shape: _Shape) -> list[int]:
        """The timestamps of those records whose delta has as many bytes as the first's."""
        start, end, step = position + shape.timestamp, position + count * shape.size, shape.size
        length = shape.offset - shape.timestamp
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


def _shape(body: bytes, position: int) -> _Shape | None:
    """How the record at ``position`` is laid out; None where it is not of the plain kind, or its
    end is not where its length says.
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
    return _Shape(
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
    """An unsigned number of up to 5 bytes, and where it ends; IndexError for anything else."""
    number = 0
    for shift in range(0, 35, 7):
        byte = body[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
    raise IndexError


def _same_offset_length(shape: _Shape, index: int) -> int:
    """How many records have an offset delta of as many bytes."""
    length = shape.key_length - shape.offset
    return 0 if length > _LARGEST_OFFSET_BYTES else (1 << 7 * length - 1) - index


def _offsets_follow(body: bytes, position: int, count: int, index: int, shape: _Shape) -> bool:
    """Whether each record has the offset delta that follows that of the one before; compaction
    leaves gaps.
    """
    end = position + count * shape.size
    last = shape.key_length - shape.offset - 1
    for number in range(last + 1):
        expected = _offset_bytes(number, 128 if number < last else 0, index, count)
        if body[position + shape.offset + number : end : shape.size] != expected:
            return False
    return True


def _offset_bytes(number: int, flag: int, index: int, count: int) -> bytes:
    """The byte ``number`` of the offset deltas of ``count`` records from ``index`` on."""
    if number == 0:
        pattern = _LOWEST_BYTES[flag]
        first = index & 63
        return (pattern * ((first + count) // 64 + 1))[first : first + count]
    shift = 7 * number - 1
    width = 1 << shift  # so many records have the same byte
    end = index + count - 1
    first, last = index >> shift, end >> shift
    if first == last:
        return bytes((first & 127 | flag,)) * count
    whole = [bytes((block & 127 | flag,)) * width for block in range(first + 1, last)]
    begin = bytes((first & 127 | flag,)) * (width - (index & width - 1))
    return b"".join((begin, *whole, bytes((last & 127 | flag,)) * ((end & width - 1) + 1)))


def _fields(body: bytes, position: int, end: int, shape: _Shape) -> Iterator[list[Any]]:
    """The keys, the values and the bytes of the headers of all records from ``position`` to
    ``end``: what there is of these.
    """
    placed = (
        (shape.key, shape.key_size),
        (shape.value, shape.value_size),
        (shape.size - shape.headers_size, shape.headers_size or -1),
    )
    places = tuple([(place, size) for place, size in placed if size >= 0])
    if not places:
        return
    fields: list[Any] = []
    # A block at a time makes no tuple for each record.
    block = _layout(places, shape.size, _BLOCK)
    while end - position >= block.size:
        fields += block.unpack_from(body, position)
        position += block.size
    if position < end:
        one = _layout(places, shape.size, 1)
        with memoryview(body) as whole, whole[position:end] as part:
            fields += chain.from_iterable(one.iter_unpack(part))
    for number in range(len(places)):
        yield fields[number :: len(places)]


@lru_cache(maxsize=256)
def _layout(places: tuple[tuple[int, int], ...], size: int, count: int) -> struct.Struct:
    one, at = "", 0
    for place, length in places:
        one += f"{place - at}x{length}s"
        at = place + length
    return struct.Struct(f"{one}{size - at}x" * count)

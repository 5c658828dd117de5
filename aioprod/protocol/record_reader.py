"""Reads the records of batches that ``batch_cursor`` has found: decompresses and parses them.

Invalid bytes only raise CorruptRecordError or its base class, ProtocolError.
"""

from dataclasses import dataclass
from itertools import repeat
from typing import Final, NamedTuple, cast

from aioprod.codecs import Codec
from aioprod.counts import counted
from aioprod.errors import CorruptRecordError
from aioprod.native import accelerated
from aioprod.protocol.batch_cursor import iter_batches
from aioprod.protocol.compression import MAX_DECOMPRESSED_SIZE, decompress
from aioprod.protocol.fixed_width_records import FixedWidthReader
from aioprod.protocol.record_batch import HEADER_SIZE, BatchHeader
from aioprod.protocol.record_headers import (
    LIMIT,
    Header,
    HeaderBlocks,
    int64,
)
from aioprod.protocol.variable_width_records import VariableWidthReader
from aioprod.varints import rest_of_uvarint

# Length, attributes, timestamp delta, offset delta, key length, value length and header count take
# at least a byte each.
_SMALLEST_RECORD: Final = 7
# VariableWidthReader is worthwhile if it reads at least the first number of records. Otherwise, up
# to the second number of records are read one by one before the next attempt.
_WORTHWHILE_COUNT, _MAX_ANY = 4, 64
# Number of records that VariableWidthReader prepares for first; four times as many after a full
# run.
_VARIABLE_WIDTH_COUNT: Final = 64

#: Timestamps, keys, values, encoded headers (empty if there are none), the number of records with
#: headers, and gaps: index and offset delta of each record that does not follow the previous one.
_Parsed = tuple[
    list[int],
    list[bytes | None],
    list[bytes | None],
    list[bytes | tuple[()]],
    int,
    list[tuple[int, int]],
]
_Columns = tuple[list[int], list[bytes | None], list[bytes | None], list[tuple[Header, ...]]]


@dataclass(slots=True)
class Record:
    """One record.

    Attributes:
        offset: the offset in the partition.
        timestamp: the timestamp in milliseconds since 1970.
        timestamp_type: 0 if the producer set the timestamp (CreateTime), 1 if the broker did
            (LogAppendTime).
        headers: names and values, in the producer's order; a name may occur several times.
    """

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


class RecordColumns(NamedTuple):
    """The records of a batch as parallel lists, without an object for each record."""

    offsets: list[int]
    timestamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[Header, ...]]


def read_records(data: bytes | bytearray | memoryview, *, check_crc: bool = True) -> list[Record]:
    """Return the records of all complete batches in ``data``, without transaction markers."""
    records: list[Record] = []
    for header, position in iter_batches(data, check_crc=check_crc):
        if not header.is_control:
            records += read_batch_records(data, position, header)
    return records


def read_batch_records(
    data: bytes | bytearray | memoryview, offset: int, header: BatchHeader
) -> list[Record]:
    """Return the records of the batch at byte ``offset`` of ``data``; of a control batch, its
    markers.

    Args:
        header: the header from ``batch_cursor``; the checksum is not verified again.
    """
    offsets, timestamps, keys, values, headers = read_columns(data, offset, header)
    return list(
        map(Record, offsets, timestamps, repeat(header.timestamp_type), keys, values, headers)
    )


def read_columns(
    data: bytes | bytearray | memoryview, offset: int, header: BatchHeader
) -> RecordColumns:
    """Return the records of the batch at byte ``offset`` of ``data`` as columns."""
    return body_columns(header, plain_body(data, offset, header))


def body_columns(header: BatchHeader, body: bytes | memoryview) -> RecordColumns:
    """Return the records of a batch as columns.

    Args:
        body: the result of ``plain_body``.

    Raises:
        CorruptRecordError: if a record is invalid.
    """
    try:
        columns = _parse(
            body,
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
        )
    except IndexError as error:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset}: a record runs past its end or has a "
            "malformed header"
        ) from error
    except CorruptRecordError as error:
        raise CorruptRecordError(f"batch at offset {header.base_offset}: {error}") from None
    if header.timestamp_type:
        return columns._replace(timestamps=[header.max_timestamp] * header.record_count)
    return columns


def plain_body(
    data: bytes | bytearray | memoryview, offset: int, header: BatchHeader
) -> bytes | memoryview:
    """Return the decompressed bytes of the records of the batch at ``offset``; a view of ``data``
    if they are not compressed.

    Raises:
        CorruptRecordError: if bytes are missing, or a number in the header is impossible.
    """
    end = offset + header.size_in_bytes
    if end > len(data):
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has {len(data) - offset} of "
            f"{header.size_in_bytes} bytes"
        )
    if header.record_count > header.last_offset_delta + 1:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has {counted(header.record_count, 'record')} "
            f"in {header.last_offset_delta + 1} offsets"
        )
    codec = header.codec
    packed = memoryview(data)[offset + HEADER_SIZE : end]
    body = packed if codec is Codec.NONE else decompress(codec, packed, MAX_DECOMPRESSED_SIZE)
    if header.record_count * _SMALLEST_RECORD > len(body):
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has {counted(header.record_count, 'record')} in "
            f"{len(body)} bytes"
        )
    return body


def _parse(
    body: bytes | memoryview,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
) -> RecordColumns:
    parsed = parse_records(body, count, base_timestamp)
    if parsed is None:
        columns, gaps = _parse_in_python(bytes(body), count, base_timestamp)
    else:
        timestamps, keys, values, encoded, with_headers, gaps = parsed
        blocks = HeaderBlocks()
        headers: list[tuple[Header, ...]] = (
            [blocks[block] if block else () for block in encoded]
            if with_headers
            else cast("list[tuple[Header, ...]]", encoded)
        )
        columns = timestamps, keys, values, headers
    return RecordColumns(_offsets(base_offset, last_offset_delta, count, gaps), *columns)


@accelerated
def parse_records(body: bytes | memoryview, count: int, base_timestamp: int) -> _Parsed | None:
    """Return None, so that the readers below parse the records. The accelerator replaces this
    function with one that parses them, and returns None for invalid records.
    """
    return None


def _parse_in_python(
    body: bytes, count: int, base_timestamp: int
) -> tuple[_Columns, list[tuple[int, int]]]:
    # The columns initially contain the values of most records, so that only differences are stored.
    timestamps = [base_timestamp] * count
    keys: list[bytes | None] = [None] * count
    values: list[bytes | None] = [None] * count
    headers: list[tuple[Header, ...]] = [()] * count
    columns = timestamps, keys, values, headers
    blocks = HeaderBlocks()
    # Three readers, from the fastest one to the most general one.
    index, position = FixedWidthReader(body, base_timestamp, blocks).fill(*columns)
    variable_width = VariableWidthReader(body, base_timestamp, columns, blocks)
    any_records = _AnyRecordReader(body, base_timestamp, columns, blocks)
    delta, any_count, most = index, 1, _VARIABLE_WIDTH_COUNT
    while index < count:
        following, position = variable_width.fill(index, position, delta, most)
        most = 4 * most if following - index == most else _VARIABLE_WIDTH_COUNT
        delta += following - index
        any_count = 1 if following - index >= _WORTHWHILE_COUNT else min(2 * any_count, _MAX_ANY)
        index = min(following + any_count, count)
        position, delta = any_records.fill(range(following, index), position, delta)
    if position != len(body):
        raise CorruptRecordError(
            f"{counted(count, 'record')} in {position} of {len(body)} bytes of a batch"
        )
    if any_records.far_timestamps:
        timestamps[:] = map(int64, timestamps)
    return columns, any_records.gaps


# Varints of one and two bytes are read inline, as a call costs more than the read. While reading,
# only signs are checked: positions only increase, so if each record ends as its length requires,
# and the last record ends with the body, everything else is valid, too.
class _AnyRecordReader:
    """Reads records of any layout, number by number.

    Attributes:
        gaps: index and offset delta of each record whose offset does not follow the previous one.
        far_timestamps: True if a timestamp may exceed the 64 bits that Java keeps.
    """

    def __init__(
        self, body: bytes, base_timestamp: int, columns: _Columns, blocks: HeaderBlocks
    ) -> None:
        self._body = body
        self._base = base_timestamp
        self._columns = columns
        self._blocks = blocks
        self.gaps: list[tuple[int, int]] = []
        self.far_timestamps = not -LIMIT <= base_timestamp < LIMIT

    def fill(self, indexes: range, position: int, delta: int) -> tuple[int, int]:
        """Store records. Return the position of the next record, and its expected offset delta."""
        body, base, expected = self._body, self._base, 2 * delta
        timestamps, keys, values, headers = self._columns
        for index in indexes:
            length, position = body[position], position + 1
            if length > 127:
                if (byte := body[position]) < 128:
                    length, position = length + (byte << 7) - 128, position + 1
                else:
                    length, position = rest_of_uvarint(body, position, length)
            start = position
            number = body[position + 1]  # skips the unused attributes
            position += 2
            if number:
                if number > 127:
                    if (byte := body[position]) < 128:
                        number, position = number + (byte << 7) - 128, position + 1
                    else:
                        number, position = self._rest_of_stamp(position, number)
                timestamps[index] = base + ((number >> 1) ^ -(number & 1))
            number, position = body[position], position + 1
            if number > 127:
                if (byte := body[position]) < 128:
                    number, position = number + (byte << 7) - 128, position + 1
                else:
                    number, position = rest_of_uvarint(body, position, number)
            if number != expected:
                self.gaps.append((index, (number >> 1) ^ -(number & 1)))
            expected = number + 2
            number, position = body[position], position + 1
            if number != 1:
                if number > 127:
                    number, position = rest_of_uvarint(body, position, number)
                if not number & 1:
                    following = position + (number >> 1)
                    keys[index] = body[position:following]
                    position = following
            number, position = body[position], position + 1
            if number != 1:
                if number > 127:
                    if (byte := body[position]) < 128:
                        number, position = number + (byte << 7) - 128, position + 1
                    else:
                        number, position = rest_of_uvarint(body, position, number)
                if not number & 1:
                    following = position + (number >> 1)
                    values[index] = body[position:following]
                    position = following
            if body[position]:
                end = start + (length >> 1)
                headers[index] = self._blocks[body[position:end]]
                position = end
            else:
                position += 1
            if (position - start) << 1 != length:
                raise CorruptRecordError(
                    f"record {index} ends at byte {position}: its length does not match"
                )
        return position, expected >> 1

    def _rest_of_stamp(self, position: int, first: int) -> tuple[int, int]:
        number, position = rest_of_uvarint(self._body, position, first, 64)
        if number >> 62:
            self.far_timestamps = True
        return number, position


def _offsets(
    base_offset: int, last_delta: int, count: int, gaps: list[tuple[int, int]]
) -> list[int]:
    """Return the offsets, which are consecutive except for gaps from compaction.

    Brokers do not check the deltas of uncompressed records. If there are as many records as
    offsets, the offsets follow from their order.

    Args:
        gaps: index and offset delta of each record that does not follow the previous one.
    """
    if gaps and count == last_delta + 1:
        return list(range(base_offset, base_offset + count))
    offsets: list[int] = []
    start = delta = 0
    for index, gap_delta in [*gaps, (count, 1 << 63)]:
        end = delta + index - start
        if gap_delta < end:
            raise CorruptRecordError(f"offset delta {gap_delta} of record {index} is too small")
        if end - 1 > last_delta:
            raise CorruptRecordError(
                f"offset delta {end - 1} is above the batch's last, {last_delta}"
            )
        offsets.extend(range(base_offset + delta, base_offset + end))
        start, delta = index, gap_delta
    return offsets

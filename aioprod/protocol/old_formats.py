"""Reads the record formats 0 and 1, which Kafka stored before 0.11 and still returns.

A message set is converted to batches of format 2, the only format that readers support. A
compressed message becomes one batch; consecutive uncompressed messages share a batch. Records of
format 0 have the timestamp -1. For data of the current format, the only cost is a comparison of one
byte.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.protocol.codecs.lz4_unchecked import with_header_checksum
from aioprod.protocol.compression import MAX_DECOMPRESSED_SIZE, decompress
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAGIC_OFFSET,
    OLD_FORMATS,
    build_batch,
)
from aioprod.protocol.record_encoder import encode_record
from aioprod.protocol.record_headers import LIMIT, int64

_OVERHEAD: Final = struct.Struct(">qi")  # offset and size
_HEAD: Final = struct.Struct(">Ibb")  # checksum, format, attributes
_TIMESTAMP: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">i")
_CHECKED_FROM: Final = 4  # the checksum covers the bytes after it
_SMALLEST: Final = _HEAD.size + 2 * _LENGTH.size
_NO_TIMESTAMP: Final = -1
# Approximate size of the batches of uncompressed messages, in bytes.
_BATCH_BYTES: Final = 128 << 10
# Limit on the bytes to convert at once: with messages of 50 bytes, this takes 0.1 s, in which no
# other task runs. The next fetch returns the rest.
_ENOUGH: Final = 512 << 10
_LARGEST_DELTA: Final = 2**31 - 1


class _Message(NamedTuple):
    """A message of format 0 or 1."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def timestamp_type(self) -> int:
        return self.attributes & LOG_APPEND_TIME


def in_current_format(data: BytesLike, *, check_crcs: bool) -> BytesLike:
    """Return fetched data with all batches in format 2; the same object if no conversion is needed.

    Data after an unreadable message, or after half a MiB, is left out: the next fetch begins there.

    Args:
        data: encoded batches and messages; the last one may be incomplete.
        check_crcs: whether to verify checksums.

    Raises:
        CorruptRecordError: if the first message can't be read.
    """
    if len(data) <= MAGIC_OFFSET or data[MAGIC_OFFSET] not in OLD_FORMATS:
        return data
    batches: list[bytes] = []
    size = 0
    try:
        for batch in _batches(bytes(data), check_crcs=check_crcs):
            batches.append(batch)
            size += len(batch)
            if size > _ENOUGH:
                break
    except _BrokenMessageError as broken:
        batches += broken.before
        if not batches:
            raise CorruptRecordError(str(broken)) from None
    return b"".join(batches)


class _BrokenMessageError(CorruptRecordError):
    """A message can't be read. Contains the batches before it."""

    def __init__(self, text: str, before: Sequence[bytes]) -> None:
        super().__init__(text)
        self.before = before


def _batches(data: bytes, *, check_crcs: bool) -> Iterator[bytes]:
    """Yield batches of format 2."""
    run: list[_Message] = []
    size = position = 0
    while True:
        try:
            found = _message(data, position, check_crcs=check_crcs)
            if found is None:
                break
            message, end = found
            inner = _inner_messages(message, check_crcs=check_crcs)
        except CorruptRecordError as error:
            raise _BrokenMessageError(str(error), [_batch(run)] if run else []) from error
        if run and (inner is not None or size > _BATCH_BYTES or not _continues(run, message)):
            yield _batch(run)
            run, size = [], 0
        if inner is None:
            run.append(message)
            size += end - position
        elif inner:
            yield _batch(inner)
        position = end
    if run:
        yield _batch(run)
    if position < len(data):
        # An incomplete message, or batches of format 2, as the format of a topic may change.
        yield data[position:]


def _continues(run: Sequence[_Message], message: _Message) -> bool:
    first, last = run[0], run[-1]
    return (
        last.offset < message.offset <= first.offset + _LARGEST_DELTA
        and message.timestamp_type == first.timestamp_type
        and (not first.timestamp_type or message.timestamp == first.timestamp)
    )


def _message(data: bytes, position: int, *, check_crcs: bool) -> tuple[_Message, int] | None:
    """Return the message at ``position`` and its end; None if it is incomplete, or has format 2.

    Raises:
        CorruptRecordError: if it is not valid.
    """
    start = position + _OVERHEAD.size
    if start + _SMALLEST > len(data):
        return None
    offset, size = _OVERHEAD.unpack_from(data, position)
    crc, magic, attributes = _HEAD.unpack_from(data, start)
    if magic not in OLD_FORMATS or start + size > len(data):
        return None
    where = f"message at offset {offset} of format (magic) {magic}"
    if not 0 <= offset < LIMIT or size < _SMALLEST:
        raise CorruptRecordError(f"{where}: impossible offset or size {size}")
    end = start + size
    if check_crcs and zlib.crc32(memoryview(data)[start + _CHECKED_FROM : end]) != crc:
        raise CorruptRecordError(f"{where}: the checksum is wrong")
    place, timestamp = start + _HEAD.size, _NO_TIMESTAMP
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(data, place)
        place += _TIMESTAMP.size
    try:
        key, place = _field(data, place, end)
        value, place = _field(data, place, end)
    except struct.error:
        place = -1
    if place != end:
        raise CorruptRecordError(f"{where}: its size differs from that of key and value")
    return _Message(offset, magic, attributes, timestamp, key, value), end


def _field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _LENGTH.unpack_from(data, position)
    start = position + _LENGTH.size
    if length < 0:
        return None, start
    return data[start : min(start + length, end)], start + length


def _inner_messages(message: _Message, *, check_crcs: bool) -> list[_Message] | None:
    """Return the messages in a compressed one; None if it is not compressed.

    Raises:
        CorruptRecordError: if they can't be read.
    """
    number = message.attributes & CODEC_MASK
    if not number:
        return None
    where = f"compressed message at offset {message.offset} of format (magic) {message.magic}"
    if number not in tuple(Codec):
        raise CorruptRecordError(f"{where}: unknown compression codec {number}")
    packed = message.value or b""
    if number == Codec.LZ4 and not message.magic:
        packed = with_header_checksum(packed)  # the first Kafka clients computed it incorrectly
    data = decompress(Codec(number), packed, MAX_DECOMPRESSED_SIZE)
    found: list[_Message] = []
    position = 0
    while (inner := _message(data, position, check_crcs=check_crcs)) is not None:
        each, position = inner
        if each.attributes & CODEC_MASK or each.magic != message.magic:
            raise CorruptRecordError(
                f"{where}: a message in it is compressed or has another format"
            )
        found.append(each)
    if position != len(data) or not found:
        raise CorruptRecordError(f"{where}: its content is not a whole number of messages")
    return _placed(message, found)


def _placed(outer: _Message, found: list[_Message]) -> list[_Message]:
    """Return the inner messages with their offsets and timestamps in the log."""
    if outer.magic:
        # Inner offsets are relative to the first message; the outer offset is that of the last.
        base = outer.offset - found[-1].offset
        found = [each._replace(offset=base + each.offset) for each in found]
        if outer.timestamp_type:
            found = [
                each._replace(timestamp=outer.timestamp, attributes=LOG_APPEND_TIME)
                for each in found
            ]
        else:
            found = [each._replace(attributes=0) for each in found]
    offsets = [each.offset for each in found]
    if offsets[0] < 0 or any(after <= before for before, after in pairwise(offsets)):
        # Some producers set all inner offsets to 0. The outer offset is that of the last message.
        first = outer.offset - len(found) + 1
        if first < 0:
            raise CorruptRecordError(
                f"compressed message at offset {outer.offset} of format (magic) {outer.magic}: "
                f"has {len(found)} messages"
            )
        found = [each._replace(offset=first + index) for index, each in enumerate(found)]
    return found


def _batch(messages: Sequence[_Message]) -> bytes:
    first, last = messages[0], messages[-1]
    stamps = [each.timestamp for each in messages]
    return build_batch(
        *(
            encode_record(
                int64(each.timestamp - first.timestamp),
                each.offset - first.offset,
                each.key,
                each.value,
            )
            for each in messages
        ),
        attributes=first.timestamp_type,
        last_offset_delta=last.offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max(stamps),
        record_count=len(messages),
        base_offset=first.offset,
    )

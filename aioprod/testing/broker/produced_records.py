"""Checks the records of a produced batch as Kafka does, with Kafka's error codes.

Kafka decompresses each batch, and reads the lengths of all its records. The error is
UNKNOWN_SERVER_ERROR for data that Java's libraries can't decompress and for compressed records
whose offset deltas are not 0, 1, 2 and so on. All other errors are INVALID_RECORD. Records that are
not compressed may have any offset deltas. ``tests/foreign_bytes`` compares the answers with those
of a real broker.
"""

from __future__ import annotations

import zlib

from aioprod.codecs import Codec
from aioprod.counts import counted
from aioprod.error_codes import ErrorCode
from aioprod.errors import CorruptRecordError
from aioprod.protocol.codecs.faults import ZSTD_MAGIC
from aioprod.protocol.codecs.frame_sizes import lz4_frame, zstd_sizes
from aioprod.protocol.codecs.zstd_skippable import begins_skippable
from aioprod.protocol.compression import MAX_DECOMPRESSED_SIZE, decompress
from aioprod.protocol.record_batch import CODEC_MASK, HEADER_SIZE, BatchHeader
from aioprod.protocol.record_headers import LIMIT, read_headers
from aioprod.protocol.record_reader import parse_records
from aioprod.testing.broker.errors import RequestError
from aioprod.varints import read_uvarint, zigzag_decoded

_LZ4_INDEPENDENT, _LZ4_RESERVED = 0x20, 0x03


def check_produced(records: bytes, header: BatchHeader) -> None:
    """Raise RequestError if Kafka refuses the records of a batch."""
    packed = records[HEADER_SIZE : header.size_in_bytes]
    try:
        codec = header.codec
        body = _plain(codec, packed)
    except CorruptRecordError as error:
        # Data after a complete gzip member are checked after the records.
        late = header.attributes & CODEC_MASK == Codec.GZIP and _begins_with_member(packed)
        code = ErrorCode.INVALID_RECORD if late else ErrorCode.UNKNOWN_SERVER_ERROR
        raise RequestError(code, str(error)) from None
    count = header.record_count
    # The accelerator reads all of them in one call. The code below reads invalid and unusual ones.
    base = header.base_timestamp if -LIMIT <= header.base_timestamp < LIMIT else 0
    parsed = parse_records(body, count, base)
    if parsed is not None and not parsed[-1]:
        _check_headers(parsed[3])
        return
    deltas = _read_all(body, count)
    if codec is not Codec.NONE and deltas != list(range(count)):
        raise RequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "offset deltas of compressed records must be 0, 1, ..."
        )


def _plain(codec: Codec, packed: bytes) -> bytes:
    """Decompress data as Java's libraries do.

    Raises:
        CorruptRecordError: if it can't be decompressed.
    """
    if codec is Codec.LZ4:
        # Java reads only one frame, and only independent blocks.
        flags = packed[4] if len(packed) > 4 else 0
        if not flags & _LZ4_INDEPENDENT or flags & _LZ4_RESERVED:
            raise CorruptRecordError("lz4 data has linked blocks or reserved bits")
        found = lz4_frame(packed, 0)
        packed = packed[: found[0]] if found else packed
    elif codec is Codec.ZSTD:
        _, end, _ = zstd_sizes(packed)
        rest = packed[end:]
        if rest and not (rest.startswith(ZSTD_MAGIC) or begins_skippable(rest)):
            raise CorruptRecordError("other bytes follow the zstd data")
    return decompress(codec, packed)


def _begins_with_member(packed: bytes) -> bool:
    member = zlib.decompressobj(wbits=31)
    try:
        member.decompress(packed, MAX_DECOMPRESSED_SIZE)
    except zlib.error:
        return False
    return member.eof


def _read_all(body: bytes, count: int) -> list[int]:
    """Return the offset deltas of all records.

    Raises:
        RequestError: if the bytes are not exactly ``count`` records.
    """
    deltas: list[int] = []
    position = 0
    try:
        for _ in range(count):
            length, start = _number(body, position)
            end = start + length
            if length < 0 or end > len(body):
                raise IndexError
            deltas.append(_read_one(body[start:end]))
            position = end
    except (IndexError, CorruptRecordError):
        raise _invalid(f"record {len(deltas)} is not valid") from None
    if position != len(body):
        raise _invalid(f"bytes follow the {counted(count, 'record')}")
    return deltas


def _read_one(record: bytes) -> int:
    """Return the offset delta of a record."""
    place = 1
    while record[place] & 0x80:  # the timestamp delta, which may have 64 bits
        place += 1
    delta, place = _number(record, place + 1)
    for _ in ("key", "value"):
        length, place = _number(record, place)
        place += max(length, 0)
    _check_headers([record[place:]])
    return delta


def _check_headers(blocks: list[bytes | tuple[()]]) -> None:
    for block in blocks:
        if not block or block == b"\0":
            continue
        try:
            _, end = read_headers(block)
        except (IndexError, CorruptRecordError) as error:
            raise _invalid(f"headers can't be read: {error}") from None
        if end != len(block):
            raise _invalid("a record has bytes after its headers")


def _number(data: bytes, position: int) -> tuple[int, int]:
    number, end = read_uvarint(data, position)
    return zigzag_decoded(number), end


def _invalid(text: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_RECORD, text)

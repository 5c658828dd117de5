"""Compression and decompression, compatible with Kafka's own clients. Synchronous: callers use a
thread for large data.
"""

from __future__ import annotations

import zlib
from typing import Final

import cramjam

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.protocol.codecs.backends import Backend, lz4_backend, zstd_backend
from aioprod.protocol.codecs.faults import Buffer, cut_off, too_large
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames
from aioprod.varints import read_uvarint

#: Limit on the uncompressed size of one batch, in bytes. It bounds the memory for a hostile or
#: corrupt batch.
MAX_DECOMPRESSED_SIZE: Final = 256 << 20


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress data.

    Args:
        level: None for the codec's default.

    Raises:
        ConfigError: if the codec does not have this level.
    """
    if level is None:
        level = codec.levels.default if codec.levels else 0
    else:
        codec.check_level("compression level", level)
    return _BACKENDS[codec].compress(data, level)


def decompress(codec: Codec, data: Buffer, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """Decompress data of this or another client.

    Raises:
        CorruptRecordError: if the data is not in the codec's format, is truncated, or decompresses
            to more than ``max_size`` bytes.
    """
    backend = _BACKENDS[codec]
    errors: tuple[type[Exception], ...] = (*backend.errors, MemoryError)
    try:
        plain = backend.decompress(data, max_size)
    except errors as error:
        raise CorruptRecordError(f"{codec.label} data can't be decompressed: {error}") from error
    if len(plain) > max_size:
        raise too_large(codec.label, max_size)
    return plain


def _copy(data: Buffer, _: int) -> bytes:
    return bytes(data)


# gzip

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"


def _gzip_compress(data: Buffer, level: int) -> bytes:
    return zlib.compress(data, level, wbits=31)


def _gzip_decompress(data: Buffer, max_size: int) -> bytes:
    member = zlib.decompressobj(wbits=31)
    plain = member.decompress(data, max_size + 1)
    if len(plain) > max_size:
        return plain
    if not member.eof:
        raise cut_off("gzip")
    if not member.unused_data:
        return plain
    end, room = len(data) - len(member.unused_data), max_size - len(plain)
    return b"".join([plain, *read_frames("gzip", data, end, room, max_size, _next_member)])


def _next_member(data: memoryview, position: int, room: int) -> tuple[bytes, int] | None:
    if bytes(data[position : position + 3]) != _GZIP_MAGIC:
        return None
    member = zlib.decompressobj(wbits=31)
    return read_frame(member.decompress, member, data, position, room)


# snappy: the frames of snappy-java (xerial), which Kafka's clients expect

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_LENGTH: Final = 4  # bytes of a block's length
_XERIAL_BLOCK_SIZE: Final = 32 << 10
_SNAPPY_RATIO: Final = 22  # three bytes can encode a copy of 64


def _snappy_compress(data: Buffer, _: int) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
            parts.append(len(block).to_bytes(4, "big"))
            parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, max_size: int) -> bytes:
    data = bytes(data)
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, max_size, max_size)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise cut_off("snappy")
    room = max_size
    while len(data) - position >= _XERIAL_LENGTH:  # as Java's reader, which ignores fewer bytes
        start = position + _XERIAL_LENGTH
        if data[position:start] == _XERIAL_MAGIC[:_XERIAL_LENGTH]:
            # The header of another stream; another one's bytes are ignored.
            start = position + len(_XERIAL_HEADER)
            if start > len(data):
                raise cut_off("snappy")
            if not data.startswith(_XERIAL_MAGIC, position):
                break
            position = start
            continue
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise cut_off("snappy")
        block = _snappy_block(data[start:position], room, max_size)
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _snappy_block(block: bytes, room: int, max_size: int) -> bytes:
    # The block begins with its uncompressed size, so that is known before memory is allocated.
    try:
        size, _ = read_uvarint(block, 0, 32)
    except IndexError:
        raise cut_off("snappy") from None
    if size > room:
        raise too_large("snappy", max_size)
    if size > _SNAPPY_RATIO * len(block):
        raise CorruptRecordError(f"snappy block of {len(block)} bytes claims to have {size} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


_BACKENDS: Final[dict[Codec, Backend]] = {
    Codec.NONE: Backend(_copy, _copy, ()),
    Codec.GZIP: Backend(_gzip_compress, _gzip_decompress, (zlib.error,)),
    Codec.SNAPPY: Backend(_snappy_compress, _snappy_decompress, (cramjam.DecompressionError,)),
    Codec.LZ4: lz4_backend(),
    Codec.ZSTD: zstd_backend(),
}

"""Kafka's four codecs, compatible with Kafka's own clients. Synchronous: callers use a thread for
large data.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import cramjam

from aioprod.errors import ConfigError, CorruptRecordError
from aioprod.protocol.codecs.backends import lz4_backend, zstd_backend
from aioprod.protocol.codecs.faults import Buffer, cut_off, too_large
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames

_LZ4: Final = lz4_backend()
_ZSTD: Final = zstd_backend()
_ERRORS: Final[tuple[type[Exception], ...]] = (
    zlib.error, cramjam.DecompressionError, MemoryError, *_LZ4.errors, *_ZSTD.errors
)  # fmt: skip

#: Limit on the uncompressed size of one batch, in bytes. It bounds the memory for a hostile or
#: corrupt batch.
MAX_DECOMPRESSED_SIZE: Final = 256 << 20


class Codec(IntEnum):
    """A compression codec (``compression.type``), with its number in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """Return the codec of a ``compression.type``: none, gzip, snappy, lz4 or zstd.

        Raises:
            ConfigError: if there is no such codec.
        """
        codec = cls.__members__.get(name.upper())
        if codec is None or name != name.lower():
            known = ", ".join(member.name.lower() for member in cls)
            raise ConfigError(f"compression_type {name!r} is not one of {known}")
        return codec


#: Levels of each codec (KIP-390: ``compression.gzip.level`` and so on). Gzip's -1 is the default of
#: zlib.
LEVELS: Final[dict[Codec, range]] = {
    Codec.NONE: range(0),
    Codec.GZIP: range(-1, 10),
    Codec.SNAPPY: range(0),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
#: Kafka's defaults for codecs that have levels.
DEFAULT_LEVELS: Final[dict[Codec, int]] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}


def check_level(codec: Codec, level: int | None) -> None:
    """Raise ConfigError if ``codec`` does not have this level. None is its default."""
    if level is None:
        return
    if codec is Codec.GZIP and level == 0:
        raise ConfigError(
            "compression level 0 stores gzip data uncompressed; use -1 or 1..9, or "
            "compression_type none"
        )
    levels = LEVELS[codec]
    if level not in levels:
        allowed = f"{levels.start}..{levels.stop - 1}" if levels else "none"
        raise ConfigError(
            f"compression level {level} is out of range for {codec.name.lower()}: {allowed}"
        )


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress data.

    Args:
        level: None for the codec's default.

    Raises:
        ConfigError: if the codec does not have this level.
    """
    check_level(codec, level)
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """Decompress data of this or another client.

    Raises:
        CorruptRecordError: if the data is not in the codec's format, is truncated, or decompresses
            to more than ``max_size`` bytes.
    """
    try:
        plain = _DECOMPRESS[codec](data, max_size)
    except _ERRORS as error:
        raise CorruptRecordError(
            f"{codec.name.lower()} data can't be decompressed: {error}"
        ) from error
    if len(plain) > max_size:
        raise too_large(codec.name.lower(), max_size)
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
    size = shift = 0
    # The block begins with its uncompressed size, so that is known before memory is allocated.
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > room:
        raise too_large("snappy", max_size)
    if size > _SNAPPY_RATIO * len(block):
        raise CorruptRecordError(f"snappy block of {len(block)} bytes claims to hold {size} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


# lz4

_LZ4_HIGH: Final = 3  # the lowest level of the high compressor


def _lz4_compress(data: Buffer, level: int) -> bytes:
    # Kafka's Java client uses the fast compressor for the default level, else the high compressor.
    fast = level == DEFAULT_LEVELS[Codec.LZ4]
    return _LZ4.compress(data, 0 if fast else max(level, _LZ4_HIGH))


_COMPRESS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _ZSTD.compress,
}
_DECOMPRESS: Final[dict[Codec, Callable[[Buffer, int], bytes]]] = {
    Codec.NONE: _copy,
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _LZ4.decompress,
    Codec.ZSTD: _ZSTD.decompress,
}

"""Kafka's four codecs, as Kafka's own clients write and read them. Synchronous: big data goes
through a thread, by the caller's choice.
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

_LZ4: Final = lz4_backend()
_ZSTD: Final = zstd_backend()
_ERRORS: Final[tuple[type[Exception], ...]] = (
    zlib.error, cramjam.DecompressionError, MemoryError, *_LZ4.errors, *_ZSTD.errors
)  # fmt: skip

# : Limit on the uncompressed size of one batch, in bytes: what a fetch of a hostile or broken batch
# can cost at most.
MAX_DECOMPRESSED_SIZE: Final = 256 << 20


class Codec(IntEnum):
    """A compression codec; the value is the one in a batch's attributes. Kafka setting
    ``compression.type``.
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The codec of a ``compression.type``: none, gzip, snappy, lz4 or zstd. ConfigError for
        anything else.
        """
        codec = cls.__members__.get(name.upper())
        if codec is None or name != name.lower():
            known = ", ".join(member.name.lower() for member in cls)
            raise ConfigError(f"compression_type {name!r} is none of {known}")
        return codec


# : Levels that each codec takes (KIP-390: ``compression.gzip.level`` and so on). Gzip's -1 stands
# for zlib's own default.
LEVELS: Final[dict[Codec, range]] = {
    Codec.NONE: range(0),
    Codec.GZIP: range(-1, 10),
    Codec.SNAPPY: range(0),
    Codec.LZ4: range(1, 18),
    Codec.ZSTD: range(-131072, 23),
}
#: Kafka's defaults; codecs without levels are not in it.
DEFAULT_LEVELS: Final[dict[Codec, int]] = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}


def check_level(codec: Codec, level: int | None) -> None:
    """Raises ConfigError where ``codec`` has no such level. None, the codec's default, always
    passes.
    """
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
    """Compresses ``data``; ``level`` None is the codec's default. ConfigError for a level that the
    codec does not have.
    """
    check_level(codec, level)
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: Buffer, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
    """Undoes ``compress``, and the forms that other clients write.

    CorruptRecordError where ``data`` is not in the codec's format, is cut off, has bytes left over
    or holds more than ``max_size`` bytes.
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

_GZIP_SLICE: Final = 64  # a member takes 20 bytes at least


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
    # Members follow one another, as Java's GZIPInputStream has it.
    parts, room = [plain], max_size - len(plain)
    with memoryview(data) as view:
        position = len(view) - len(member.unused_data)
        while position < len(view):
            plain, position = _gzip_member(view, position, room)
            parts.append(plain)
            room -= len(plain)
            if room < 0:
                break
    return b"".join(parts)


def _gzip_member(view: memoryview, position: int, room: int) -> tuple[bytes, int]:
    """What the member at ``position`` holds, up to a byte more than ``room``, and where it ends."""
    member = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    size = _GZIP_SLICE  # what follows a member's end is copied, so it is looked at in slices
    while not member.eof and room >= 0:
        if position >= len(view):
            raise cut_off("gzip")
        with view[position : position + size] as some:
            parts.append(member.decompress(some, room + 1))
            position += len(some) - len(member.unused_data)
        room -= len(parts[-1])
        size *= 2
    return b"".join(parts), position


# snappy: frames as snappy-java (xerial) writes them, which is what Kafka's clients expect

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_SIZE: Final = 32 << 10
_SNAPPY_RATIO: Final = 22  # a copy of up to 64 bytes takes 3


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
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if start > len(data) or position > len(data):
            raise cut_off("snappy")
        block = _snappy_block(data[start:position], room, max_size)
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _snappy_block(block: bytes, room: int, max_size: int) -> bytes:
    size = shift = 0
    for byte in block[
        :5
    ]:  # the block starts with its uncompressed size: known before any memory is taken
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
    # Kafka's Java client uses the fast compressor at its default level and the high compressor at
    # any other.
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

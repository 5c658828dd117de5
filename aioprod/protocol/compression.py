"""Compression and decompression, compatible with Kafka's clients. Synchronous: callers use a thread
for large data.
"""

from __future__ import annotations

import zlib
from typing import Final

from aioprod.codecs import Codec
from aioprod.errors import CorruptRecordError
from aioprod.protocol.codecs.backend import Backend
from aioprod.protocol.codecs.faults import Buffer, cut_off, too_large
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames

#: Limit on the uncompressed size of a batch in bytes, which bounds the memory for hostile or
#: corrupt data.
MAX_DECOMPRESSED_SIZE: Final = 256 << 20


def load(codec: Codec) -> None:
    """Import the libraries of a codec, so that its first batch is not delayed by that."""
    _BACKENDS[codec]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress data.

    Args:
        level: the compression level; None for the codec's default.

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
        CorruptRecordError: if the data is invalid, is truncated, or decompresses to more than
            ``max_size`` bytes.
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


_LIBRARIES: Final[dict[Codec, str]] = {
    Codec.SNAPPY: "snappy_backend",
    Codec.LZ4: "lz4_backend",
    Codec.ZSTD: "zstd_backend",
}


class _Backends(dict[Codec, Backend]):
    """The functions of each codec, whose libraries are imported on demand."""

    def __missing__(self, codec: Codec) -> Backend:
        from aioprod.protocol.codecs import backends

        found: Backend = getattr(backends, _LIBRARIES[codec])()
        self[codec] = found
        return found


_BACKENDS: Final = _Backends(
    {
        Codec.NONE: Backend(_copy, _copy, ()),
        Codec.GZIP: Backend(_gzip_compress, _gzip_decompress, (zlib.error,)),
    }
)

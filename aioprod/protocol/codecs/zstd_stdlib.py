"""zstd with Python's own ``compression.zstd``, from Python 3.14 on."""

from __future__ import annotations

from typing import Final

from compression import zstd

from aioprod.protocol.codecs.faults import (
    ZSTD_MAGIC,
    Buffer,
    check_magic,
    cut_off,
    left_over,
    too_large,
)

ERRORS: Final = (zstd.ZstdError,)


def compress(data: Buffer, level: int) -> bytes:
    packed: bytes = zstd.ZstdCompressor(level).compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return packed


def decompress(data: Buffer, max_size: int) -> bytes:
    check_magic("zstd", data, ZSTD_MAGIC)
    stream = zstd.ZstdDecompressor()
    # One byte more than the limit, which tells whether there is more.
    found: bytes = stream.decompress(data, max_size + 1)
    if len(found) > max_size:
        raise too_large("zstd", max_size)
    if not stream.eof:
        raise cut_off("zstd")
    if stream.unused_data:
        raise left_over("zstd")
    return found

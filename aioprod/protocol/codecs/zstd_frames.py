"""zstd with the library zstandard."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

from aioprod.protocol.codecs.faults import (
    ZSTD_MAGIC,
    Buffer,
    check_magic,
    cut_off,
    left_over,
    too_large,
)

ERRORS: Final = (zstandard.ZstdError,)
_SLICE: Final = 4 << 10
# A context is slow to create, and threads must not share one.
_contexts: Final = threading.local()


def _compressor(level: int) -> zstandard.ZstdCompressor:
    compressors: dict[int, zstandard.ZstdCompressor] = _contexts.__dict__.setdefault(
        "compressors", {}
    )
    if level not in compressors:
        compressors.clear()
        compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressors[level]


def _decompressor() -> zstandard.ZstdDecompressor:
    context: zstandard.ZstdDecompressor | None = _contexts.__dict__.get("decompressor")
    if context is None:
        context = _contexts.decompressor = zstandard.ZstdDecompressor()
    return context


def compress(data: Buffer, level: int) -> bytes:
    return _compressor(level).compress(data)


def decompress(data: Buffer, max_size: int) -> bytes:
    # Frames of Java's clients do not have their size. Small slices bound the output of one step,
    # which can be 32,000 times as large.
    check_magic("zstd", data, ZSTD_MAGIC)
    stream = _decompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(data), _SLICE):
        if stream.eof:
            raise left_over("zstd")
        part = stream.decompress(data[start : start + _SLICE])
        size += len(part)
        if size > max_size:
            raise too_large("zstd", max_size)
        parts.append(part)
    if not stream.eof:
        raise cut_off("zstd")
    if stream.unused_data:
        raise left_over("zstd")
    return b"".join(parts)

"""zstd with the library zstandard."""

from __future__ import annotations

import threading
from typing import Final

import zstandard

from aioprod.protocol.codecs.faults import ZSTD_MAGIC, Buffer, cut_off, too_large
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames
from aioprod.protocol.codecs.zstd_skippable import end_of_skippable, first_frame

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
    # Frames of Java's clients do not contain their size. Small slices bound the output of one step,
    # which can be 32,000 times as large.
    stream = _decompressor().decompressobj()
    parts: list[bytes] = []
    position = 0 if data[:4] == ZSTD_MAGIC else first_frame(data)
    size = 0
    while position < len(data) and not stream.eof:
        part = stream.decompress(data[position : position + _SLICE])
        position += _SLICE
        size += len(part)
        if size > max_size:
            raise too_large("zstd", max_size)
        parts.append(part)
    if not stream.eof:
        raise cut_off("zstd")
    end = min(position, len(data)) - len(stream.unused_data)
    if end < len(data):
        parts += read_frames("zstd", data, end, max_size - size, max_size, _next_frame)
    return b"".join(parts)


def _next_frame(data: memoryview, position: int, room: int) -> tuple[bytes, int] | None:
    if bytes(data[position : position + 4]) == ZSTD_MAGIC:
        stream = _decompressor().decompressobj()
        return read_frame(lambda some, _: stream.decompress(some), stream, data, position, room)
    end = end_of_skippable(data, position)
    return None if end is None else (b"", end)

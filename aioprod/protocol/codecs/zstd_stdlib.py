"""zstd with Python's own ``compression.zstd``, from Python 3.14 on."""

from __future__ import annotations

from typing import Final

from compression import zstd

from aioprod.protocol.codecs.faults import ZSTD_MAGIC, Buffer, cut_off, too_large
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames
from aioprod.protocol.codecs.zstd_skippable import end_of_skippable, first_frame

ERRORS: Final = (zstd.ZstdError,)


def compress(data: Buffer, level: int) -> bytes:
    packed: bytes = zstd.ZstdCompressor(level).compress(data, zstd.ZstdCompressor.FLUSH_FRAME)
    return packed


def decompress(data: Buffer, max_size: int) -> bytes:
    if data[:4] != ZSTD_MAGIC:
        data = data[first_frame(data) :]
    stream = zstd.ZstdDecompressor()
    # One byte more than the limit, to detect data that exceeds it.
    found: bytes = stream.decompress(data, max_size + 1)
    if len(found) > max_size:
        raise too_large("zstd", max_size)
    if not stream.eof:
        raise cut_off("zstd")
    if not stream.unused_data:
        return found
    end, room = len(data) - len(stream.unused_data), max_size - len(found)
    return b"".join([found, *read_frames("zstd", data, end, room, max_size, _next_frame)])


def _next_frame(data: memoryview, position: int, room: int) -> tuple[bytes, int] | None:
    if bytes(data[position : position + 4]) == ZSTD_MAGIC:
        stream = zstd.ZstdDecompressor()
        return read_frame(stream.decompress, stream, data, position, room)
    end = end_of_skippable(data, position)
    return None if end is None else (b"", end)

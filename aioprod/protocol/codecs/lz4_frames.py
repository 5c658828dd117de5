"""lz4 with the library lz4."""

from __future__ import annotations

from typing import Final

import lz4.frame  # type: ignore[import-untyped]

from aioprod.protocol.codecs.faults import LZ4_MAGIC, Buffer, cut_off, no_frame
from aioprod.protocol.codecs.frame_sequence import read_frame, read_frames

ERRORS: Final = (RuntimeError, EOFError)
_FIRST_STEP: Final = 256 << 10


def compress(data: Buffer, level: int) -> bytes:
    # Independent blocks of 64 KiB and no checksums; Java's reader refuses linked blocks.
    return bytes(
        lz4.frame.compress(
            data,
            compression_level=level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
    )


def decompress(data: Buffer, max_size: int) -> bytes:
    """Decompress data; may return one byte more than ``max_size``."""
    if data[:4] != LZ4_MAGIC:
        raise no_frame("lz4")
    frame = lz4.frame.LZ4FrameDecompressor()
    # The decompressor allocates the maximum size of its output at once.
    step = max(_FIRST_STEP, 4 * len(data))
    parts = [frame.decompress(data, max_length=min(step, max_size + 1))]
    size = len(parts[0])
    while size <= max_size and not frame.eof:
        if frame.needs_input:
            raise cut_off("lz4")
        part = frame.decompress(b"", max_length=min(step, max_size + 1 - size))
        size += len(part)
        parts.append(part)
    if frame.eof and frame.unused_data:
        end = len(data) - len(frame.unused_data)
        parts += read_frames("lz4", data, end, max_size - size, max_size, _next_frame)
    return b"".join(parts)


def _next_frame(data: memoryview, position: int, room: int) -> tuple[bytes, int] | None:
    if bytes(data[position : position + 4]) != LZ4_MAGIC:
        return None
    frame = lz4.frame.LZ4FrameDecompressor()
    # With a limit, the decompressor would allocate that size for each slice.
    return read_frame(lambda some, _: frame.decompress(some), frame, data, position, room)

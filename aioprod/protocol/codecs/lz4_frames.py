"""lz4 with the library lz4."""

from __future__ import annotations

from typing import Final

import lz4.frame  # type: ignore[import-untyped]

from aioprod.protocol.codecs.faults import (
    LZ4_MAGIC,
    Buffer,
    check_magic,
    cut_off,
    left_over,
)

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
    check_magic("lz4", data, LZ4_MAGIC)
    frame = lz4.frame.LZ4FrameDecompressor()
    # The decompressor allocates all the memory that it may fill at once.
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
        raise left_over("lz4")
    return b"".join(parts)

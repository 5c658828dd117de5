"""Finds the ends of lz4 and zstd frames, and the maximum size of their data, from the sizes of
their blocks. Nothing is decompressed.
"""

from __future__ import annotations

from typing import Final

from aioprod.protocol.codecs.faults import LZ4_MAGIC, ZSTD_MAGIC, cut_off, no_frame
from aioprod.protocol.codecs.zstd_skippable import end_of_skippable, first_frame

_LZ4_DICTIONARY, _LZ4_CHECKSUM, _LZ4_SIZE, _LZ4_BLOCK_CHECKSUM = 0x01, 0x04, 0x08, 0x10
_LZ4_SMALLEST_HEADER: Final = 7
_LZ4_STORED: Final = 1 << 31
_LZ4_RATIO: Final = 255
_ZSTD_BLOCK: Final = 128 << 10


def lz4_sizes(frames: bytes) -> tuple[int, int, int]:
    """Return the start of the first frame, the end of the last complete one, and the maximum size
    of their data. The first frame must be complete.
    """
    if frames[:4] != LZ4_MAGIC:
        raise no_frame("lz4")
    end = most = 0
    while frames[end : end + 4] == LZ4_MAGIC:
        found = lz4_frame(frames, end)
        if found is None:
            break
        end, size = found
        most += size
    if not end:
        raise cut_off("lz4")
    return 0, end, most


def lz4_frame(frames: bytes, start: int) -> tuple[int, int] | None:
    """Return the end of a frame, and the maximum size of its data; None if it is truncated."""
    if len(frames) - start < _LZ4_SMALLEST_HEADER:
        return None
    flags, largest = frames[start + 4], 1 << 8 + 2 * (frames[start + 5] >> 4 & 7)
    position = start + 7 + (8 if flags & _LZ4_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    behind_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    most = 0
    while True:
        size = int.from_bytes(frames[position : position + 4], "little") & ~_LZ4_STORED
        position += 4
        if position > len(frames):
            return None
        if not size:
            break
        position += size + behind_block
        most += min(largest, _LZ4_RATIO * size)
    position += 4 if flags & _LZ4_CHECKSUM else 0
    return (position, most) if position <= len(frames) else None


def zstd_sizes(frames: bytes) -> tuple[int, int, int]:
    """Return the same for zstd (RFC 8878), whose data may contain skippable frames."""
    start = end = first_frame(frames)
    most = 0
    while True:
        if frames[end : end + 4] == ZSTD_MAGIC:
            found = zstd_frame(frames, end)
        else:
            skipped = end_of_skippable(frames, end)
            found = None if skipped is None else (skipped, 0)
        if found is None:
            break
        end, size = found
        most += size
    if end == start:
        raise cut_off("zstd")
    return start, end, most


def zstd_frame(frames: bytes, start: int) -> tuple[int, int] | None:
    """Return the end of a zstd frame, and the maximum size of its data; None if it is truncated."""
    if len(frames) - start < 6:
        return None
    descriptor = frames[start + 4]
    single_segment = descriptor >> 5 & 1
    position = start + 5 + (not single_segment)  # the window
    position += (0, 1, 2, 4)[descriptor & 3]  # the dictionary
    position += (single_segment, 2, 4, 8)[descriptor >> 6]  # the size
    most = last = 0
    while not last:
        header = int.from_bytes(frames[position : position + 3], "little")
        position += 3
        if position > len(frames):
            return None
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        position += 1 if kind == 1 else size
        most += size if kind < 2 else _ZSTD_BLOCK  # stored, one repeated byte, compressed
    position += 4 if descriptor & 4 else 0
    return (position, most) if position <= len(frames) else None

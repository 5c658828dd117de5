"""lz4 and zstd with cramjam, which has no limit on sizes and reads all frames.

So this module reads the sizes of a frame's blocks first, which give the end of the frame and the
largest size of its data. cramjam gets a buffer of that size, within the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cramjam

from aioprod.protocol.codecs.faults import (
    LZ4_MAGIC,
    ZSTD_MAGIC,
    Buffer,
    check_magic,
    cut_off,
    left_over,
    too_large,
)

ERRORS: Final = (cramjam.DecompressionError,)

_LZ4_DICTIONARY, _LZ4_CHECKSUM, _LZ4_SIZE, _LZ4_BLOCK_CHECKSUM = 0x01, 0x04, 0x08, 0x10
#: Independent blocks of 64 KiB without checksums; Java's reader refuses linked blocks.
_LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_STORED: Final = 1 << 31
_LZ4_RATIO: Final = 255
_ZSTD_BLOCK: Final = 128 << 10


def lz4_compress(data: Buffer, level: int) -> bytes:
    # Frames, as cramjam's function for single blocks has no levels (2.14).
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    # Each block has a checksum of 4 bytes behind it, which other clients omit.
    behind_block = 4 if frame[4] & _LZ4_BLOCK_CHECKSUM else 0
    parts, position, size = [_LZ4_HEADER], len(_LZ4_HEADER), -1
    while size:
        size = int.from_bytes(frame[position : position + 4], "little") & ~_LZ4_STORED
        parts.append(frame[position : position + 4 + size])
        position += 4 + size + behind_block
    return b"".join(parts)


def lz4_decompress(data: Buffer, max_size: int) -> bytes:
    frame = bytes(data)
    return _decompress(cramjam.lz4.decompress_into, frame, "lz4", _lz4_most(frame), max_size)


def zstd_compress(data: Buffer, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def zstd_decompress(data: Buffer, max_size: int) -> bytes:
    frame = bytes(data)
    return _decompress(cramjam.zstd.decompress_into, frame, "zstd", _zstd_most(frame), max_size)


def _decompress(
    into: Callable[[bytes, bytearray], int], frame: bytes, codec: str, most: int, max_size: int
) -> bytes:
    plain = bytearray(min(most, max_size + 1))  # pages that are not written cost no memory
    try:
        size = into(frame, plain)
    except cramjam.DecompressionError as error:
        if most > max_size and "whole buffer" in str(error):
            raise too_large(codec, max_size) from error
        raise
    with memoryview(plain) as view:
        return bytes(view[:size])


def _lz4_most(frame: bytes) -> int:
    """Return the largest size of a frame's data; the frame must be all of the bytes."""
    check_magic("lz4", frame, LZ4_MAGIC)
    if len(frame) < len(_LZ4_HEADER):
        raise cut_off("lz4")
    flags, largest = frame[4], 1 << 8 + 2 * (frame[5] >> 4 & 7)
    position = 7 + (8 if flags & _LZ4_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    behind_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    most = 0
    while True:
        size = int.from_bytes(frame[position : position + 4], "little") & ~_LZ4_STORED
        position += 4
        if position > len(frame):
            raise cut_off("lz4")
        if not size:
            break
        position += size + behind_block
        most += min(largest, _LZ4_RATIO * size)
    _check_end("lz4", position + (4 if flags & _LZ4_CHECKSUM else 0), frame)
    return most


def _zstd_most(frame: bytes) -> int:
    """Return the same for zstd (RFC 8878)."""
    check_magic("zstd", frame, ZSTD_MAGIC)
    if len(frame) < 6:
        raise cut_off("zstd")
    descriptor = frame[4]
    single_segment = descriptor >> 5 & 1
    position = 5 + (not single_segment)  # the window
    position += (0, 1, 2, 4)[descriptor & 3]  # the dictionary
    position += (single_segment, 2, 4, 8)[descriptor >> 6]  # the size
    most = last = 0
    while not last:
        header = int.from_bytes(frame[position : position + 3], "little")
        position += 3
        if position > len(frame):
            raise cut_off("zstd")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        position += 1 if kind == 1 else size
        most += size if kind < 2 else _ZSTD_BLOCK  # stored, one repeated byte, compressed
    _check_end("zstd", position + (4 if descriptor & 4 else 0), frame)
    return most


def _check_end(codec: str, end: int, frame: bytes) -> None:
    if end > len(frame):
        raise cut_off(codec)
    if end < len(frame):
        raise left_over(codec)

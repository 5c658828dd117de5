"""lz4 and zstd with the library cramjam, which can't limit the size of the output.

Therefore ``frame_sizes`` first reads the sizes of the blocks of all frames, and computes the end of
the last complete frame and the maximum size of the data. cramjam gets a buffer of that size, within
the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import cramjam

from aioprod.protocol.codecs.faults import LZ4_MAGIC, Buffer, too_large
from aioprod.protocol.codecs.frame_sizes import lz4_sizes, zstd_sizes

ERRORS: Final = (cramjam.DecompressionError,)

_LZ4_BLOCK_CHECKSUM: Final = 0x10
#: Independent blocks of 64 KiB without checksums; Java's reader refuses linked blocks.
_LZ4_HEADER: Final = LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_STORED: Final = 1 << 31


def lz4_compress(data: Buffer, level: int) -> bytes:
    # Compressed as a frame, as cramjam's function for single blocks has no levels (2.14).
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    frame = bytes(compressor.finish())
    # A checksum of 4 bytes follows each block, which other clients omit.
    behind_block = 4 if frame[4] & _LZ4_BLOCK_CHECKSUM else 0
    parts, position, size = [_LZ4_HEADER], len(_LZ4_HEADER), -1
    while size:
        size = int.from_bytes(frame[position : position + 4], "little") & ~_LZ4_STORED
        parts.append(frame[position : position + 4 + size])
        position += 4 + size + behind_block
    return b"".join(parts)


def lz4_decompress(data: Buffer, max_size: int) -> bytes:
    return _decompress(cramjam.lz4.decompress_into, data, "lz4", lz4_sizes, max_size)


def zstd_compress(data: Buffer, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level=level))


def zstd_decompress(data: Buffer, max_size: int) -> bytes:
    return _decompress(cramjam.zstd.decompress_into, data, "zstd", zstd_sizes, max_size)


def _decompress(
    into: Callable[[bytes, bytearray], int],
    data: Buffer,
    codec: str,
    sizes: Callable[[bytes], tuple[int, int, int]],
    max_size: int,
) -> bytes:
    frames = bytes(data)
    start, end, most = sizes(frames)
    if start or end < len(frames):
        frames = frames[start:end]
    plain = bytearray(min(most, max_size + 1))  # pages that are not written use no memory
    try:
        size = into(frames, plain)
    except cramjam.DecompressionError as error:
        if most > max_size and "whole buffer" in str(error):
            raise too_large(codec, max_size) from error
        raise
    with memoryview(plain) as view:
        return bytes(view[:size])

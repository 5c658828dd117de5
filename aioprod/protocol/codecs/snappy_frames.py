"""snappy with the library cramjam, in the framing of snappy-java (xerial), which Kafka's clients
expect.
"""

from __future__ import annotations

from typing import Final

import cramjam

from aioprod.errors import CorruptRecordError
from aioprod.protocol.codecs.faults import Buffer, cut_off, too_large
from aioprod.varints import read_uvarint

ERRORS: Final = (cramjam.DecompressionError,)

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_LENGTH: Final = 4  # bytes of a block's length
_XERIAL_BLOCK_SIZE: Final = 32 << 10
_SNAPPY_RATIO: Final = 22  # three bytes can encode a copy of 64 bytes


def compress(data: Buffer, _: int) -> bytes:
    parts = [_XERIAL_HEADER]
    with memoryview(data) as view:
        for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
            parts.append(len(block).to_bytes(4, "big"))
            parts.append(block)
    return b"".join(parts)


def decompress(data: Buffer, max_size: int) -> bytes:
    data = bytes(data)
    if not data.startswith(_XERIAL_MAGIC):
        return _block(data, max_size, max_size)
    blocks: list[bytes] = []
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise cut_off("snappy")
    room = max_size
    while len(data) - position >= _XERIAL_LENGTH:  # as in Java's reader, which ignores fewer bytes
        start = position + _XERIAL_LENGTH
        if data[position:start] == _XERIAL_MAGIC[:_XERIAL_LENGTH]:
            # The header of another stream, which is skipped.
            start = position + len(_XERIAL_HEADER)
            if start > len(data):
                raise cut_off("snappy")
            if not data.startswith(_XERIAL_MAGIC, position):
                break
            position = start
            continue
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise cut_off("snappy")
        block = _block(data[start:position], room, max_size)
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _block(block: bytes, room: int, max_size: int) -> bytes:
    # The block begins with its uncompressed size, which is checked before memory is allocated.
    try:
        size, _ = read_uvarint(block, 0, 32)
    except IndexError:
        raise cut_off("snappy") from None
    if size > room:
        raise too_large("snappy", max_size)
    if size > _SNAPPY_RATIO * len(block):
        raise CorruptRecordError(
            f"snappy block of {len(block)} bytes claims to decompress to {size} bytes"
        )
    return bytes(cramjam.snappy.decompress_raw(block))

"""Reads lz4 frames whose size or checksum of the content is wrong.

Java's reader ignores both, so brokers accept such frames, but the libraries refuse them. The
checksum of the batch detects corruption anyway.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from aioprod.protocol.codecs.faults import LZ4_MAGIC, Buffer

_CHECKSUM, _SIZE, _DICTIONARY = 0x04, 0x08, 0x01
_SIZE_BYTES: Final = 8
_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1  # of XXH32


def decompress(
    by_library: Callable[[Buffer, int], bytes],
    errors: tuple[type[Exception], ...],
    data: Buffer,
    max_size: int,
) -> bytes:
    """Decompress data with a library. If it refuses the data, try again without the checks."""
    try:
        return by_library(data, max_size)
    except errors:
        unchecked = _without_checks(bytes(data))
        if unchecked is None:
            raise
        return by_library(unchecked, max_size)


def _without_checks(frame: bytes) -> bytes | None:
    """Return a frame without the size and checksum of its content; None if it has neither, or its
    header is invalid. The checksum's bytes remain after the frame, where readers ignore them.
    """
    flags = frame[4] if len(frame) > 4 else 0
    end = 6 + (_SIZE_BYTES if flags & _SIZE else 0)
    if (
        not flags & (_CHECKSUM | _SIZE)
        or flags & _DICTIONARY
        or frame[end : end + 1] != _header_checksum(frame[4:end])
    ):
        return None
    header = bytes((flags & ~(_CHECKSUM | _SIZE), frame[5]))
    return b"".join((LZ4_MAGIC, header, _header_checksum(header), frame[end + 1 :]))


def with_header_checksum(frame: bytes) -> bytes:
    """Return a frame with the correct checksum of its header."""
    end = 6 + (_SIZE_BYTES if len(frame) > 4 and frame[4] & _SIZE else 0)
    if len(frame) <= end:
        return frame
    return b"".join((frame[:end], _header_checksum(frame[4:end]), frame[end + 1 :]))


def _header_checksum(header: bytes) -> bytes:
    """Return the second byte of XXH32 (seed 0) of fewer than 16 bytes."""
    whole = len(header) & ~3
    state = _PRIMES[4] + len(header)
    for (word,) in struct.iter_unpack("<I", header[:whole]):
        state = _rotated(state + word * _PRIMES[2], 17) * _PRIMES[3]
    for byte in header[whole:]:
        state = _rotated(state + byte * _PRIMES[4], 11) * _PRIMES[0]
    state &= _MASK
    state = (state ^ state >> 15) * _PRIMES[1] & _MASK
    state = (state ^ state >> 13) * _PRIMES[2] & _MASK
    return bytes(((state ^ state >> 16) >> 8 & 0xFF,))


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return number << bits | number >> 32 - bits

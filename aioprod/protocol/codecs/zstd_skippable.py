"""Skippable frames of zstd, which contain no data (RFC 8878, 3.1.2)."""

from __future__ import annotations

from typing import Final

from aioprod.protocol.codecs.faults import ZSTD_MAGIC, Buffer, no_frame

_HEADER: Final = 8


def begins_skippable(data: Buffer) -> bool:
    """Return whether the data begins with the magic number of a skippable frame."""
    return len(data) >= 4 and data[0] & 0xF0 == 0x50 and data[1:4] == b"\x2a\x4d\x18"


def end_of_skippable(data: Buffer, position: int) -> int | None:
    """Return the end of the skippable frame at ``position``; None if there is none, or it is
    truncated.
    """
    start = position + _HEADER
    if (
        start > len(data)
        or data[position] & 0xF0 != 0x50
        or data[position + 1 : position + 4] != b"\x2a\x4d\x18"
    ):
        return None
    end = start + int.from_bytes(data[position + 4 : start], "little")
    return end if end <= len(data) else None


def first_frame(data: Buffer) -> int:
    """Return the position of the first frame with data.

    Raises:
        CorruptRecordError: if there is none.
    """
    position = 0
    while data[position : position + 4] != ZSTD_MAGIC:
        end = end_of_skippable(data, position)
        if end is None:
            raise no_frame("zstd")
        position = end
    return position

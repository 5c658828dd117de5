"""Reads compressed data that consists of several frames.

Brokers accept what Java's libraries read: zstd data of several frames, and gzip data of several
members (RFC 8878 and RFC 1952 allow both), followed by other bytes. The first frame must be
complete; bytes after it that are not another complete frame are ignored. The number of records in
the batch shows whether data is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aioprod.protocol.codecs.faults import Buffer, too_large

# Size of a slice: small, as libraries copy the rest of a slice after a frame's end, and the output
# of a step can be 32,000 times as large as its slice.
_FIRST_SLICE: Final = 64
_LARGEST_SLICE: Final = 4 << 10


class Stream(Protocol):
    """A library's decompressor of one frame.

    Attributes:
        eof: True if the frame's end was reached.
        unused_data: the input after the frame's end, or None.
    """

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes | None: ...


def read_frame(
    step: Callable[[memoryview, int], bytes],
    stream: Stream,
    data: memoryview,
    position: int,
    room: int,
) -> tuple[bytes, int] | None:
    """Return the content of the frame at ``position`` and its end; None if it is truncated. If the
    content is larger than ``room``, at least one byte more than that is returned.

    Args:
        step: decompresses some bytes; to at most the given size if the library supports a limit.
        stream: the decompressor that ``step`` uses.
    """
    parts: list[bytes] = []
    size = _FIRST_SLICE
    while not stream.eof and room >= 0:
        if position >= len(data):
            return None
        with data[position : position + size] as some:
            parts.append(step(some, room + 1))
            position += len(some) - len(stream.unused_data or b"")
        room -= len(parts[-1])
        size = min(2 * size, _LARGEST_SLICE)
    return b"".join(parts), position


def read_frames(
    codec: str,
    data: Buffer,
    position: int,
    room: int,
    max_size: int,
    read: Callable[[memoryview, int, int], tuple[bytes, int] | None],
) -> list[bytes]:
    """Return the contents of the complete frames from ``position`` on.

    Args:
        room: limit on the total size of their contents.
        max_size: limit on the size of all data, for the error.
        read: returns the content of the frame at a position, and its end, as `read_frame` does;
            None if there is no complete frame.

    Raises:
        CorruptRecordError: if the contents are larger than ``room``.
    """
    parts: list[bytes] = []
    with memoryview(data) as view:
        while position < len(view) and (found := read(view, position, room)) is not None:
            plain, position = found
            room -= len(plain)
            if room < 0:
                raise too_large(codec, max_size)
            parts.append(plain)
    return parts

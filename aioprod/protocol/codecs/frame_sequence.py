"""Reads compressed data of several frames, one after another.

Brokers store what Java's libraries read: zstd data of several frames, and gzip data of several
members (RFC 8878 and RFC 1952 allow both), with other bytes behind them. So the first frame must be
complete; what follows and is not another complete frame is ignored. The number of records in the
batch says whether something is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from aioprod.protocol.codecs.faults import Buffer, too_large

# A frame ends anywhere in a slice, and libraries copy what is behind its end. A step's output can
# be 32,000 times as large as its slice.
_FIRST_SLICE: Final = 64
_LARGEST_SLICE: Final = 4 << 10


class Stream(Protocol):
    """A library's decompressor of one frame.

    Attributes:
        eof: whether the frame's end was reached.
        unused_data: the given bytes behind its end; None for none.
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
    """Return the content of the frame at ``position``, at least one byte more than ``room`` if it
    is larger, and its end; None if it is cut off.

    Args:
        step: decompresses some bytes, to at most the given size if the library has such a limit.
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
        room: the limit on the size of their contents.
        max_size: the limit on the whole data, for the error.
        read: returns the content of the frame at a position and its end, as `read_frame` does; None
            if there is no complete frame.

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

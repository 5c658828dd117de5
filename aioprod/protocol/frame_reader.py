"""Cuts a stream of bytes into frames, for either side of a connection.

Bytes in, frames out: no socket, clock or event loop. A frame is a request or a
reply, without the 4 bytes of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aioprod.errors import ProtocolError

#: A reply has at least its correlation id, a request its API key and version.
MIN_FRAME_BYTES = 4
_BUFFER_BYTES = 64 * 1024
# A frame gets memory for this many bytes at once, and for more as they arrive: a peer that only
# announces a size must not make this process allocate half a gigabyte.
_GROWTH_BYTES = 64 * 1024 * 1024
_SIZE = struct.Struct(">i")


class FrameSizeError(ProtocolError):
    """A frame has a size that is not allowed, so the rest of the stream can't be decoded.

    Attributes:
        size: in bytes, as the peer announced it.
        max_frame_bytes: the largest size that is allowed.
    """

    def __init__(self, size: int, max_frame_bytes: int) -> None:
        super().__init__(
            f"the peer announced a frame of {size} bytes: must be from {MIN_FRAME_BYTES} to "
            f"{max_frame_bytes}"
        )
        self.size = size
        self.max_frame_bytes = max_frame_bytes


class FrameReader:
    """Provides buffers for a socket, and returns the complete frames.

    Small frames share a buffer, from which each is copied once. The bytes of a large frame are
    received in the frame itself, except for those that arrive together with its size.

    Args:
        max_frame_bytes: the largest size to accept; may be changed at any time.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_filling_frame",
        "_frame",
        "_leftover",
        "_lent",
        "_size",
        "max_frame_bytes",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._leftover = 0  # bytes of an incomplete size at the start of the buffer
        self._frame: bytearray | None = None  # incomplete
        self._size = 0  # of that frame
        self._filled = 0
        self._filling_frame = False  # the buffer that was lent last is the frame's
        self._lent: memoryview | None = None  # of a frame; the last one

    def get_buffer(self) -> memoryview:
        """Return memory to put the next bytes into; report them to :meth:`received`."""
        frame = self._frame
        self._filling_frame = frame is not None and self._size - self._filled >= _BUFFER_BYTES
        if frame is None or not self._filling_frame:
            return self._buffer[self._leftover :]
        self._grow(frame, self._filled + 1)
        self._lent = lent = memoryview(frame)[self._filled :]
        return lent

    def received(self, count: int) -> Iterator[bytes | bytearray]:
        """Return the frames that are complete now that ``count`` more bytes are in the buffer.

        Raises:
            FrameSizeError: if a size is not allowed; after the frames before it were returned.
        """
        if self._filling_frame:
            self._filled += count
            if self._filled == self._size:
                yield self._take_frame()
            return
        end = self._leftover + count
        self._leftover = position = 0
        if self._frame is not None:
            position = self._continue_frame(self._frame, end)
            if self._filled == self._size:
                yield self._take_frame()
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(self._buffer, position)
            if not MIN_FRAME_BYTES <= size <= self.max_frame_bytes:
                raise FrameSizeError(size, self.max_frame_bytes)
            start, position = position + 4, position + 4 + size
            if position > end:
                self._begin_frame(size, start, end)
                return
            yield bytes(self._buffer[start:position])
        self._leftover = end - position
        if self._leftover:
            self._buffer[: self._leftover] = bytes(self._buffer[position:end])

    def _begin_frame(self, size: int, start: int, end: int) -> None:
        self._frame = bytearray(min(size, _GROWTH_BYTES))
        self._size, self._filled = size, end - start
        self._frame[: self._filled] = self._buffer[start:end]

    def _continue_frame(self, frame: bytearray, end: int) -> int:
        count = min(end, self._size - self._filled)
        filled = self._filled + count
        self._grow(frame, filled)
        frame[self._filled : filled] = self._buffer[:count]
        self._filled = filled
        return count

    def _grow(self, frame: bytearray, needed: int) -> None:
        if len(frame) < needed:
            if self._lent is not None:
                # Windows' event loop still refers to it, and a frame with views can't grow.
                self._lent.release()
            frame.extend(bytes(min(self._size - len(frame), _GROWTH_BYTES)))

    def _take_frame(self) -> bytearray:
        frame, self._frame, self._lent = self._frame, None, None
        assert frame is not None
        return frame

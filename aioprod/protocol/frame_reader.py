"""Cuts a stream of bytes into frames, for either side of a connection.

Bytes in, frames out: no socket, clock or event loop. A frame is a request or a
reply, without the 4 bytes of its size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import BytesLike

#: A reply has at least its correlation id, a request its API key and version.
MIN_FRAME_BYTES = 4
_BUFFER_BYTES = 64 * 1024
# A frame gets memory for this many bytes at once, and for more as they arrive: a peer that only
# announces a size must not make this process allocate half a gigabyte.
_GROWTH_BYTES = 64 * 1024 * 1024
# Blocks of memory that a connection keeps for large frames: one is read while another is filled and
# a third one waits.
_BLOCKS = 3
# A block serves frames down to this part of its size, since the frame keeps its whole memory.
_LARGEST_BLOCK = 4
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
    received in the frame itself, except for those that arrive together with its size. It is a view
    of a block of memory that is used again once the frame and all views of it are gone: new memory
    costs more time than receiving the bytes, since the kernel clears each page. A small frame means
    that the stream of large ones is over, and the blocks are dropped.

    Args:
        max_frame_bytes: the largest size to accept; may be changed at any time.
    """

    __slots__ = (
        "_blocks",
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
        self._blocks: list[bytearray] = []

    def get_buffer(self) -> memoryview:
        """Return memory to put the next bytes into; report them to :meth:`received`."""
        frame = self._frame
        self._filling_frame = frame is not None and self._size >= _BUFFER_BYTES
        if frame is None or not self._filling_frame:
            return self._buffer[self._leftover :]
        self._grow(frame, self._filled + 1)
        self._lent = lent = memoryview(frame)[self._filled : self._size]
        return lent

    def received(self, count: int) -> Iterator[BytesLike]:
        """Return the frames that are complete now that ``count`` more bytes are in the buffer.

        Large frames are read-only views: a reference to part of one keeps its whole memory.

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
            if self._blocks:
                self._blocks.clear()
            yield bytes(self._buffer[start:position])
        self._leftover = end - position
        if self._leftover:
            self._buffer[: self._leftover] = bytes(self._buffer[position:end])

    def close(self) -> None:
        """Release the memory for large frames: no more bytes come."""
        self._blocks.clear()
        self._frame = self._lent = None

    def _begin_frame(self, size: int, start: int, end: int) -> None:
        self._frame = frame = self._memory(size)
        self._size, self._filled = size, end - start
        frame[: self._filled] = self._buffer[start:end]

    def _memory(self, size: int) -> bytearray:
        """Return memory for a frame, or for its beginning."""
        if size < _BUFFER_BYTES or size > _GROWTH_BYTES:
            return bytearray(min(size, _GROWTH_BYTES))
        for block in self._blocks:
            if size <= len(block) <= _LARGEST_BLOCK * size and _is_free(block):
                return block
        # Rounded up, as the sizes of full responses differ by a few bytes.
        block = bytearray(-(-size // _BUFFER_BYTES) * _BUFFER_BYTES)
        self._blocks = [block, *self._blocks[: _BLOCKS - 1]]
        return block

    def _continue_frame(self, frame: bytearray, end: int) -> int:
        count = min(end, self._size - self._filled)
        filled = self._filled + count
        frame[self._filled : filled] = self._buffer[:count]
        self._filled = filled
        return count

    def _grow(self, frame: bytearray, needed: int) -> None:
        if len(frame) < needed:
            if self._lent is not None:
                # Windows' event loop still refers to it, and a frame with views can't grow.
                self._lent.release()
            frame.extend(bytes(min(self._size - len(frame), _GROWTH_BYTES)))

    def _take_frame(self) -> BytesLike:
        frame, self._frame, self._lent = self._frame, None, None
        assert frame is not None
        if self._size < _BUFFER_BYTES:
            return frame
        return memoryview(frame)[: self._size].toreadonly()


def _is_free(block: bytearray) -> bool:
    """Return whether no view refers to the memory: only then its size may change."""
    try:
        block.append(block.pop())
    except BufferError:
        return False
    return True

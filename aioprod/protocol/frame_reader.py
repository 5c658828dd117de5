"""Splits a stream of bytes into frames, for either side of a connection.

Bytes in, frames out: no socket, clock or event loop. A frame is a request or a reply without the
4-byte size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from aioprod.errors import ProtocolError
from aioprod.protocol.primitives import BytesLike

#: A reply contains at least its correlation id, a request its API key and version.
MIN_FRAME_BYTES = 4
_BUFFER_BYTES = 64 * 1024
# Initial memory of a frame, which grows as bytes arrive: a peer must not make this process allocate
# half a gigabyte by announcing that size.
_GROWTH_BYTES = 64 * 1024 * 1024
# Number of memory blocks that a connection keeps for large frames: one is being read, one waits to
# be read, and one is being filled.
_BLOCKS = 3
# A block is only used for frames of at least this fraction of its size, since a frame keeps the
# whole block in memory.
_LARGEST_BLOCK = 4
_SIZE = struct.Struct(">i")


class FrameSizeError(ProtocolError):
    """The size of a frame is not allowed, so the rest of the stream can't be decoded.

    Attributes:
        size: the size that the peer announced, in bytes.
        max_frame_bytes: the largest allowed size.
    """

    def __init__(self, size: int, max_frame_bytes: int) -> None:
        super().__init__(
            f"the peer announced a frame of {size} bytes: must be from {MIN_FRAME_BYTES} to "
            f"{max_frame_bytes}"
        )
        self.size = size
        self.max_frame_bytes = max_frame_bytes


class FrameReader:
    """Provides buffers for a socket, and returns complete frames.

    Small frames share a buffer, from which each one is copied once. The bytes of a large frame are
    received directly into it, except for those that arrive together with its size. The frame is a
    view of a memory block, which is reused once the frame and all views of it are deleted: new
    memory costs more time than receiving the bytes, since the kernel clears each page. After a
    small frame, further large ones are not expected, and the blocks are freed.

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
        self.max_frame_bytes: int = max_frame_bytes
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._leftover = 0  # number of bytes of an incomplete size at the start of the buffer
        self._frame: bytearray | None = None  # incomplete
        self._size = 0  # of the incomplete frame
        self._filled = 0
        self._filling_frame = False  # whether ``get_buffer`` has returned memory of the frame
        self._lent: memoryview | None = None  # of a frame; the last one
        self._blocks: list[bytearray] = []

    def get_buffer(self) -> memoryview:
        """Return a buffer for the next bytes, whose number is then passed to :meth:`received`."""
        frame = self._frame
        self._filling_frame = frame is not None and self._size >= _BUFFER_BYTES
        if frame is None or not self._filling_frame:
            return self._buffer[self._leftover :]
        if len(frame) == self._filled:
            self._grow(frame)
        self._lent = lent = memoryview(frame)[self._filled : self._size]
        return lent

    def single(self, count: int) -> bytes | None:
        """Return the frame that is complete now that ``count`` more bytes are in the buffer, if
        there is nothing else in it: the reply to a request that was sent alone. Else return
        None; then call :meth:`received`.
        """
        if self._leftover or self._frame is not None or count < 4 + MIN_FRAME_BYTES:
            return None
        buffer = self._buffer
        (size,) = _SIZE.unpack_from(buffer)
        if size != count - 4 or size > self.max_frame_bytes:
            return None
        if self._blocks:
            self._blocks.clear()
        return bytes(buffer[4:count])

    def received(self, count: int) -> Iterable[BytesLike]:
        """Return the frames that are completed by ``count`` more bytes in the buffer.

        Large frames are read-only views: a reference to a part keeps the whole block in memory.

        Raises:
            FrameSizeError: if a size is not allowed, after the frames before it were returned.
        """
        if not self._filling_frame:
            return self._received_small(count)
        self._filled += count
        return () if self._filled < self._size else (self._take_frame(),)

    def _received_small(self, count: int) -> Iterator[BytesLike]:
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
        """Release the memory for large frames. Called when no more bytes will be received."""
        self._blocks.clear()
        self._frame = self._lent = None

    def _begin_frame(self, size: int, start: int, end: int) -> None:
        self._frame = frame = self._memory(size)
        self._size, self._filled = size, end - start
        frame[: self._filled] = self._buffer[start:end]

    def _memory(self, size: int) -> bytearray:
        """Return memory for a frame, or for its first bytes."""
        if size < _BUFFER_BYTES or size > _GROWTH_BYTES:
            return bytearray(min(size, _GROWTH_BYTES))
        for block in self._blocks:
            if size <= len(block) <= _LARGEST_BLOCK * size and _is_free(block):
                return block
        # Rounded up, as the sizes of full responses differ by a few bytes.
        block = bytearray(-(-size // _BUFFER_BYTES) * _BUFFER_BYTES)
        # Smaller blocks are outgrown. With glibc, freeing one also raises the size from which freed
        # memory is returned to the system: large records would get new pages in each call.
        kept = [other for other in self._blocks if len(other) >= len(block)]
        self._blocks = [block, *kept[: _BLOCKS - 1]]
        return block

    def _continue_frame(self, frame: bytearray, end: int) -> int:
        count = min(end, self._size - self._filled)
        filled = self._filled + count
        frame[self._filled : filled] = self._buffer[:count]
        self._filled = filled
        return count

    def _grow(self, frame: bytearray) -> None:
        if self._lent is not None:
            # The event loop on Windows still refers to it, and a bytearray with views can't grow.
            self._lent.release()
        frame.extend(bytes(min(self._size - len(frame), _GROWTH_BYTES)))

    def _take_frame(self) -> BytesLike:
        frame, self._frame, self._lent = self._frame, None, None
        assert frame is not None
        if self._size < _BUFFER_BYTES:
            return frame
        return memoryview(frame)[: self._size].toreadonly()


def _is_free(block: bytearray) -> bool:
    """Return whether no view refers to the memory. Otherwise, resizing raises BufferError."""
    try:
        block.append(block.pop())
    except BufferError:
        return False
    return True

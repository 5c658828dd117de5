"""Frames: a stream is cut into the same frames wherever its bytes are divided."""

from __future__ import annotations

import struct

from fuzz.running import instrumented, run

with instrumented(__name__):
    from aioprod.protocol.frame_reader import MIN_FRAME_BYTES, FrameReader, FrameSizeError

_MOST = 200_000
_SIZE = struct.Struct(">i")


def TestOneInput(data: bytes) -> None:
    """Take the sizes of the pieces from the first 8 bytes, the stream from the others."""
    sizes, stream = [1 + each * each for each in data[:8]] or [1], _stream(data[8:])
    assert _read(sizes, stream) == _expected(stream)


def _stream(data: bytes) -> bytes:
    """Frames of any size from 3 bytes each, and bytes as they are."""
    parts, place = [], 0
    while place < len(data):
        number = int.from_bytes(data[place : place + 3], "big")
        place += 3
        if number & 1:
            size = number % (_MOST + 2)
            parts.append(_SIZE.pack(size) + bytes((number & 0xFF,)) * size)
        else:
            count = number % 64
            parts.append(data[place : place + count])
            place += count
    return b"".join(parts)


def _expected(stream: bytes) -> tuple[list[bytes], bool]:
    """Return the frames, and whether a size after them is refused."""
    frames: list[bytes] = []
    place = 0
    while len(stream) - place >= 4:
        (size,) = _SIZE.unpack_from(stream, place)
        if not MIN_FRAME_BYTES <= size <= _MOST:
            return frames, True
        if len(stream) - place - 4 < size:
            break
        frames.append(stream[place + 4 : place + 4 + size])
        place += 4 + size
    return frames, False


def _read(sizes: list[int], stream: bytes) -> tuple[list[bytes], bool]:
    reader = FrameReader(_MOST)
    frames: list[bytes] = []
    place = turn = 0
    while place < len(stream):
        buffer = reader.get_buffer()
        piece = stream[place : place + min(len(buffer), sizes[turn % len(sizes)] * (1 + turn))]
        buffer[: len(piece)] = piece
        try:
            for frame in reader.received(len(piece)):
                frames.append(bytes(frame))  # a list of all would be lost with the error
        except FrameSizeError:
            return frames, True
        place, turn = place + len(piece), turn + 1
    return frames, False


def seeds() -> list[bytes]:
    """Return streams of short and long frames, divided in several ways."""
    pieces = (b"\0\1\2\3\4\5\6\7", b"\xff" * 8, b"\x10\xff\x03\x40\x01\x80\x20\x08")
    streams = (
        b"\0\0\x0c\0\0\0\x08abcdefgh",
        b"\0\x01\x01\0\x01\x01\0\0\x05",
        b"\0\xff\xff\x02\xff\xff\0\0\x09",
        b"\x01\x86\xa1" * 6,
    )
    return [each + stream for each in pieces for stream in streams]


if __name__ == "__main__":
    run(TestOneInput, seeds())

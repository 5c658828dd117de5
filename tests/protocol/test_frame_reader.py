"""A stream of bytes gives the same frames, whatever pieces it arrives in."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioprod.errors import ProtocolError
from aioprod.net.bounds import MAX_REPLY_BYTES
from aioprod.protocol import frame_reader
from aioprod.protocol.frame_reader import MIN_FRAME_BYTES, FrameReader, FrameSizeError
from aioprod.protocol.framing import decode_response, encode_request, encode_response
from aioprod.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aioprod.protocol.primitives import BytesLike
from aioprod.protocol.request_headers import decode_request_header
from aioprod.testing.broker.connection import MAX_FRAME_BYTES

VERSION = MetadataRequest.MAX_VERSION
BUFFER_BYTES = 64 * 1024
# Around the size of the buffer that small frames share.
SIZES = st.one_of(
    st.integers(MIN_FRAME_BYTES, 50),
    st.sampled_from(
        [BUFFER_BYTES - 5, BUFFER_BYTES - 4, BUFFER_BYTES, BUFFER_BYTES + 1, 2 * BUFFER_BYTES + 9]
    ),
)


def receive(reader: FrameReader, data: bytes) -> Iterator[bytes]:
    """Pass a piece of the stream to a reader, as a socket does."""
    return map(bytes, reader_frames(reader, data))


def reader_frames(reader: FrameReader, data: bytes) -> Iterator[BytesLike]:
    rest = memoryview(data)
    while rest:
        with reader.get_buffer() as buffer:
            count = min(len(buffer), len(rest))
            assert count
            buffer[:count] = rest[:count]
        single = reader.single(count)
        yield from reader.received(count) if single is None else (single,)
        rest = rest[count:]


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def frame_of(size: int, number: int) -> bytes:
    return bytes([number % 256]) * size


@given(sizes=st.lists(SIZES, max_size=8), cuts=st.lists(st.integers(0, 1 << 20), max_size=12))
def test_any_cut_of_the_stream_gives_the_same_frames(sizes: list[int], cuts: list[int]) -> None:
    check_frames(sizes, cuts)


def check_frames(sizes: list[int], cuts: list[int]) -> None:
    frames = [frame_of(size, number) for number, size in enumerate(sizes)]
    reader = FrameReader(MAX_FRAME_BYTES)
    received = [frame for piece in pieces(framed(frames), cuts) for frame in receive(reader, piece)]
    assert received == frames


def test_a_stream_that_comes_byte_by_byte() -> None:
    frames = [frame_of(size, size) for size in (4, 5, 300)]
    reader = FrameReader(MAX_FRAME_BYTES)
    data = framed(frames)
    received = [frame for byte in data for frame in receive(reader, bytes([byte]))]
    assert received == frames


@given(
    names=st.lists(st.text(st.characters(codec="ascii"), max_size=300), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 1 << 12), max_size=12),
)
def test_both_directions_of_a_connection(names: list[str], cuts: list[int]) -> None:
    """The broker reads the requests that the client wrote, the client the replies."""
    requests = [MetadataRequest([MetadataRequestTopic(name=name)]) for name in names]
    reader = FrameReader(MAX_FRAME_BYTES)
    replies = b""
    stream = b"".join(
        encode_request(request, VERSION, number, "c") for number, request in enumerate(requests)
    )
    for piece in pieces(stream, cuts):
        for frame in receive(reader, piece):
            header = decode_request_header(frame)
            request = MetadataRequest.decode(frame[header.body_offset :], header.api_version)
            assert request == requests[header.correlation_id]
            reply = MetadataResponse(cluster_id=names[header.correlation_id])
            replies += encode_response(reply, VERSION, header.correlation_id)
    reader = FrameReader(MAX_REPLY_BYTES)
    answers = [
        decode_response(MetadataRequest, VERSION, frame)
        for piece in pieces(replies, cuts)
        for frame in receive(reader, piece)
    ]
    assert [(number, answer.cluster_id) for number, answer in answers] == list(enumerate(names))


@pytest.mark.parametrize("limit", [MAX_FRAME_BYTES, MAX_REPLY_BYTES, 10])
@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, MIN_FRAME_BYTES - 1, None])
def test_sizes_that_are_not_allowed(limit: int, size: int | None) -> None:
    announced = limit + 1 if size is None else size
    reader = FrameReader(limit)
    good = framed([b"good"])
    received = []
    with pytest.raises(FrameSizeError, match=f"a frame of {announced} bytes") as caught:
        for frame in receive(reader, good + announced.to_bytes(4, "big", signed=True)):
            received.append(frame)
    assert received == [b"good"], "the frames before it are not lost"
    assert isinstance(caught.value, ProtocolError)
    assert (caught.value.size, caught.value.max_frame_bytes) == (announced, limit)


def test_the_limit_may_grow() -> None:
    reader = FrameReader(4)
    assert list(receive(reader, framed([b"four"]))) == [b"four"]
    reader.max_frame_bytes = 5
    assert list(receive(reader, framed([b"fives"]))) == [b"fives"]


def test_a_size_alone_costs_no_memory() -> None:
    """The peer has to send what it announces before there is memory for it."""
    tracemalloc.start()
    try:
        reader = FrameReader(MAX_REPLY_BYTES)
        assert list(receive(reader, MAX_REPLY_BYTES.to_bytes(4, "big") + bytes(100))) == []
        assert len(reader.get_buffer()) < 80 * 1024 * 1024
        assert tracemalloc.get_traced_memory()[1] < 80 * 1024 * 1024
    finally:
        tracemalloc.stop()


@given(
    sizes=st.lists(st.integers(BUFFER_BYTES, 8 * BUFFER_BYTES), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 1 << 21), max_size=12),
    growth=st.integers(BUFFER_BYTES, 3 * BUFFER_BYTES),
)
def test_frames_that_get_their_memory_in_portions(
    sizes: list[int], cuts: list[int], growth: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame_reader, "_GROWTH_BYTES", growth)
        check_frames(sizes, cuts)


class _Frames(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.reader = FrameReader(MAX_REPLY_BYTES)
        self.frames: list[bytes] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.frames += map(bytes, self.reader.received(nbytes))


def test_a_frame_grows_while_the_loop_refers_to_its_last_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The proactor event loop of Windows reads by this function."""
    monkeypatch.setattr(frame_reader, "_GROWTH_BYTES", 2 * BUFFER_BYTES)
    protocol = _Frames()
    frame = bytes(range(256)) * (9 * BUFFER_BYTES // 256)
    feed: Callable[[asyncio.BufferedProtocol, bytes], None]
    feed = asyncio.protocols._feed_data_to_buffered_proto  # type: ignore[attr-defined]
    for piece in pieces(framed([frame]), range(0, 9 * BUFFER_BYTES, 5 * BUFFER_BYTES // 2)):
        feed(protocol, piece)
    assert protocol.frames == [frame]


def large_frame(reader: FrameReader, size: int, byte: bytes = b"x") -> memoryview:
    (frame,) = reader_frames(reader, framed([byte * size]))
    assert isinstance(frame, memoryview)
    assert frame == byte * size
    return frame


def test_the_memory_of_a_large_frame_is_used_again_once_all_views_are_gone() -> None:
    reader = FrameReader(MAX_REPLY_BYTES)
    first = large_frame(reader, 2 * BUFFER_BYTES)
    memory, part = first.obj, first[7:9]
    del first
    second = large_frame(reader, 2 * BUFFER_BYTES, b"y")
    assert second.obj is not memory
    assert bytes(part) == b"xx"
    part.release()
    assert large_frame(reader, 2 * BUFFER_BYTES - 9, b"z").obj is memory
    assert second == b"y" * (2 * BUFFER_BYTES)


def test_a_small_frame_is_not_received_in_a_large_block() -> None:
    """Its whole memory would be kept by the small frame."""
    reader = FrameReader(MAX_REPLY_BYTES)
    memory = large_frame(reader, 9 * BUFFER_BYTES).obj
    assert large_frame(reader, 2 * BUFFER_BYTES).obj is not memory


def test_memory_for_large_frames_is_limited_and_not_kept_after_a_small_frame() -> None:
    reader = FrameReader(MAX_REPLY_BYTES)
    size = 16 * BUFFER_BYTES
    tracemalloc.start()
    try:
        frames = [large_frame(reader, size) for _ in range(6)]
        assert tracemalloc.get_traced_memory()[0] > 6 * size
        frames.clear()
        assert tracemalloc.get_traced_memory()[0] < 4 * size
        assert list(receive(reader, framed([b"small"]))) == [b"small"]
        assert tracemalloc.get_traced_memory()[0] < size
    finally:
        tracemalloc.stop()


def test_blocks_that_frames_outgrow_are_not_kept() -> None:
    reader = FrameReader(MAX_REPLY_BYTES)
    size = 16 * BUFFER_BYTES
    tracemalloc.start()
    try:
        for times in (1, 2, 4):
            large_frame(reader, times * size)
            assert tracemalloc.get_traced_memory()[0] < (times + 1) * size
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("received", [0, BUFFER_BYTES, 17 * BUFFER_BYTES])
def test_a_closed_reader_keeps_no_large_frames(received: int) -> None:
    reader = FrameReader(MAX_REPLY_BYTES)
    size = 16 * BUFFER_BYTES
    tracemalloc.start()
    try:
        large_frame(reader, size)
        list(receive(reader, framed([bytes(2 * size)])[:received]))
        assert tracemalloc.get_traced_memory()[0] > size
        reader.close()
        assert tracemalloc.get_traced_memory()[0] < size
    finally:
        tracemalloc.stop()


def test_the_bytes_of_a_large_frame_are_received_where_they_stay() -> None:
    size = 10 * BUFFER_BYTES
    reader = FrameReader(MAX_REPLY_BYTES)
    assert list(receive(reader, size.to_bytes(4, "big") + b"start")) == []
    buffer = reader.get_buffer()
    assert len(buffer) == size - 5
    buffer[:] = b"x" * len(buffer)
    (frame,) = reader.received(len(buffer))
    assert isinstance(frame, memoryview) and frame.readonly
    assert frame.obj is buffer.obj
    assert frame == b"start" + b"x" * (size - 5)

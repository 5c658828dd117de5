"""Replies arrive whole from a real socket, on asyncio and uvloop, whatever pieces they come in and
however the stream ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod.errors import ProtocolError
from aioprod.net.stream import Stream
from aioprod.protocol.frame_reader import FrameSizeError
from aioprod.protocol.primitives import BytesLike
from tests import loops
from tests.waiting import until

MAX_BYTES = 400_000
LARGE = 300_000
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=list(loops.installed().values()), ids=list(loops.installed()))
def run(request: pytest.FixtureRequest) -> Run:
    """Run on either loop: each decides differently which protocols lend buffers."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


class Received:
    """A stream that collects its frames and its end."""

    def __init__(self) -> None:
        self.frames: list[BytesLike] = []
        self.ends: list[Exception | None] = []
        self.ended = asyncio.Event()
        self.stream = Stream(MAX_BYTES, self.on_frame, self.on_end)

    def on_frame(self, frame: BytesLike) -> None:
        if frame == b"invalid":
            raise ProtocolError("an invalid frame")
        self.frames.append(frame)

    def on_end(self, reason: Exception | None) -> None:
        self.ends.append(reason)
        self.ended.set()


@asynccontextmanager
async def stream_from(talk: Talk) -> AsyncIterator[Received]:
    """A stream from a server that behaves like this."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    received = Received()
    async with asyncio.timeout(10), server:  # from Python 3.12 on, it waits for its connections
        await received.stream.open(host, port, None)
        try:
            yield received
        finally:
            received.stream.abort()
            await received.stream.closed()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("seed", range(5))
def test_frames_of_all_sizes_in_pieces_of_all_sizes(run: Run, seed: int) -> None:
    run(receive_frames(seed))


async def receive_frames(seed: int) -> None:
    rng = random.Random(seed)
    frames = [
        rng.randbytes(rng.choice([4, 100, 65_535, 65_536, 65_537, 70_000, LARGE]))
        for _ in range(12)
    ]

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b"".join(map(framed, frames))
        while data:
            size = rng.choice([1, 10, 50_000, 100_000, 500_000])
            writer.write(data[:size])
            await writer.drain()
            await asyncio.sleep(0)
            data = data[size:]
        writer.close()

    async with stream_from(talk) as received:
        await received.ended.wait()
        assert received.frames == frames
        assert received.ends[0] is None


@pytest.mark.parametrize("sent", [0, 100, 70_000, LARGE - 1])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_frame_that_breaks_off_is_reported_at_once(run: Run, sent: int, reset: bool) -> None:
    run(receive_part(sent, reset))


async def receive_part(sent: int, reset: bool) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(LARGE.to_bytes(4, "big") + bytes(sent))
        await writer.drain()
        if reset:
            writer.transport.abort()
        else:
            writer.close()

    async with stream_from(talk) as received:
        await received.ended.wait()
        assert received.ends[0] is None or isinstance(received.ends[0], OSError)
        assert received.frames == []


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"\x7f\xff\xff\xff", FrameSizeError), (framed(b"invalid"), ProtocolError)],
    ids=["size", "frame"],
)
def test_an_error_is_the_reason_for_the_end(
    run: Run, data: bytes, error: type[ProtocolError]
) -> None:
    run(receive_error(data, error))


async def receive_error(data: bytes, error: type[ProtocolError]) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(b"good") + data + framed(b"late"))
        await reader.read()
        writer.close()

    async with stream_from(talk) as received:
        await received.ended.wait()
        assert type(received.ends[0]) is error
        assert received.frames == [b"good"]


def test_a_stream_whose_task_is_cancelled_before_it_begins_ends(run: Run) -> None:
    run(cancel_the_task_at_once())


async def cancel_the_task_at_once() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with stream_from(talk) as received:
        for task in asyncio.all_tasks():
            if task.get_name() == "aioprod-connection":
                task.cancel()
        await received.ended.wait()
        assert [type(end) for end in received.ends] == [ConnectionAbortedError]


def test_a_task_that_waits_for_a_full_socket_continues_when_it_is_closed(run: Run) -> None:
    run(write_to_a_full_socket())


async def write_to_a_full_socket() -> None:
    done = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    async with stream_from(talk) as received:
        stream = received.stream
        stream.write([bytes(20_000_000)])
        assert stream.unsent_bytes
        waiting = asyncio.create_task(stream.writable())
        await asyncio.sleep(0)
        assert stream.blocked_since is not None
        stream.abort()
        await waiting
        assert stream.blocked_since is None
        assert stream.closing
        done.set()
        await asyncio.sleep(0)


@pytest.mark.parametrize("flushing", [False, True])
def test_writers_wait_from_the_limit_of_unsent_bytes_on(run: Run, flushing: bool) -> None:
    """Some releases of asyncio do not compare what ``writelines`` leaves with the limit."""
    run(write_until_full(flushing))


async def write_until_full(flushing: bool) -> None:
    read, closed = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read.wait()
        with contextlib.suppress(OSError):
            while await reader.read(1_000_000):
                pass
        writer.transport.abort()
        await asyncio.sleep(0)
        closed.set()

    async with stream_from(talk) as received:
        stream = received.stream
        while stream.unsent_bytes <= 65_536:
            async with asyncio.timeout(1):
                await stream.writable()
            stream.write([bytes(9_000), bytes(9_000)])
        wait = stream.flush if flushing else stream.writable
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        read.set()
        await waiting
        assert stream.unsent_bytes <= (0 if flushing else 65_536)
        stream.abort()
        await closed.wait()


@pytest.mark.parametrize("seed", range(4))
def test_requests_of_all_sizes_in_any_number_of_buffers(run: Run, seed: int) -> None:
    """The socket accepts a part of most of them, which may end within a buffer."""
    run(write_all_sizes(random.Random(seed)))


async def write_all_sizes(rng: random.Random) -> None:
    """A thread reads, so that the socket may accept more at any time."""
    sent, arrived = bytearray(), bytearray()

    def read_all(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            while data := connection.recv(200_000):
                arrived.extend(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        reading = threading.Thread(target=read_all, args=(server,))
        reading.start()
        stream = Received().stream
        host, port = server.getsockname()
        await stream.open(host, port, None)
        for _ in range(30):
            sizes = rng.choice([[0, 1, 3_000_000, 0, 5], [20_000] * 30, [0, 7, 40] * 700, [50_000]])
            request = [rng.randbytes(size) for size in sizes]
            sent += b"".join(request)
            stream.write([rng.choice([bytes, memoryview])(buffer) for buffer in request])
            if rng.random() < 0.3:
                await stream.writable()
        await stream.flush()
        stream.transport.write_eof()
        await asyncio.to_thread(reading.join, 10)
        stream.abort()
        await stream.closed()
    assert arrived == sent


def test_a_write_after_the_end_is_reported(run: Run) -> None:
    run(write_after_the_end())


async def write_after_the_end() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with stream_from(talk) as received:
        while not received.ends:
            received.stream.write([bytes(60_000)] * 2)
            await asyncio.sleep(0)


def test_a_closed_stream_keeps_no_memory_for_large_frames(run: Run) -> None:
    """It is part of a cycle, for which the garbage collector may need long."""
    reply = framed(bytes(LARGE))
    tracemalloc.start()
    try:
        run(receive_and_close(reply))
    finally:
        tracemalloc.stop()


async def receive_and_close(reply: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await reader.read()
        writer.close()

    before = tracemalloc.get_traced_memory()[0]
    async with stream_from(talk) as received:
        await until(lambda: received.frames, 10)
        received.frames.clear()
        assert tracemalloc.get_traced_memory()[0] - before > LARGE
    assert received.ended.is_set()
    assert tracemalloc.get_traced_memory()[0] - before < LARGE

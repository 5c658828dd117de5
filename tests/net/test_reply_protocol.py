"""Large replies go from the socket to where they are read, whatever pieces they come in and
whatever becomes of the connection.
"""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from aioprod.net.reply_protocol import ReplyReader, open_stream, read_rest

LARGE = 300_000
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """On either loop: each has its own idea of which protocols lend buffers."""

    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(work)

    return run


@asynccontextmanager
async def stream_of(talk: Talk) -> AsyncIterator[ReplyReader]:
    """A stream from a server that talks like this."""
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    async with server:
        reader, writer = await open_stream(host, port, None)
        try:
            async with asyncio.timeout(10):
                yield reader
        finally:
            writer.close()


@pytest.mark.parametrize("portion", [90_000, 64 * 1024 * 1024])
@pytest.mark.parametrize("seed", range(5))
def test_replies_of_all_sizes_in_pieces_of_all_sizes_come_whole(
    run: Run, seed: int, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioprod.net.reply_protocol._PORTION_BYTES", portion)
    run(read_replies(seed))


def test_a_size_alone_costs_no_memory(run: Run) -> None:
    """A server has to send what it announces before there is room for it."""
    tracemalloc.start()
    try:
        run(announce(500 * 1024 * 1024))
        assert tracemalloc.get_traced_memory()[1] < 80 * 1024 * 1024
    finally:
        tracemalloc.stop()


async def announce(size: int) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(100))
        writer.close()

    async with stream_of(talk) as reader:
        with pytest.raises(asyncio.IncompleteReadError):
            await read_rest(reader, b"", size)


async def read_replies(seed: int) -> None:
    rng = random.Random(seed)
    replies = [
        rng.randbytes(rng.choice([1, 100, 65_535, 65_536, 65_537, 70_000, LARGE]))
        for _ in range(12)
    ]

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b"".join(replies)
        while data:
            size = rng.choice([1, 10, 50_000, 100_000, 500_000])
            writer.write(data[:size])
            await writer.drain()
            await asyncio.sleep(0)
            data = data[size:]
        writer.close()

    async with stream_of(talk) as reader:
        for reply in replies:
            start = await reader.readexactly(min(len(reply), rng.choice([0, 1])))
            assert await read_rest(reader, start, len(reply)) == reply
        assert await reader.read(1) == b""


@pytest.mark.parametrize("sent", [0, 100, 70_000, LARGE - 1])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_reply_that_breaks_off_is_an_error_at_once(run: Run, sent: int, reset: bool) -> None:
    run(read_what_breaks_off(sent, reset))


async def read_what_breaks_off(sent: int, reset: bool) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(sent))
        await writer.drain()
        if reset:
            writer.transport.abort()
        else:
            writer.close()

    async with stream_of(talk) as reader:
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await read_rest(reader, b"", LARGE)
        with pytest.raises((asyncio.IncompleteReadError, OSError)):
            await read_rest(reader, b"", LARGE)


def test_a_cancelled_reader_leaves_the_stream_usable(run: Run) -> None:
    run(cancel_and_read_on())


async def cancel_and_read_on() -> None:
    go_on = asyncio.Event()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"a" * 100_000)
        await go_on.wait()
        writer.write(b"b" * 10)
        writer.close()

    async with stream_of(talk) as reader:
        reading = asyncio.create_task(read_rest(reader, b"", LARGE))
        while reader.protocol._rest is None or len(reader.protocol._rest) > LARGE - 100_000:  # noqa: ASYNC110
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        go_on.set()
        assert await reader.readexactly(10) == b"b" * 10

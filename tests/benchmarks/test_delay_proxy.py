"""The proxy of distant brokers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aioprod.testing.kafka_process import free_ports
from benchmarks.delay_proxy import delay_proxy, pass_on

DELAY_S = 0.02


class Echo:
    """A server that returns what it receives, and the proxy before it."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            if data == b"close":
                break
            writer.write(data)
        writer.close()
        self.closed.set()

    @asynccontextmanager
    async def connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as echo:
            target = f"127.0.0.1:{echo.sockets[0].getsockname()[1]}"
            proxy = await asyncio.start_server(
                functools.partial(pass_on, target, DELAY_S), "127.0.0.1", 0
            )
            async with proxy:
                port = proxy.sockets[0].getsockname()[1]
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                yield reader, writer
                writer.close()
                await writer.wait_closed()
                async with asyncio.timeout(5):
                    await self.closed.wait()


async def test_bytes_arrive_later_and_a_closed_end_closes_the_other() -> None:
    echo = Echo()
    async with echo.connected() as (reader, writer), asyncio.timeout(5):
        began = asyncio.get_running_loop().time()
        writer.write(b"a")
        await asyncio.sleep(DELAY_S / 4)
        writer.write(b"b")
        assert await reader.readexactly(2) == b"ab"
        # The delays of the two overlap.
        assert 2 * DELAY_S <= asyncio.get_running_loop().time() - began < 1


async def test_a_broker_that_closes_ends_the_connection() -> None:
    async with Echo().connected() as (reader, writer), asyncio.timeout(5):
        writer.write(b"close")
        assert await reader.read(1) == b""


async def test_a_broker_that_is_away_ends_the_connection() -> None:
    proxy = await asyncio.start_server(
        functools.partial(pass_on, "127.0.0.1:9", DELAY_S), "127.0.0.1", 0
    )
    async with proxy, asyncio.timeout(5):
        port = proxy.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read(1) == b""
        writer.close()


async def test_the_process_ends_in_silence_while_connections_are_open(
    capfd: pytest.CaptureFixture[str],
) -> None:
    echo, (port,) = Echo(), free_ports(1)
    async with await asyncio.start_server(echo.serve, "127.0.0.1", 0) as server:
        with delay_proxy(port, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 1):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(5):
                writer.write(b"a")
                assert await reader.readexactly(1) == b"a"
        writer.close()
    assert capfd.readouterr().err == ""

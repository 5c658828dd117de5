"""An error of the function of a connection fails the test, and its end closes the connection."""

from __future__ import annotations

import asyncio

import pytest

from tests.plain_server import serving


async def read_all(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_connection_is_closed_when_the_function_returns() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")

    async with serving(greet) as port, asyncio.timeout(10):
        assert [await read_all(port), await read_all(port)] == [b"hello", b"hello"]


async def test_an_error_of_the_function_is_raised_at_the_end() -> None:
    async def fail(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with serving(fail) as port, asyncio.timeout(10):
            assert await read_all(port) == b""


async def test_a_client_that_goes_causes_no_error() -> None:
    async def read_ten(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readexactly(10)

    async with serving(read_ten) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()

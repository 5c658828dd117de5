"""A simulated transport gives a buffered protocol no bytes that a real one would not give it."""

from __future__ import annotations

import asyncio

import pytest

from aioprod.testing.simulation import run


class SmallBuffers(asyncio.BufferedProtocol):
    """Takes ten bytes at a time, and then pauses reading or closes the connection."""

    def __init__(self, method: str) -> None:
        self.received: list[bytes] = []
        self.transport: asyncio.Transport
        self._method = method
        self._buffer = bytearray(10)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.received.append(bytes(self._buffer[:nbytes]))
        getattr(self.transport, self._method)()


async def receive(method: str, resumed: int) -> list[bytes]:
    protocol = SmallBuffers(method)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    _, writer = await asyncio.open_connection(host, port)
    writer.write(b"a" * 10 + b"b" * 10 + b"c" * 5)
    for _ in range(resumed):
        await asyncio.sleep(0.1)
        protocol.transport.resume_reading()
    await asyncio.sleep(0.1)
    writer.close()
    protocol.transport.abort()
    server.close()
    return protocol.received


@pytest.mark.parametrize(
    ("method", "resumed", "pieces"),
    [("pause_reading", 0, 1), ("pause_reading", 1, 2), ("pause_reading", 2, 3), ("abort", 0, 1)],
)
def test_a_protocol_that_pauses_or_closes_gets_no_more_bytes(
    method: str, resumed: int, pieces: int
) -> None:
    expected = [b"a" * 10, b"b" * 10, b"c" * 5][:pieces]
    assert asyncio.run(receive(method, resumed)) == expected
    for seed in range(5):
        received = run(receive(method, resumed), seed)
        # The write itself may arrive in pieces.
        assert b"".join(expected).startswith(b"".join(received))
        assert len(received) == pieces

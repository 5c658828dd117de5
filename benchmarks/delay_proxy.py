"""A proxy that delays all bytes, as a broker that is far away does. It has no limit of bandwidth.

Its process reads and writes on loopback only: the operating system's own delays (``tc``) are not
available everywhere.
"""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_REPOSITORY = Path(__file__).parents[1]
CHUNK_BYTES = 256 * 1024
"""The limit of the streams that it reads from."""
_MOST_CHUNKS = 256
"""Chunks in flight in one direction: 64 MiB, more than clients have in flight."""
_STOP_TIMEOUT_S = 10


@contextmanager
def delay_proxy(port: int, target: str, round_trip_ms: float) -> Iterator[None]:
    """Run a proxy on ``port`` of 127.0.0.1 until the block ends.

    Args:
        target: where it leads, ``HOST:PORT``.
        round_trip_ms: the time that it adds between a request and its response.
    """
    command = [sys.executable, "-m", "benchmarks.delay_proxy", str(port), target]
    with subprocess.Popen(
        [*command, str(round_trip_ms)],
        cwd=_REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if not process.stdout.readline():
                raise RuntimeError(f"the proxy ended with exit status {process.wait()}")
            yield
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


async def _delay(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Pass on what ``reader`` receives, each chunk ``delay_s`` later."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)

    async def write() -> None:
        while True:
            at, data = await chunks.get()
            await asyncio.sleep(max(0.0, at - loop.time()))
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        while data := await reader.read(CHUNK_BYTES):
            await chunks.put((loop.time() + delay_s, data))
        await chunks.put((loop.time() + delay_s, b""))


async def pass_on(
    target: str, delay_s: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Serve a connection until one end closes it, or the proxy ends."""
    host, _, port = target.rpartition(":")
    try:
        far_reader, far_writer = await asyncio.open_connection(host, int(port), limit=CHUNK_BYTES)
    except OSError:
        writer.close()
        return
    ways = [
        asyncio.ensure_future(_delay(reader, far_writer, delay_s)),
        asyncio.ensure_future(_delay(far_reader, writer, delay_s)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        pass  # The proxy ends. The server of Python 3.11 reports a cancelled callback as an error.
    finally:
        for each in ways:
            each.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        far_writer.close()


async def _serve(port: int, target: str, delay_s: float) -> None:
    """Serve until standard input ends."""
    connected = functools.partial(pass_on, target, delay_s)
    await asyncio.start_server(connected, "127.0.0.1", port, limit=CHUNK_BYTES)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) / 2000))

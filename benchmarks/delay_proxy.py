"""A proxy that delays all bytes, as a broker that is far away does. It has no limit of bandwidth.

Its process reads and writes on loopback only: the operating system's own delays (``tc``) are not
available everywhere.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_REPOSITORY = Path(__file__).parents[1]
_CHUNK_BYTES = 256 * 1024
_MOST_CHUNKS = 256
"""Chunks under way in one direction: 64 MiB, more than clients have in flight."""
_STOP_TIMEOUT_S = 10


@contextmanager
def delay_proxy(port: int, target: str, round_trip_ms: float) -> Iterator[None]:
    """Run a proxy on ``port`` of 127.0.0.1 until the block ends.

    Args:
        target: where it leads, ``HOST:PORT``.
        round_trip_ms: what it adds to the time between a request and its response.
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
        while data := await reader.read(_CHUNK_BYTES):
            await chunks.put((loop.time() + delay_s, data))
        await chunks.put((loop.time() + delay_s, b""))


async def _serve(port: int, target: str, delay_s: float) -> None:
    """Serve until standard input ends."""
    host, _, target_port = target.rpartition(":")

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(
            host, int(target_port), limit=_CHUNK_BYTES
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_delay(reader, far_writer, delay_s))
                group.create_task(_delay(far_reader, writer, delay_s))
        except* (ConnectionError, asyncio.CancelledError):
            pass  # one end is gone, or the proxy ends
        finally:
            writer.close()
            far_writer.close()

    await asyncio.start_server(connected, "127.0.0.1", port, limit=_CHUNK_BYTES)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]) / 2000))

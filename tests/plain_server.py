"""A server for tests: a function reads and writes the bytes of each connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


@asynccontextmanager
async def serving(
    talk: Talk, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Run a server, and yield its port.

    A connection is closed when ``talk`` returns or its client has gone, and all are closed at the
    end of the block, even one whose task was cancelled before it began.

    Raises:
        Exception: raised by ``talk``, if its client has not gone.
    """
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.is_serving():
            task = asyncio.get_running_loop().create_task(_until_end(talk, reader, writer))
            connections[task] = writer
        else:  # accepted just before
            writer.transport.abort()

    server = await asyncio.start_server(accepted, host, port, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task, writer in connections.items():
            task.cancel()
            writer.transport.abort()
        outcomes = await asyncio.gather(*connections, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _until_end(
    talk: Talk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        await talk(reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        pass  # the client has gone
    finally:
        writer.close()

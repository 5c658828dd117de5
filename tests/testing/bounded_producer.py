"""A producer that no test waits for longer than it wants to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioprod import Producer


@asynccontextmanager
async def running(producer: Producer, limit_seconds: float) -> AsyncIterator[Producer]:
    """Start and close a producer, all within the limit; after a failure it is closed at once."""
    try:
        async with asyncio.timeout(limit_seconds):
            await producer.start()
            yield producer
            await producer.close()
    finally:
        await producer.close(0)

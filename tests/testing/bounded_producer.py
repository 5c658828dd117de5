"""A producer whose start and close have a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aioprod import Producer


@asynccontextmanager
async def running(producer: Producer, limit_seconds: float) -> AsyncIterator[Producer]:
    """Start and close a producer, all within the limit. Close it at once after a failure."""
    try:
        async with asyncio.timeout(limit_seconds):
            await producer.start()
            yield producer
            await producer.close()
    finally:
        await producer.close(0)

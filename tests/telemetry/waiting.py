"""Waiting for a state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LIMIT_S = 60


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

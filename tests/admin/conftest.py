"""An admin client of the broker that the test requests."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aioprod import Admin

LIMIT_S = 30


@pytest.fixture
async def admin(bootstrap: str) -> AsyncIterator[Admin]:
    """Connect to an embedded broker, then to a real one."""
    async with Admin(bootstrap) as running:
        yield running


@pytest.fixture
def new_name() -> Callable[[str], str]:
    """Make unique names, as all tests share the real broker."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def until() -> Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]:
    """Wait for a condition, as brokers learn of changes one after another."""

    async def wait(is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not await is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    return wait

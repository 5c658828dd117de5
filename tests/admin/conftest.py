"""An admin client of the broker that the test requests."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable

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

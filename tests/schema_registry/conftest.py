"""Fixtures: an embedded registry, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioprod.schema_registry import SchemaRegistry
from aioprod.testing.registry import EmbeddedSchemaRegistry


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedSchemaRegistry]:
    async with EmbeddedSchemaRegistry() as running:
        yield running


@pytest.fixture
async def registry(server: EmbeddedSchemaRegistry) -> AsyncIterator[SchemaRegistry]:
    async with SchemaRegistry(server.url, retry_backoff_ms=1) as client:
        yield client

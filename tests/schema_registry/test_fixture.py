"""The fixture ``schema_registry`` of the pytest plugin, in asyncio tests and in blocking ones."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from aioprod.schema_registry import Schema, SchemaRegistry
from aioprod.testing.registry import EmbeddedSchemaRegistry


async def test_on_the_event_loop_of_the_test(schema_registry: EmbeddedSchemaRegistry) -> None:
    async with SchemaRegistry(schema_registry.url) as registry:
        await registry.register("s", Schema('"string"'))
    assert schema_registry.schemas("s") == ['"string"']
    assert schema_registry.schemas("none") == []
    assert [call.path for call in schema_registry.calls] == ["/subjects/s/versions"]


def test_in_a_thread(schema_registry: EmbeddedSchemaRegistry) -> None:
    with urllib.request.urlopen(f"{schema_registry.url}/subjects", timeout=10) as answer:
        assert json.load(answer) == []


class TestSettings:
    @pytest.fixture
    def schema_registry_settings(self) -> dict[str, Any]:
        return {"bearer_token": "t"}

    async def test_they_are_its_arguments(self, schema_registry: EmbeddedSchemaRegistry) -> None:
        async with SchemaRegistry(schema_registry.url, bearer_token="t") as registry:
            assert await registry.subjects() == []

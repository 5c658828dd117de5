"""Tests of arrow_orders.py with an embedded broker and registry."""

from __future__ import annotations

import pytest
from arrow_orders import main

from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry


async def test_the_table_comes_back(
    kafka_broker: EmbeddedCluster,
    schema_registry: EmbeddedSchemaRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await main([schema_registry.url, kafka_broker.bootstrap_servers])
    assert capsys.readouterr().out.splitlines() == ["milk 1", "tea 5"]
    assert all(record.value is not None for record in kafka_broker.records("orders"))

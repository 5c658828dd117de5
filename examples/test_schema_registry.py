"""Tests of schema_registry.py with an embedded broker and registry."""

from __future__ import annotations

import pytest
from schema_registry import Order, OrderWithNote, main

from aioprod.testing import EmbeddedCluster
from aioprod.testing.registry import EmbeddedSchemaRegistry


async def test_both_versions_read_both_orders(
    kafka_broker: EmbeddedCluster,
    schema_registry: EmbeddedSchemaRegistry,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await main([schema_registry.url, kafka_broker.bootstrap_servers])
    printed = capsys.readouterr().out.splitlines()
    expected = [
        Order("tea", 2),
        Order("milk", 1),
        OrderWithNote("tea", 2, None),
        OrderWithNote("milk", 1, "cold"),
    ]
    assert printed == list(map(str, expected))
    assert len(schema_registry.schemas("orders-value")) == 2

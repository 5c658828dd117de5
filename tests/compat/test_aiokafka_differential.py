"""The same calls on aiokafka and on ``aioprod.compat.aiokafka`` have the same outcomes."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType

import aiokafka
import aiokafka.admin
import pytest

import aioprod.compat.aiokafka
import aioprod.compat.aiokafka.admin
from aioprod.testing import EmbeddedCluster
from tests.compat import (
    scenarios_admin,
    scenarios_consumer,
    scenarios_group,
    scenarios_producer,
)

# Waiting in either client costs no time.
pytestmark = pytest.mark.virtual_time

Scenario = Callable[[ModuleType, str], Awaitable[object]]

SCENARIOS: dict[str, Scenario] = {
    name: function
    for module in (scenarios_producer, scenarios_consumer, scenarios_group, scenarios_admin)
    for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}


async def seen_by(client: ModuleType, scenario: Scenario) -> object:
    async with EmbeddedCluster(auto_create_topics=False) as broker:
        broker.create_topic("orders", 3)
        return await scenario(client, broker.bootstrap_servers)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_both_clients_have_the_same_outcome(name: str) -> None:
    theirs = await seen_by(aiokafka, SCENARIOS[name])
    ours = await seen_by(aioprod.compat.aiokafka, SCENARIOS[name])
    assert ours == theirs

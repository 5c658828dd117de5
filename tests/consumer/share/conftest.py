"""Both brokers that have share groups."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioprod.testing import EmbeddedCluster


@pytest.fixture(
    params=[
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("embedded", marks=pytest.mark.virtual_time(needed=False)),
    ]
)
async def share_broker(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Bootstrap servers of a real Kafka, and of an embedded broker in virtual time."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka")
        return
    async with EmbeddedCluster() as broker:
        yield broker.bootstrap_servers

"""A broker to write to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aioprod.testing import EmbeddedCluster


@pytest.fixture(params=[0, 2], ids=["v1", "v2"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """A broker with three nodes and the topic ``t``, of either transaction protocol."""
    async with EmbeddedCluster(nodes=3, transaction_version=request.param) as running:
        running.create_topic("t", 3)
        yield running

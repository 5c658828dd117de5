"""Members leave: with LeaveGroup, or with a heartbeat in a consumer group (KIP-848) and in a share
group (KIP-932). The coordinator may refuse that for a moment, or its connection break.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aioprod import Consumer, ErrorCode, ShareConsumer
from aioprod.consumer.group.leaving import LEAVE_LIMIT_S
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import Action, EmbeddedCluster, drop_after, drop_before, fail

pytestmark = pytest.mark.virtual_time

REQUESTS = {
    "classic": ApiKey.LEAVE_GROUP,
    "consumer": ApiKey.CONSUMER_GROUP_HEARTBEAT,
    "share": ApiKey.SHARE_GROUP_HEARTBEAT,
}
SETTINGS: dict[str, Any] = {"group_id": "g", "retry_backoff_ms": 10}
LOADING = fail(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture(params=list(REQUESTS))
def leaving(request: pytest.FixtureRequest) -> ApiKey:
    return REQUESTS[request.param]


@pytest.fixture
async def member(
    broker: EmbeddedCluster, leaving: ApiKey
) -> AsyncIterator[Consumer | ShareConsumer]:
    """A member that is in the group."""
    broker.create_topic("t", 1)
    consumer: Consumer | ShareConsumer
    if leaving is ApiKey.SHARE_GROUP_HEARTBEAT:
        consumer = ShareConsumer(broker.bootstrap_servers, topics="t", **SETTINGS)
    else:
        consumer = Consumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_protocol="classic" if leaving is ApiKey.LEAVE_GROUP else "consumer",
            enable_auto_commit=False,
            **SETTINGS,
        )
    async with consumer:
        await consumer.getmany(timeout_ms=2_000)
        assert len(broker.group("g").members) == 1
        yield consumer


@pytest.mark.parametrize(
    ("action", "times"),
    [
        (fail(ErrorCode.NOT_COORDINATOR), 2),
        (fail(ErrorCode.COORDINATOR_NOT_AVAILABLE), 2),
        (LOADING, 2),
        (drop_before(), 2),
        # The coordinator does not know the member any more when it leaves again.
        (drop_after(), 1),
    ],
    ids=["not coordinator", "no coordinator", "loading", "request lost", "response lost"],
)
async def test_it_leaves_again_after_a_moment(
    broker: EmbeddedCluster,
    leaving: ApiKey,
    member: Consumer | ShareConsumer,
    caplog: pytest.LogCaptureFixture,
    action: Action,
    times: int,
) -> None:
    caplog.set_level(logging.INFO)
    before = broker.request_count(leaving)
    broker.on(leaving, action, times=times)
    began = asyncio.get_running_loop().time()
    await member.close()
    assert asyncio.get_running_loop().time() - began < 1
    assert broker.group("g").state == "Empty"
    assert broker.request_count(leaving) == before + times + 1
    assert "leaving failed" not in caplog.text


async def test_it_gives_up_after_its_limit(
    broker: EmbeddedCluster,
    leaving: ApiKey,
    member: Consumer | ShareConsumer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    broker.on_every(leaving, LOADING)
    began = asyncio.get_running_loop().time()
    await member.close()
    assert LEAVE_LIMIT_S / 2 < asyncio.get_running_loop().time() - began <= LEAVE_LIMIT_S + 0.1
    assert "leaving failed" in caplog.text
    assert "COORDINATOR_LOAD_IN_PROGRESS" in caplog.text


async def test_a_refusal_is_final(
    broker: EmbeddedCluster,
    leaving: ApiKey,
    member: Consumer | ShareConsumer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    before = broker.request_count(leaving)
    broker.on(leaving, fail(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    await member.close()
    assert broker.request_count(leaving) == before + 1
    assert "GROUP_AUTHORIZATION_FAILED" in caplog.text

"""Calls of an admin client are cancelled in each place where they wait: the client stays usable and
no task is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aioprod import Admin, TopicPartition
from aioprod.admin import ConfigResource, NewTopic, OffsetSpec
from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, fail

PARTITION = TopicPartition("orders", 0)
CALLS: dict[str, Callable[[Admin], Awaitable[object]]] = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("made", 1)]),
    "describe_topics": lambda admin: admin.describe_topics(["orders"]),
    "describe_configs": lambda admin: admin.describe_configs(
        [ConfigResource.topic("orders"), ConfigResource.broker(1)]
    ),
    "list_offsets": lambda admin: admin.list_offsets({PARTITION: OffsetSpec.LATEST}),
    "list_groups": lambda admin: admin.list_groups(),
    "find_coordinator": lambda admin: admin.find_coordinator("group"),
    "alter_offsets": lambda admin: admin.alter_consumer_group_offsets("group", {PARTITION: 0}),
    "describe_groups": lambda admin: admin.describe_consumer_groups(["group"]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call(name: str) -> None:
    async with (
        EmbeddedCluster(nodes=2) as cluster,
        Admin(cluster.bootstrap_servers, retry_backoff_ms=1) as admin,
    ):
        cluster.create_topic("orders", 2)
        (await admin.alter_consumer_group_offsets("group", {PARTITION: 0})).check()
        cluster.on(ApiKey.CREATE_TOPICS, fail(ErrorCode.NOT_CONTROLLER))

        async def scenario(number: int) -> None:
            await CALLS[name](admin)

        async def check(number: int, cancelled: bool) -> None:
            assert "orders" in await admin.list_topics(timeout_ms=5000)

        assert await cancel_at_each_point(scenario, check) >= 1


async def test_start_and_close() -> None:
    async with EmbeddedCluster() as cluster:

        async def scenario(number: int) -> None:
            async with Admin(cluster.bootstrap_servers) as admin:
                await admin.list_topics()

        async def check(number: int, cancelled: bool) -> None:
            tasks = {
                task
                for task in asyncio.all_tasks()
                if task.get_name().startswith("aioprod") and not task.done()
            }
            if tasks:
                await asyncio.wait(tasks, timeout=2)
            assert not [task.get_name() for task in tasks if not task.done()]

        assert await cancel_at_each_point(scenario, check) >= 2

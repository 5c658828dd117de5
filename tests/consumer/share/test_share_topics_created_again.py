"""A topic that is deleted and created again while a share group reads it: the group's positions are
the broker's, by topic id, and records of the new topic are not those of the deleted one.
"""

from __future__ import annotations

import asyncio

import pytest

from aioprod import Admin, KafkaError, ShareConsumer
from aioprod.admin import ConfigResource
from aioprod.testing import EmbeddedCluster
from tests.consumer.recreated import Got, create_again, topic_of


async def collect(consumer: ShareConsumer, got: Got) -> None:
    while True:
        try:
            for record in await consumer.getmany(timeout_ms=500):
                got.add(record.partition, record.value)
        except KafkaError as error:
            got.errors.append(error)


@pytest.mark.virtual_time
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("missing_s", [0, 5])
async def test_all_records_of_the_new_topic_are_delivered_once(
    broker: EmbeddedCluster, count: int, missing_s: float
) -> None:
    got = Got()
    servers = broker.bootstrap_servers
    async with Admin(servers) as setup:
        await setup.incremental_alter_configs(
            {ConfigResource.group("readers"): {"share.auto.offset.reset": "earliest"}}
        )
    async with topic_of(servers, "orders", 2) as admin:
        async with ShareConsumer(
            bootstrap_servers=servers, group_id="readers", metadata_max_age_ms=2_000
        ) as consumer:
            consumer.subscribe(["orders"])
            task = asyncio.create_task(collect(consumer, got))
            await got.until(lambda got: got.has_old(2))
            await create_again(admin, servers, "orders", count, missing_s=missing_s)
            await got.until(lambda got: got.is_done(count))
            task.cancel()
            await asyncio.wait([task])
    got.check(count, from_the_first=True)

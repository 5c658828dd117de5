"""The admin client in virtual time: its limits, and brokers that stop and start, with seeds that
can be replayed.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from aioprod import Admin, KafkaTimeoutError, TopicPartition
from aioprod.admin import NewTopic
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold
from aioprod.testing.simulation import run


def test_the_default_limit_is_a_minute() -> None:
    async def main() -> float:
        async with EmbeddedCluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
            kept_back = cluster.on_every(ApiKey.CREATE_TOPICS, hold())
            begun = asyncio.get_running_loop().time()
            with pytest.raises(KafkaTimeoutError, match="default_api_timeout_ms=60000"):
                await admin.create_topics(NewTopic("orders", 1))
            kept_back.cancel()
            return asyncio.get_running_loop().time() - begun

    assert run(main(), 1) == pytest.approx(60, abs=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_calls_end_well_while_brokers_come_and_go(seed: int) -> None:
    async def main() -> list[str]:
        rng = random.Random(seed)
        async with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic("orders", 3)
            servers = ",".join(cluster.address(node) for node in cluster.node_ids)
            async with Admin(servers, rng=random.Random(seed)) as admin:

                async def trouble() -> None:
                    while True:
                        node = rng.choice(cluster.node_ids)
                        await asyncio.sleep(rng.uniform(0, 3))
                        await cluster.kill_node(node)
                        await asyncio.sleep(rng.uniform(0, 3))
                        await cluster.start_node(node)

                task = asyncio.create_task(trouble())
                for number in range(30):
                    await asyncio.sleep(rng.uniform(0, 0.5))
                    group, partition = f"group-{number}", TopicPartition("orders", number % 3)
                    (await admin.alter_consumer_group_offsets(group, {partition: 0})).check()
                    assert list(await admin.list_consumer_group_offsets(group)) == [partition]
                    assert (await admin.list_offsets({partition: -1}))[partition].offset == 0
                    await admin.describe_consumer_groups(group)
                task.cancel()
                await asyncio.wait([task])
            return sorted(cluster.group_ids)

    assert run(main(), seed) == sorted(f"group-{number}" for number in range(30))

"""A share group on a real cluster, whose members (consumers, processors, Java's client) and nodes
are killed and frozen at random: no record lost, and none accepted again after it was confirmed.

Takes a minute, or the seconds of ``AIOPROD_FAULT_SECONDS``: runs only with ``-m faults``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from aioprod import Admin, Delivery, Producer, TopicPartition
from aioprod.admin import ConfigResource
from tests.consumer.share.member_processes import AIOPROD, JAVA, PROCESSOR, Members, Place, judge
from tests.consumer.share.share_groups import ShareTopic
from tests.faults.harness.cluster_control import NODES, PARTITIONS, SECONDS, ClusterControl

pytestmark = [pytest.mark.faults, pytest.mark.kafka, pytest.mark.timeout(SECONDS + 400)]

_LOCK_SECONDS = 5
#: Seconds between two records of a partition.
_PACE_SECONDS = 0.02
_FINISH_SECONDS = 120.0


async def write(topic: ShareTopic, stored: set[Place], stop: asyncio.Event) -> None:
    """Write until ``stop`` is set, and note what was acknowledged."""

    def done(delivery: Delivery) -> None:
        if delivery.exception() is None:
            metadata = delivery.result()
            stored.add((metadata.partition, metadata.offset))

    async with Producer(topic.kafka, linger_ms=5) as producer:
        while not stop.is_set():
            for partition in range(PARTITIONS):
                delivery = await producer.send(topic.topic, b"x", partition=partition)
                delivery.add_done_callback(done)
            await asyncio.sleep(_PACE_SECONDS)
        await producer.flush()


async def disturb_nodes(
    control: ClusterControl, rng: random.Random, until: float, done: Counter[str]
) -> None:
    """Kill or freeze one node after the other, and let it come back."""
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(5, 15))
        node = rng.choice(NODES)
        if rng.random() < 0.5:
            done["nodes killed"] += 1
            await asyncio.to_thread(control.cluster.kill, node)
            await asyncio.sleep(rng.uniform(0, 6))
            await asyncio.to_thread(control.cluster.restart, node)
        else:
            done["nodes frozen"] += 1
            control.cluster.pause(node)
            await asyncio.sleep(rng.uniform(1, 8))
            control.cluster.resume(node)


async def kill_members(
    members: Members, rng: random.Random, until: float, done: Counter[str]
) -> None:
    """Kill one member after the other; another one joins, at once or later."""
    while time.monotonic() < until:
        await asyncio.sleep(rng.uniform(2, 8))
        await members.kill_one(rng)
        done["members killed"] += 1
        await asyncio.sleep(rng.choice([0, rng.uniform(0, 5)]))
        await members.fill()


async def until_all_done(topic: ShareTopic) -> None:
    """Wait until the group has done with all records."""
    partitions = [TopicPartition(topic.topic, number) for number in range(PARTITIONS)]
    async with Admin(topic.kafka) as admin, asyncio.timeout(_FINISH_SECONDS):
        while True:
            found = await admin.list_share_group_offsets(topic.group, partitions)
            if all(at is not None and at.lag == 0 for at in found.values()):
                return
            await asyncio.sleep(0.5)


async def test_members_and_nodes_fail(
    groups: ClusterControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    topic = ShareTopic(groups.cluster.bootstrap_servers)
    groups.topics = [topic.topic]
    for name in (topic.topic, f"{topic.topic}.dead"):
        await groups.create_topic(name, 3)
    async with Admin(topic.kafka) as admin:
        # Kills count as deliveries, so few of them could use up a small limit.
        configs = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": str(1_000 * _LOCK_SECONDS),
            "share.delivery.count.limit": "10",
        }
        await admin.incremental_alter_configs({ConfigResource.group(topic.group): configs})
    members = Members(topic, tmp_path, [AIOPROD, PROCESSOR, PROCESSOR, JAVA])
    stored: set[Place] = set()
    stop, done = asyncio.Event(), Counter[str]()
    until = time.monotonic() + SECONDS
    writing = asyncio.create_task(write(topic, stored, stop))
    try:
        await members.fill()
        await asyncio.gather(
            disturb_nodes(groups, random.Random(rng.random()), until, done),
            kill_members(members, random.Random(rng.random()), until, done),
        )
        stop.set()
        await writing
        await groups.restore()
        await members.fill()
        await until_all_done(topic)
    finally:
        writing.cancel()
        await members.kill_all()
    steps = members.steps()
    judgment = judge(steps, stored, leaders_change=True)
    with capsys.disabled():
        print(
            f"\nseed {seed}: {dict(done)}; {len(stored)} records, {judgment.confirmed} confirmed "
            f"({judgment.by_client}), {judgment.repeated} delivered again, "
            f"{judgment.stale} of these after a confirmed acceptance, {judgment.twice} confirmed "
            f"twice; "
            f"{len(judgment.findings)} findings"
        )
    assert judgment.findings[:20] == []
    # Few records move back and forth while one of their acknowledgements is in flight.
    assert judgment.stale + judgment.twice <= judgment.confirmed // 1_000
    assert min(judgment.by_client.get(client, 0) for client in (AIOPROD, PROCESSOR, JAVA)) > 100
    assert len(stored) > SECONDS / _PACE_SECONDS

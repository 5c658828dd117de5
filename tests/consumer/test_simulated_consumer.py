"""The consumer in virtual time, through leaders that move, brokers that stop, freeze and lose
connections: each record once and in order.

A seed that fails is repeated by its number.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from aioprod import Consumer, KafkaError, Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay, drop_after, drop_before, hold, throttle
from aioprod.testing.simulation import SimulatedLoop
from tests.consumer.number_topics import TOPIC, assert_idle
from tests.selection import by_default_each
from tests.simulation.member_plans import draw_fetch_growth

PARTITIONS = 4
RECORDS = 400
IDLE_POLLS = 20_000


async def disturb(cluster: EmbeddedCluster, rng: random.Random) -> None:
    """One trouble after the other; in the end all is well."""
    for _ in range(12):
        await asyncio.sleep(rng.uniform(0.1, 2))
        nodes = list(cluster.node_ids)
        node, partition = rng.choice(nodes), rng.randrange(PARTITIONS)
        match rng.randrange(6):
            case 0 if cluster.leader(TOPIC, partition) != node:
                cluster.move_leader(TOPIC, partition, node)
            case 1:
                cluster.freeze_node(node)
                await asyncio.sleep(rng.uniform(0.1, 5))
                cluster.unfreeze_node(node)
            case 2:
                await cluster.stop_node(node)
                await asyncio.sleep(rng.uniform(0.1, 3))
                await cluster.start_node(node, new_port=rng.random() < 0.5)
            case 3:
                api = rng.choice(
                    [
                        ApiKey.FETCH,
                        ApiKey.METADATA,
                        ApiKey.LIST_OFFSETS,
                        ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    ]
                )
                cluster.on(
                    api,
                    rng.choice(
                        [drop_before(), drop_after(), delay(rng.uniform(0, 3)), throttle(500)]
                    ),
                    times=rng.randrange(1, 5),
                )
            case 4:
                rule = cluster.on(ApiKey.FETCH, hold(), times=rng.randrange(1, 4))
                await asyncio.sleep(rng.uniform(0.1, 4))
                rule.release()
                rule.cancel()
            case _:
                await cluster.stop_all()
                await asyncio.sleep(rng.uniform(0.1, 3))
                await cluster.start()


async def turn_aside(consumer: Consumer, found: dict[int, list[int]], rng: random.Random) -> None:
    """A pause for a while, or a jump to where the partition is anyway, or back and read again."""
    partitions = sorted(consumer.assignment())
    if not partitions:
        return
    partition = rng.choice(partitions)
    place = len(found[partition.partition])
    match rng.randrange(3):
        case 0:
            consumer.pause(partition)
            for record in await consumer.getmany(5, timeout_ms=rng.randrange(200)):
                assert record.partition != partition.partition
                found[record.partition].append(int(record.value))
            consumer.resume(partition)
        case 1:
            consumer.seek(partition, place)
        case _:
            back = rng.randint(0, place)
            consumer.seek(partition, back)
            del found[partition.partition][back:]
    assert partition not in consumer.paused()


async def read_through_trouble(seed: int) -> dict[int, list[int]]:
    rng = random.Random(seed)
    found: dict[int, list[int]] = defaultdict(list)
    async with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        servers = cluster.bootstrap_servers
        async with Producer(servers, linger_ms=1, request_timeout_ms=4_000) as producer:

            async def write() -> None:
                for number in range(RECORDS):
                    await producer.send(
                        TOPIC, b"%d" % (number // PARTITIONS), partition=number % PARTITIONS
                    )
                    if number % 10 == 9:
                        await asyncio.sleep(rng.uniform(0, 0.5))
                await producer.flush()

            others = [asyncio.ensure_future(write()), asyncio.ensure_future(disturb(cluster, rng))]
            settings: dict[str, Any] = {
                "max_partition_fetch_bytes": rng.choice([100, 1_000, 1_048_576]),
                "max_poll_records": rng.choice([1, 7, 500]),
            }
            draw_fetch_growth(f"seed {seed}", settings)
            settings["request_timeout_ms"] = rng.choice([2_000, 30_000])
            async with Consumer(
                TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest", rng=rng, **settings
            ) as consumer:
                while sum(map(len, found.values())) < RECORDS:
                    for record in (
                        [await consumer.getone()]
                        if rng.random() < 0.5
                        else await consumer.getmany(rng.choice([1, 3, 100]))
                    ):
                        found[record.partition].append(int(record.value))
                    if rng.random() < 0.1:
                        await asyncio.sleep(rng.uniform(0, 0.3))
                    if rng.random() < 0.1:
                        await turn_aside(consumer, found, rng)
                await asyncio.gather(*others)
    return dict(found)


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=by_default_each(4, seed)) for seed in range(25)]
)
def test_each_record_once_and_in_order(seed: int) -> None:
    found = SimulatedLoop(seed, hostile=seed % 3 == 2, time_limit_seconds=900).run(
        read_through_trouble(seed)
    )
    assert found == {
        partition: list(range(RECORDS // PARTITIONS)) for partition in range(PARTITIONS)
    }


def test_idle_polls_for_hours_pile_nothing_up() -> None:
    async def main() -> tuple[int, int]:
        async with EmbeddedCluster() as cluster:
            cluster.create_topic(TOPIC)
            async with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers) as consumer:
                for _ in range(100):
                    await consumer.getmany(timeout_ms=100)
                before = len(asyncio.all_tasks())
                for _ in range(IDLE_POLLS):
                    assert await consumer.getmany(timeout_ms=100) == []
                assert_idle(consumer)
                assert len(asyncio.get_running_loop()._scheduled) < 100  # type: ignore[attr-defined]
                return before, len(asyncio.all_tasks())

    before, after = SimulatedLoop(1).run(main())
    assert before == after


@pytest.mark.parametrize("seed", range(8))
def test_a_new_leader_is_found_in_a_few_pauses_between_metadata_requests(seed: int) -> None:
    """Not after the pause between attempts to connect to the old one, which grows to a second."""

    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        async with EmbeddedCluster(nodes=3) as cluster:
            cluster.create_topic(TOPIC, replication_factor=3)
            servers = cluster.bootstrap_servers
            async with (
                Producer(servers) as producer,
                Consumer(TOPIC, bootstrap_servers=servers, auto_offset_reset="earliest") as reader,
            ):
                await producer.send_and_wait(TOPIC, b"1")
                await reader.getone()
                leader = cluster.leader(TOPIC, 0)
                for api in (ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.PRODUCE):
                    cluster.on_every(api, drop_before(), node=leader)
                sent = await producer.send(TOPIC, b"2")
                await asyncio.sleep(2.5 + seed / 4)
                cluster.move_leader(TOPIC, 0, next(n for n in cluster.node_ids if n != leader))
                moved = loop.time()
                await sent
                written = loop.time()
                assert (await reader.getone()).value == b"2"
                return written - moved, loop.time() - moved

    written, read = SimulatedLoop(seed).run(main())
    assert written <= 0.3
    assert read <= 0.4


def test_a_leader_that_stays_away_is_not_looked_for_all_the_time() -> None:
    async def main() -> int:
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic(TOPIC, replication_factor=2)
            leader = cluster.leader(TOPIC, 0)
            async with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers) as reader:
                await reader.getmany(timeout_ms=1_000)
                for api in (ApiKey.API_VERSIONS, ApiKey.FETCH):
                    cluster.on_every(api, drop_before(), node=leader)
                await reader.getmany(timeout_ms=60_000)
                before = cluster.request_count(ApiKey.METADATA)
                await reader.getmany(timeout_ms=60_000)
                return cluster.request_count(ApiKey.METADATA) - before

    assert 30 <= SimulatedLoop(1).run(main()) <= 90


def test_a_position_is_refused_in_time_when_all_brokers_are_silent() -> None:
    async def main() -> float:
        async with EmbeddedCluster(nodes=2) as cluster:
            cluster.create_topic(TOPIC)
            async with Consumer(
                TOPIC, bootstrap_servers=cluster.bootstrap_servers, default_api_timeout_ms=20_000
            ) as consumer:
                await consumer.getmany(timeout_ms=1_000)
                for node in cluster.node_ids:
                    cluster.freeze_node(node)
                began = asyncio.get_running_loop().time()
                with pytest.raises(KafkaError):
                    await consumer.seek_to_beginning()
                return asyncio.get_running_loop().time() - began

    assert 19 <= SimulatedLoop(1).run(main()) <= 21

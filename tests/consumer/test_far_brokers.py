"""The number of round trips until a consumer has its first records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aioprod import Consumer, Producer, TopicPartition
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.fetch_sizes import FetchSizes
from aioprod.consumer.subscription import PartitionState
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, delay
from aioprod.testing.simulation import SimulatedLoop

ROUND_TRIP_S = 0.25
PARTITIONS = 12
MIB = 1 << 20


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("round_trip_s", "full", "settings", "expected"),
    [
        (0.0, 2, {}, MIB),  # all four share 4 MiB
        (0.009, 2, {}, MIB),
        (0.01, 2, {}, 2 * MIB),
        (0.05, 2, {}, 4 * MIB),
        (0.25, 2, {}, 8 * MIB),
        (0.25, 1, {}, 16 * MIB),
        (0.25, 4, {}, 4 * MIB),
        (0.25, 1, {"max_partition_fetch_bytes": 100}, 100),
        (0.25, 1, {"largest_partition_fetch_bytes": 3 * MIB}, 3 * MIB),
    ],
)
def test_the_size_of_a_fetch_depends_on_distance_and_settings(
    round_trip_s: float, full: int, settings: dict[str, Any], expected: int
) -> None:
    sizes = FetchSizes(ConsumerConfig(bootstrap_servers=("localhost:9092",), **settings))
    states = [PartitionState(TopicPartition("t", number)) for number in range(4)]
    for state in states[:full]:
        state.fetch_bytes = 64 * MIB
    asked = sizes.of(states, round_trip_s)
    least = settings.get("max_partition_fetch_bytes", MIB)
    assert asked == [expected] * full + [least] * (4 - full)


# -- round trips -----------------------------------------------------------------------------------


async def far_records(broker: EmbeddedCluster, partitions: int, large: int = 0) -> SimulatedLoop:
    """Store a record in each partition of a topic, and ``large`` ones of 99 kB in the first. The
    broker is far away from then on.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t", partitions)
    async with Producer(broker.bootstrap_servers) as producer:
        for number in range(partitions):
            await producer.send("t", b"value", partition=number)
        for _ in range(large):
            await producer.send("t", bytes(99_000), partition=0)
    loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    return loop


@pytest.mark.virtual_time
async def test_a_consumer_connects_for_fetches_while_it_looks_up_offsets(
    broker: EmbeddedCluster,
) -> None:
    loop = await far_records(broker, PARTITIONS)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        start = loop.time()
        consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        records = await consumer.getmany(1_000)
        took_s = loop.time() - start
        loop.network.heal()
    assert len(records) == PARTITIONS
    # The connection, meanwhile metadata; ApiVersions, ListOffsets and Fetch.
    assert took_s / ROUND_TRIP_S == pytest.approx(4, abs=0.01)


@pytest.mark.virtual_time
async def test_a_member_connects_for_fetches_while_it_asks_for_committed_offsets(
    broker: EmbeddedCluster,
) -> None:
    loop = await far_records(broker, 1)
    async with Consumer(
        "t", bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        start = loop.time()
        records = await consumer.getmany(1_000)
        took_s = loop.time() - start
        loop.network.heal()
    assert len(records) == 1
    # Seven for the group and its metadata, then OffsetFetch, ListOffsets and Fetch.
    assert took_s / ROUND_TRIP_S == pytest.approx(10, abs=0.01)


async def sizes_of_fetches(broker: EmbeddedCluster, bytes_per_second: float | None) -> list[int]:
    """Read 25 MB of one partition from a broker that is far away; return the different sizes that
    requests ask for.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers, largest_batch_size=100_000) as producer:
        for _ in range(250):
            await producer.send("t", bytes(99_000))
    loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    if bytes_per_second is not None:
        loop.network.slow(bytes_per_second)
    asked: list[int] = []

    def note(request: Any) -> bool:
        asked.extend(
            each.partition_max_bytes for topic in request.topics for each in topic.partitions
        )
        return False

    broker.on_every(ApiKey.FETCH, delay(0), where=note)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found = 0
        while found < 250:
            found += len(await consumer.getmany(1_000))
        loop.network.heal()
    return sorted(set(asked))


@pytest.mark.virtual_time
async def test_fetches_from_a_far_broker_grow_to_16_mib(broker: EmbeddedCluster) -> None:
    assert await sizes_of_fetches(broker, None) == [1 << 20, 4 << 20, 16 << 20]


@pytest.mark.virtual_time
async def test_fetches_over_a_slow_network_grow_to_4_mib(broker: EmbeddedCluster) -> None:
    # 10 Mbit/s: 4 MiB take 3.4 s.
    assert await sizes_of_fetches(broker, 1_250_000) == [1 << 20, 4 << 20]


@pytest.mark.virtual_time
async def test_partitions_without_full_responses_do_not_share_the_size_of_fetches(
    broker: EmbeddedCluster,
) -> None:
    loop = await far_records(broker, PARTITIONS, large=30)
    async with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest"
    ) as consumer:
        start, found = loop.time(), 0
        consumer.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        while found < PARTITIONS + 30:
            found += len(await consumer.getmany(1_000))
        took_s = loop.time() - start
        loop.network.heal()
    # Three before the first Fetch, which returns 1 MiB; the second one returns the rest.
    assert took_s / ROUND_TRIP_S == pytest.approx(5, abs=0.05)

"""Producers with default settings and brokers that are far away: the number of round trips that
records take, and of requests in flight.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aioprod import Producer
from aioprod.config.producer import ProducerConfig
from aioprod.metrics import BatchDone, BatchSent, ProducerObserver
from aioprod.producer.far_brokers import FarBrokers
from aioprod.producer.sequences import MAX_UNRESOLVED
from aioprod.testing import EmbeddedCluster
from aioprod.testing.simulation import SimulatedLoop

ROUND_TRIP_S = 0.25
PARTITIONS = 12
KIB = 1024


def far_brokers(**settings: Any) -> FarBrokers:
    return FarBrokers(ProducerConfig(bootstrap_servers=("localhost:9092",), **settings))


# -- decisions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took_s", "most"), [(0.0, 5), (0.049, 5), (0.05, 32), (0.25, 32), (3.0, 32), (3.1, 5)]
)
def test_more_requests_are_in_flight_to_a_broker_that_is_far_but_not_slow(
    took_s: float, most: int
) -> None:
    brokers = far_brokers()
    brokers.note_response(1, took_s)
    assert brokers.most_in_flight(1) == most
    assert brokers.most_in_flight(2) == 5


@pytest.mark.parametrize(
    "settings",
    [
        {"max_in_flight_requests_per_connection": 4},
        {"max_in_flight_requests_per_connection": 1},
        {"enable_idempotence": False},
        {"acks": 0, "enable_idempotence": False},
    ],
    ids=str,
)
def test_settings_limit_the_requests_in_flight_to_a_far_broker(settings: dict[str, Any]) -> None:
    brokers = far_brokers(**settings)
    brokers.note_response(1, ROUND_TRIP_S)
    limit = settings.get("max_in_flight_requests_per_connection", 5)
    assert brokers.most_in_flight(1) == limit


def test_a_broker_that_is_near_again_is_not_far() -> None:
    brokers = far_brokers()
    brokers.note_response(1, ROUND_TRIP_S)
    assert brokers.any
    brokers.note_response(1, 0.001)
    assert not brokers.any
    assert brokers.most_in_flight(1) == 5


@pytest.mark.parametrize(("took_s", "last_s"), [(0.1, 0.02), (0.25, 0.05), (2.0, 0.1)])
def test_the_last_batch_before_a_response_lingers_for_a_part_of_the_round_trip(
    took_s: float, last_s: float
) -> None:
    brokers = far_brokers()
    brokers.note_response(1, took_s)
    assert brokers.linger_s(1, is_last=False) == 0.0
    assert brokers.linger_s(1, is_last=True) == pytest.approx(last_s)


def test_a_full_batch_does_not_linger_at_a_near_broker_or_with_another_linger_time() -> None:
    assert far_brokers().linger_s(1, is_last=True) is None
    brokers = far_brokers(linger_ms=6)
    brokers.note_response(1, ROUND_TRIP_S)
    assert brokers.linger_s(1, is_last=True) is None


# -- round trips -----------------------------------------------------------------------------------


class Requests(ProducerObserver):
    """Counts batches and bytes in flight."""

    def __init__(self) -> None:
        self.of_partition: Counter[int] = Counter()
        self.batches: list[BatchSent] = []
        self.most_of_partition = 0
        self.most_batches = 0
        self.bytes = self.most_bytes = 0
        self.sent_at: list[float] = []
        self.sent = asyncio.Event()

    def on_batch_sent(self, event: BatchSent) -> None:
        assert event.attempt == 1
        self.batches.append(event)
        self.sent.set()
        self.sent_at.append(asyncio.get_running_loop().time())
        self.of_partition[event.partition] += 1
        self.most_of_partition = max(self.most_of_partition, self.of_partition[event.partition])
        self.most_batches = max(self.most_batches, self.of_partition.total())
        self.bytes += event.batch_bytes
        self.most_bytes = max(self.most_bytes, self.bytes)

    def on_batch_done(self, event: BatchDone) -> None:
        assert event.error is None
        self.of_partition[event.partition] -= 1
        self.bytes -= event.batch_bytes


def simulated() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


async def send(producer: Producer, size: int) -> float:
    """Send ``size`` bytes of records without keys; return the virtual seconds until the last
    acknowledgement.
    """
    start = simulated().time()
    deliveries = [await producer.send("t", b"x" * 1_000) for _ in range(size // 1_000)]
    for delivery in deliveries:
        await delivery
    return simulated().time() - start


async def send_far(
    broker: EmbeddedCluster, size: int, *, warm: bool = True, **settings: Any
) -> tuple[float, Requests]:
    """Send ``size`` bytes in batches of up to 64 KiB to a broker that is far away; return the
    virtual round trips, and what was in flight.
    """
    broker.create_topic("t", PARTITIONS)
    simulated().network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    seen = Requests()
    options: dict[str, Any] = {"largest_batch_size": 64 * KIB, "observers": [seen], **settings}
    async with Producer(broker.bootstrap_servers, **options) as producer:
        if warm:
            first = [
                await producer.send("t", b"first", partition=number) for number in range(PARTITIONS)
            ]
            for delivery in first:
                await delivery
        took_s = await send(producer, size)
        simulated().network.heal()
    assert len(broker.records("t")) == size // 1_000 + warm * PARTITIONS
    return took_s / ROUND_TRIP_S, seen


@pytest.mark.virtual_time
async def test_batches_of_all_partitions_take_one_round_trip(broker: EmbeddedCluster) -> None:
    round_trips, seen = await send_far(broker, 1_500_000)
    assert round_trips < 1.3
    assert seen.most_batches > 20
    assert seen.most_of_partition <= MAX_UNRESOLVED


@pytest.mark.virtual_time
async def test_the_first_batches_of_all_partitions_take_one_round_trip(
    broker: EmbeddedCluster,
) -> None:
    # The connection, meanwhile the topic's metadata; ApiVersions, and the batches.
    round_trips, seen = await send_far(broker, 600_000, warm=False)
    assert round_trips < 3.1
    assert len({event.partition for event in seen.batches}) == len(seen.batches) == 10
    assert seen.most_of_partition == 1


@pytest.mark.virtual_time
async def test_a_partition_has_at_most_five_batches_in_flight(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    simulated().network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    seen = Requests()
    async with Producer(
        broker.bootstrap_servers, largest_batch_size=64 * KIB, observers=[seen]
    ) as producer:
        await producer.send_and_wait("t", b"first")
        # 15 batches, five in each round trip.
        took_s = await send(producer, 15 * 64_000)
        simulated().network.heal()
    assert 3.0 <= took_s / ROUND_TRIP_S < 3.3
    assert seen.most_batches == MAX_UNRESOLVED


@pytest.mark.virtual_time
async def test_batches_grow_until_the_broker_is_connected(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", 1)
    simulated().network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    seen = Requests()
    async with Producer(
        broker.bootstrap_servers, linger_ms=6, largest_batch_size=64 * KIB, observers=[seen]
    ) as producer:
        took_s = await send(producer, 5 * 64_000)
        simulated().network.heal()
    # The connection, ApiVersions, the first batch, and the others.
    assert took_s / ROUND_TRIP_S < 4.1
    assert [event.batch_bytes > 60 * KIB for event in seen.batches] == [True] * 5


@pytest.mark.virtual_time
async def test_a_full_batch_does_not_linger_before_the_broker_is_connected(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers, linger_ms=1_000) as producer:
        await producer.partitions_for("t")
        await producer.send("t", b"lingers")
        await asyncio.sleep(0.1)  # virtual
        assert await send(producer, 20_000) < 0.1


@pytest.mark.virtual_time
async def test_batches_grow_behind_the_first_one_of_their_partition(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t", 2)
    simulated().network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    seen = Requests()
    async with Producer(
        broker.bootstrap_servers, linger_ms=6, largest_batch_size=64 * KIB, observers=[seen]
    ) as producer:
        await producer.send_and_wait("t", b"connected", partition=0)
        seen.sent.clear()
        first = await producer.send("t", b"first", partition=1)
        async with asyncio.timeout(10):
            await seen.sent.wait()
        for _ in range(4 * 64):
            await producer.send("t", b"x" * 1_000, partition=1)
        await first
        await producer.flush()
        simulated().network.heal()
    assert [event.batch_bytes > 60 * KIB for event in seen.batches[2:]] == [True] * 4


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"max_in_flight_requests_per_connection": 4}, 4),
        ({"enable_idempotence": False}, 5),
    ],
    ids=str,
)
async def test_a_far_broker_gets_no_more_requests_than_settings_allow(
    broker: EmbeddedCluster, settings: dict[str, Any], most: int
) -> None:
    round_trips, seen = await send_far(broker, 1_500_000, max_request_size=64 * KIB, **settings)
    assert round_trips > 2
    times = sorted(set(seen.sent_at))
    assert len(times) > most
    # A request leaves after the response to the one that is ``most`` before it.
    waits = [later - at for at, later in zip(times, times[most:], strict=False)]
    assert min(waits) > ROUND_TRIP_S * 0.999


@pytest.mark.virtual_time
async def test_requests_to_a_slow_broker_wait_for_the_socket(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", PARTITIONS)
    network = simulated().network
    network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
    network.slow(1_250_000)  # 10 Mbit/s
    seen = Requests()
    async with Producer(broker.bootstrap_servers, observers=[seen]) as producer:
        for number in range(PARTITIONS):
            await producer.send_and_wait("t", b"first", partition=number)
        took_s = await send(producer, 10_000_000)
        network.heal()
    assert took_s < 9
    # The others wait in the producer, where they have no request timeout.
    assert seen.most_bytes <= 6 * 1024 * KIB


@pytest.mark.virtual_time
async def test_a_near_broker_gets_full_batches_at_once(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", PARTITIONS)
    seen = Requests()
    async with Producer(broker.bootstrap_servers, observers=[seen]) as producer:
        for number in range(PARTITIONS):
            await producer.send_and_wait("t", b"first", partition=number)
        for _ in range(100):
            await producer.send("t", b"x" * 1_000)
        await producer.flush()
    assert max(event.batch_bytes for event in seen.batches) <= 16 * KIB


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("nodes", "one_way_s", "connections"), [(3, 0.125, 3), (4, 0.125, 1), (3, 0.005, 1)]
)
async def test_a_producer_connects_ahead_to_few_brokers_that_are_far(
    nodes: int, one_way_s: float, connections: int
) -> None:
    async with EmbeddedCluster(nodes=nodes) as cluster:
        simulated().network.delay(one_way_s, one_way_s)
        async with Producer(cluster.bootstrap_servers, enable_idempotence=False) as producer:
            await asyncio.sleep(1)  # virtual
            assert producer.metrics()["connection-count"] == connections
        simulated().network.heal()

"""Batches that grow past ``batch_size`` while they can't be sent: default settings use the whole
bandwidth to a broker that is far away.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from aioprod import ConfigError, ErrorCode, Producer
from aioprod.metrics import BatchDone, ProducerObserver
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, fail, hold
from aioprod.testing.simulation import SimulatedLoop

pytestmark = pytest.mark.virtual_time

ROUND_TRIP_S = 0.25
KIB = 1024


class Sizes(ProducerObserver):
    """Notes the size of each acknowledged batch."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_batch_done(self, event: BatchDone) -> None:
        assert event.error is None
        self.sizes.append(event.batch_bytes)


async def seconds_for(
    broker: EmbeddedCluster, size: int, partitions: int, **settings: Any
) -> float:
    """Send ``size`` bytes to a broker that is far away; return the virtual seconds it took."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t", partitions)
    values = [b"%07d" % number + b"x" * 993 for number in range(size // 1_000)]
    async with Producer(broker.bootstrap_servers, **settings) as producer:
        await producer.partitions_for("t")
        await producer.send_and_wait("t", b"first", partition=0)
        loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
        start = loop.time()
        deliveries = [await producer.send("t", value) for value in values]
        await producer.flush()
        took = loop.time() - start
        loop.network.delay(0, 0)
        assert all([(await delivery).offset >= 0 for delivery in deliveries])
        assert producer._pool.available == producer.config.buffer_memory
    stored = [record.value for record in broker.records("t")]
    assert sorted(value for value in stored if value and value != b"first") == values
    return took


@pytest.mark.parametrize("partitions", [1, 12])
async def test_default_settings_carry_ten_megabytes_a_second_to_a_far_broker(
    broker: EmbeddedCluster, partitions: int
) -> None:
    assert await seconds_for(broker, 20_000_000, partitions) < 2.0


@pytest.mark.parametrize(
    "settings",
    [{"batch_size": 20_000}, {"largest_batch_size": 16_384}],
    ids=["batch_size", "largest_batch_size"],
)
async def test_a_batch_size_that_is_set_is_a_limit(
    broker: EmbeddedCluster, settings: dict[str, int]
) -> None:
    seen = Sizes()
    await seconds_for(broker, 1_000_000, 1, observers=[seen], **settings)
    assert max(seen.sizes) <= max(settings.values())


async def test_a_batch_grows_to_largest_batch_size_while_all_requests_are_in_flight(
    broker: EmbeddedCluster,
) -> None:
    broker.create_topic("t")
    seen = Sizes()
    async with Producer(
        broker.bootstrap_servers, largest_batch_size=100 * KIB, linger_ms=60_000, observers=[seen]
    ) as producer:
        await producer.send_and_wait("t", b"first")
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=1)
        deliveries = [await producer.send("t", b"x" * 1_000) for _ in range(500)]
        await kept_back.wait()
        kept_back.release()
        # It is due like any full batch: the linger time does not delay it.
        async with asyncio.timeout(1):
            await deliveries[450]
        await producer.flush()
    sizes = seen.sizes[1:]
    assert sizes[:5] == [sizes[0]] * 5 and sizes[0] <= 16 * KIB
    assert 90 * KIB < max(sizes) <= 100 * KIB


async def test_a_full_batch_that_may_not_grow_takes_no_more_memory(broker: EmbeddedCluster) -> None:
    broker.create_topic("t")
    async with Producer(
        broker.bootstrap_servers,
        batch_size=8 * KIB,
        linger_ms=60_000,
        value_serializer=lambda topic, headers, value: value,  # so the fast path is not taken
    ) as producer:
        await producer.send_and_wait("t", b"first")
        kept_back = broker.on(ApiKey.PRODUCE, hold(), times=5)
        for _ in range(20):  # requests leave in between, as many as may be in flight
            for _ in range(50):
                await producer.send("t", b"x" * 100)
            await asyncio.sleep(0.001)
        await kept_back.wait()
        leased = [batch.leased for batch in producer._accumulator.incomplete]
        assert leased == [8 * KIB] * len(leased) and len(leased) > 10
        kept_back.release()
        await producer.flush()


async def first_batch_to_a_far_broker(
    broker: EmbeddedCluster, size: int, **settings: Any
) -> tuple[int, float]:
    """Return the bytes of the first of many batches, and the virtual seconds until its response."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t")
    seen = Sizes()
    async with Producer(broker.bootstrap_servers, observers=[seen], **settings) as producer:
        await producer.partitions_for("t")
        loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
        await producer.send_and_wait("t", b"far")
        start = loop.time()
        deliveries = [await producer.send("t", b"x" * 1_000) for _ in range(size // 1_000)]
        await deliveries[0]
        took = loop.time() - start
        await producer.flush()
        loop.network.delay(0, 0)
    return seen.sizes[1], took


async def test_a_full_batch_for_a_far_broker_lingers(broker: EmbeddedCluster) -> None:
    size, took_s = await first_batch_to_a_far_broker(broker, 200_000)
    assert size > 200_000
    assert took_s < ROUND_TRIP_S + 0.006


@pytest.mark.parametrize("settings", [{"linger_ms": 6}, {"batch_size": 16_385}])
async def test_settings_of_java_have_their_meaning_for_a_far_broker(
    broker: EmbeddedCluster, settings: dict[str, int]
) -> None:
    size, _ = await first_batch_to_a_far_broker(broker, 200_000, **settings)
    assert size <= 16_385


async def test_a_batch_of_the_largest_size_does_not_linger(broker: EmbeddedCluster) -> None:
    size, took_s = await first_batch_to_a_far_broker(broker, 300_000, largest_batch_size=100_000)
    assert 90_000 < size <= 100_000
    assert took_s < ROUND_TRIP_S + 0.002


async def test_a_broker_that_is_near_again_gets_full_batches_at_once(
    broker: EmbeddedCluster,
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t")
    seen = Sizes()
    async with Producer(broker.bootstrap_servers, observers=[seen]) as producer:
        await producer.partitions_for("t")
        loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
        await producer.send_and_wait("t", b"far")
        loop.network.delay(0, 0)
        await producer.send_and_wait("t", b"near")
        for _ in range(100):
            await producer.send("t", b"x" * 1_000)
        await producer.flush()
    assert seen.sizes[2] <= 16 * KIB


async def test_a_topic_that_refuses_grown_batches_gets_smaller_ones(
    broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create_topic("t", configs={"max.message.bytes": "100000"})
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        await producer.send_and_wait("t", b"first")
        loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
        refused = []
        for _ in range(2):
            for number in range(10_000):
                await producer.send("t", b"%04d" % number + b"x" * 996)
            await producer.flush()
            refused.append(producer.metrics()["batch-split-total"])
        loop.network.delay(0, 0)
    values = [record.value for record in broker.records("t")]
    expected = [b"%04d" % number + b"x" * 996 for number in range(10_000)]
    assert values == [b"first", *expected, *expected]
    assert refused[1] == refused[0] > 0, "the size that the topic accepts is remembered"
    assert not [record for record in caplog.records if "lower batch_size" in record.message]


async def test_growth_ends_with_the_memory(broker: EmbeddedCluster) -> None:
    seen = Sizes()
    await seconds_for(broker, 2_000_000, 1, buffer_memory=200_000, observers=[seen])
    assert 16 * KIB < max(seen.sizes) <= 200_000


@pytest.mark.parametrize("idempotent", [True, False])
async def test_retried_batches_that_have_grown_keep_their_order(
    broker: EmbeddedCluster, idempotent: bool
) -> None:
    broker.create_topic("t")
    in_flight = 5 if idempotent else 1
    seen = Sizes()
    async with Producer(
        broker.bootstrap_servers,
        enable_idempotence=idempotent,
        max_in_flight_requests_per_connection=in_flight,
        observers=[seen],
    ) as producer:
        for start in range(0, 9_000, 3_000):
            broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=3)
            for number in range(start, start + 3_000):
                await producer.send("t", b"%04d" % number + b"x" * 500)
        await producer.flush()
    values = [record.value for record in broker.records("t")]
    assert values == [b"%04d" % number + b"x" * 500 for number in range(9_000)]
    assert max(seen.sizes) > 16 * KIB


async def test_many_rows_of_a_table_are_in_flight_together(broker: EmbeddedCluster) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    broker.create_topic("t")
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.partitions_for("t")
        await producer.send_and_wait("t", b"first")
        loop.network.delay(ROUND_TRIP_S / 2, ROUND_TRIP_S / 2)
        start = loop.time()
        values = [b"x" * 1_000] * 500
        await producer.send_arrow("t", pa.table({"value": values}))
        await producer.flush()
        assert loop.time() - start < 2 * ROUND_TRIP_S
        loop.network.delay(0, 0)
    assert len(broker.records("t")) == 501


def test_a_largest_size_below_batch_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="largest_batch_size=1000: must be at least"):
        Producer("localhost:9092", largest_batch_size=1_000)

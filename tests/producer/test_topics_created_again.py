"""Topics that are deleted and made again, or grow, under a running producer."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import DeliveryTimeoutError, ErrorCode, Producer
from aioprod.testing import ApiKey, EmbeddedCluster, fail

FAST = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "linger_ms": 0,
    "delivery_timeout_ms": 600,
    "request_timeout_ms": 300,
}


async def metadata_with(producer: Producer, topic: str, partitions: int) -> None:
    async with asyncio.timeout(5):
        while len(await producer.partitions_for(topic)) != partitions:
            producer._metadata.request_update()
            await asyncio.sleep(0.002)


@pytest.mark.virtual_time
@pytest.mark.parametrize("partitions", [1, 2, 5])
async def test_a_topic_that_was_made_again_takes_records(
    broker: EmbeddedCluster, partitions: int
) -> None:
    broker.create_topic("t", num_partitions=3)
    async with Producer(broker.bootstrap_servers, **FAST) as producer:  # type: ignore[call-overload]
        for partition in range(3):
            await producer.send_and_wait("t", b"old", partition=partition)
        broker.delete_topic("t")
        broker.create_topic("t", num_partitions=partitions)
        await metadata_with(producer, "t", partitions)
        placed = [
            await producer.send_and_wait("t", b"new", b"key-%d" % number) for number in range(40)
        ]
        assert {metadata.partition for metadata in placed} == set(range(partitions))
    assert len(broker.records("t")) == 40


@pytest.mark.virtual_time
async def test_what_waits_for_a_partition_that_is_gone_expires(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=3)
    async with Producer(broker.bootstrap_servers, **{**FAST, "linger_ms": 200}) as producer:  # type: ignore[call-overload]
        await producer.partitions_for("t")
        waiting = await producer.send("t", b"x", partition=2)
        broker.delete_topic("t")
        broker.create_topic("t", num_partitions=1)
        await metadata_with(producer, "t", 1)
        with pytest.raises(DeliveryTimeoutError):
            await waiting
        assert (await producer.send_and_wait("t", b"x")).partition == 0
        assert producer._pool.available == producer.config.buffer_memory


@pytest.mark.virtual_time
async def test_new_partitions_are_used(broker: EmbeddedCluster) -> None:
    broker.create_topic("t", num_partitions=1)
    async with Producer(broker.bootstrap_servers, **FAST, metadata_max_age_ms=20) as producer:  # type: ignore[call-overload]
        await producer.send_and_wait("t", b"x")
        broker.delete_topic("t")
        broker.create_topic("t", num_partitions=4)
        await metadata_with(producer, "t", 4)
        assert (await producer.send_and_wait("t", b"x", partition=3)).partition == 3


@pytest.mark.virtual_time
async def test_the_first_batch_after_that_travels_alone(broker: EmbeddedCluster) -> None:
    """The new topic's log knows nothing of the producer, and takes any first sequence number."""
    broker.create_topic("t", num_partitions=1)
    async with Producer(
        broker.bootstrap_servers, linger_ms=0, batch_size=1, retry_backoff_ms=50
    ) as producer:
        for number in range(10):
            await producer.send_and_wait("t", b"old %d" % number)
        broker.delete_topic("t")
        broker.create_topic("t", num_partitions=1)
        async with asyncio.timeout(5):
            while producer._metadata.snapshot.topic_id("t") != broker.topics["t"].topic_id:
                producer._metadata.request_update()
                await asyncio.sleep(0.002)
        broker.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        deliveries = []
        for number in range(8):
            deliveries.append(await producer.send("t", b"%d" % number))
            await asyncio.sleep(0)
        offsets = [(await delivery).offset for delivery in deliveries]
        assert producer._core.producer_state.bumps == 0
    assert offsets == list(range(8))
    assert [record.value for record in broker.records("t")] == [b"%d" % n for n in range(8)]

"""Records that come one at a time, as to most consumers that wait."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import Consumer, Producer, TopicPartition
from aioprod.consumer.fetcher import Fetcher
from aioprod.testing import EmbeddedCluster

RECORDS = 30


async def test_one_look_at_the_partitions_is_enough_for_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each response the next fetch is sent. That the record was read then changes nothing."""
    looks = 0
    step = Fetcher.step

    def counted(self: Fetcher, now: float) -> float:
        nonlocal looks
        looks += 1
        return step(self, now)

    monkeypatch.setattr(Fetcher, "step", counted)
    async with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        async with (
            Producer(bootstrap_servers=servers, linger_ms=0) as producer,
            Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("t", 0)])
            for number in range(RECORDS + 5):
                if number == 5:
                    looks = 0
                reading = asyncio.ensure_future(consumer.getone())
                await producer.send_and_wait("t", b"%d" % number, partition=0)
                assert (await reading).value == b"%d" % number
    assert looks < 1.5 * RECORDS


async def test_reading_goes_on_after_each_response_that_fills_the_buffer() -> None:
    """The fetch that waits for room is sent when the application has read."""
    async with EmbeddedCluster() as cluster:
        cluster.create_topic("t", 2)
        servers = cluster.bootstrap_servers
        async with Producer(bootstrap_servers=servers, batch_size=6_000) as producer:
            for partition in (0, 1):
                for number in range(200):
                    await producer.send("t", b"%03d" % number + bytes(5_000), partition=partition)
        async with Consumer(
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=20_000,
            max_buffered_bytes=30_000,
        ) as consumer:
            consumer.assign([TopicPartition("t", partition) for partition in (0, 1)])
            found: dict[int, list[int]] = {0: [], 1: []}
            for _ in range(400):
                record = await consumer.getone(timeout_ms=10_000)
                assert record.value is not None
                found[record.partition].append(int(record.value[:3]))
    assert found == {0: list(range(200)), 1: list(range(200))}

"""Cancelling at every await of the producer's calls: nothing leaks, nothing acknowledged is lost,
and later sends work.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from aioprod import Delivery, KafkaError, Producer, ProducerRecord
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, delay, hold


def quick(broker: EmbeddedCluster, **settings: Any) -> Producer:
    return Producer(
        broker.bootstrap_servers,
        retry_backoff_ms=1,
        retry_backoff_max_ms=5,
        reconnect_backoff_ms=1,
        **settings,
    )


def values(broker: EmbeddedCluster, topic: str) -> list[bytes]:
    return [record.value or b"" for record in broker.records(topic)]


def assert_nothing_kept(producer: Producer) -> None:
    assert not producer._accumulator.incomplete
    assert producer._pool.available == producer.config.buffer_memory
    assert producer._pool.waiting == 0


async def test_start_and_close(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.METADATA, delay(0.001), times=None)
    before = asyncio.all_tasks()
    producers: list[Producer] = []

    async def scenario(number: int) -> None:
        producers.append(quick(broker))
        async with producers[-1] as producer:
            await producer.send("t", b"%d" % number)

    async def check(number: int, cancelled: bool) -> None:
        await producers[-1].close()
        for task in asyncio.all_tasks() - before:
            if task.get_name().startswith("aioprod-"):
                await asyncio.wait([task], timeout=2)
                assert task.done(), f"point {number}: {task.get_name()} is left"
        assert_nothing_kept(producers[-1])

    assert await cancel_at_each_point(scenario, check) >= 4
    assert values(broker, "t")[-1] == b"%d" % len(producers), "the last one was not cancelled"


async def test_start_that_was_cancelled_may_be_tried_again(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.METADATA, delay(0.001), times=None)
    producers: dict[int, Producer] = {}

    async def scenario(number: int) -> None:
        producers[number] = quick(broker)
        await producers[number].start()

    async def check(number: int, cancelled: bool) -> None:
        async with producers[number] as producer:
            await producer.send_and_wait("t", b"%d" % number)

    assert await cancel_at_each_point(scenario, check) >= 2


@pytest.mark.parametrize("waiting_for", ["metadata", "memory", "acknowledgement", "a full batch"])
async def test_send(broker: EmbeddedCluster, waiting_for: str) -> None:
    settings = {
        "memory": {"buffer_memory": 3_000, "batch_size": 1_000},
        "a full batch": {"batch_size": 300},
    }.get(waiting_for, {})
    async with quick(broker, linger_ms=1, **settings) as producer:
        acknowledged: list[bytes] = []

        async def scenario(number: int) -> None:
            topic = f"new-{number}" if waiting_for == "metadata" else "t"
            if waiting_for == "memory":
                broker.on(ApiKey.PRODUCE, delay(0.002), times=3)
            for part in range(12):
                value = b"%d-%d" % (number, part) + b"x" * (250 if topic == "t" else 1)
                await producer.send_and_wait(
                    topic, value
                ) if waiting_for == "acknowledgement" else await producer.send(topic, value)
                if waiting_for == "acknowledgement":
                    acknowledged.append(value)

        async def check(number: int, cancelled: bool) -> None:
            await producer.flush()
            assert_nothing_kept(producer)
            await producer.send_and_wait("t", b"later")

        assert await cancel_at_each_point(scenario, check) >= 1
        assert set(acknowledged) <= set(values(broker, "t"))
        stored = [value for value in values(broker, "t") if value != b"later"]
        assert len(stored) == len(set(stored)), "a cancelled send is taken once or not at all"


async def test_send_many(broker: EmbeddedCluster) -> None:
    async with quick(broker, linger_ms=1, batch_size=300, buffer_memory=1_000) as producer:

        async def scenario(number: int) -> None:
            deliveries = await producer.send_many(
                "t",
                [ProducerRecord("t", b"%d-%d" % (number, part) + b"x" * 100) for part in range(20)],
            )
            for delivery in deliveries:
                await delivery

        async def check(number: int, cancelled: bool) -> None:
            await producer.flush()
            assert_nothing_kept(producer)

        assert await cancel_at_each_point(scenario, check) > 5
        stored = values(broker, "t")
        assert len(stored) == len(set(stored))


async def test_flush(broker: EmbeddedCluster) -> None:
    async with quick(
        broker, linger_ms=60_000, delivery_timeout_ms=120_000, batch_size=200, buffer_memory=600
    ) as producer:
        await producer.partitions_for("t")
        deliveries: list[Delivery] = []

        async def scenario(number: int) -> None:
            deliveries.extend([await producer.send("t", b"%d" % number * 20) for _ in range(20)])
            await producer.flush()

        async def check(number: int, cancelled: bool) -> None:
            await producer.flush()
            assert producer._accumulator.flushes == 0, (
                "a flush that was cancelled must not switch lingering off forever"
            )
            assert_nothing_kept(producer)

        assert await cancel_at_each_point(scenario, check) >= 2
        for delivery in deliveries:
            await delivery


async def test_close(broker: EmbeddedCluster) -> None:
    broker.on(ApiKey.PRODUCE, delay(0.001), times=None)
    before = asyncio.all_tasks()
    opened: dict[int, tuple[Producer, list[Delivery]]] = {}

    async def scenario(number: int) -> None:
        producer = quick(broker, batch_size=100, buffer_memory=200)
        deliveries: list[Delivery] = []
        opened[number] = producer, deliveries
        await producer.start()
        for part in range(10):
            deliveries.append(await producer.send("t", b"%d-%d" % (number, part) + b"x" * 50))
        await producer.close(timeout_ms=5_000)

    async def check(number: int, cancelled: bool) -> None:
        producer, deliveries = opened[number]
        await producer.close()
        for delivery in deliveries:
            assert delivery.done(), f"point {number}: a delivery hangs"
            if delivery.exception() is None:
                assert delivery.result().offset < len(values(broker, "t"))
        assert_nothing_kept(producer)
        left = [
            task for task in asyncio.all_tasks() - before if task.get_name().startswith("aioprod-")
        ]
        if left:
            await asyncio.wait(left, timeout=2)
        assert all(task.done() for task in left), left

    assert await cancel_at_each_point(scenario, check) > 10


async def test_every_task_but_ours_cancelled_from_outside(broker: EmbeddedCluster) -> None:
    # Frameworks that cancel all tasks on shutdown: sends must raise, not hang (TRAPS 8).
    producer = quick(broker)
    await producer.start()
    await producer.send_and_wait("t", b"x")
    released = asyncio.Event()
    broker.on(ApiKey.PRODUCE, hold(released), times=None)
    pending = await producer.send("t", b"y")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name().startswith("aioprod-"):
            task.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await pending
        with pytest.raises(KafkaError, match="cancelled from outside"):
            await producer.send("t", b"z")
        await producer.close()
    released.set()


async def test_ten_thousand_cancelled_waits_leave_nothing(broker: EmbeddedCluster) -> None:
    # TRAPS 15 and 16: waiters that give up must not pile up on what lives long.
    async with quick(broker, buffer_memory=2_000, batch_size=1_000, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"x")
        released = asyncio.Event()
        broker.on(ApiKey.PRODUCE, hold(released))
        taken = [await producer.send("t", b"x" * 700) for _ in range(2)]
        waiting = [asyncio.ensure_future(producer.send("t", b"y" * 700)) for _ in range(10_000)]
        awaiting = [asyncio.ensure_future(_wait(taken[0])) for _ in range(10_000)]
        await asyncio.sleep(0)
        assert producer.metrics()["waiting-threads"] == 10_000
        for task in (*waiting, *awaiting):
            task.cancel()
        await asyncio.wait([*waiting, *awaiting])
        assert producer.metrics()["waiting-threads"] == producer._pool.waiting == 0
        assert not taken[0].position[0]._waiters
        released.set()
        for delivery in taken:
            await delivery
        await producer.send_and_wait("t", b"next")
        assert_nothing_kept(producer)
    gc.collect()


async def _wait(delivery: Delivery) -> None:
    await delivery

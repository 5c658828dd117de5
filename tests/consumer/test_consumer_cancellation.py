"""Cancelling at every await of the consumer's calls: no record is lost or comes twice, no task or
waiter is left, and close always ends.
"""

from __future__ import annotations

import asyncio
import gc

import pytest

from aioprod import Consumer, ConsumerStatus
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point, delay, hold
from tests.consumer.number_topics import TOPIC, TP, assert_idle, consumer_of, fill, numbers, reading


async def assert_no_task_left(before: set[asyncio.Task[object]], number: int) -> None:
    for task in asyncio.all_tasks() - before:
        if task.get_name().startswith("aioprod-"):
            await asyncio.wait([task], timeout=2)
            assert task.done(), f"point {number}: {task.get_name()} is left"


async def test_start_reading_and_close(broker: EmbeddedCluster) -> None:
    await fill(broker, 10)
    broker.on(ApiKey.FETCH, delay(0.001), times=None)
    before = asyncio.all_tasks()
    consumers: list[Consumer] = []

    async def scenario(number: int) -> None:
        consumers.append(consumer_of(broker, TOPIC))
        async with consumers[-1] as consumer:
            for _ in range(10):
                await consumer.getone()

    async def check(number: int, cancelled: bool) -> None:
        await consumers[-1].close()
        assert consumers[-1].state.status is ConsumerStatus.STOPPED
        await assert_no_task_left(before, number)

    assert await cancel_at_each_point(scenario, check) >= 3


async def test_a_start_that_was_cancelled_may_be_tried_again(broker: EmbeddedCluster) -> None:
    await fill(broker, 1)
    consumers: dict[int, Consumer] = {}

    async def scenario(number: int) -> None:
        consumers[number] = consumer_of(broker, TOPIC)
        await consumers[number].start()

    async def check(number: int, cancelled: bool) -> None:
        async with consumers[number] as consumer:
            assert numbers([await consumer.getone(5_000)]) == [0]

    assert await cancel_at_each_point(scenario, check) >= 2


@pytest.mark.parametrize("way", ["getone", "getmany", "async for"])
async def test_calls_for_records(broker: EmbeddedCluster, way: str) -> None:
    """A record returned before a cancellation is returned once, and the others afterwards."""
    broker.on(ApiKey.FETCH, delay(0.001), times=None)
    found: list[int] = []
    written = 50
    await fill(broker, 50)
    async with reading(
        broker, max_partition_fetch_bytes=150, max_buffered_bytes=150, max_poll_records=4
    ) as consumer:

        async def read_some() -> None:
            if way == "getone":
                found.append(int((await consumer.getone()).value))
            elif way == "getmany":
                found.extend(numbers(await consumer.getmany(3)))
            else:
                async for record in consumer:
                    found.append(int(record.value))
                    break

        async def scenario(number: int) -> None:
            while len(found) < written:
                await read_some()

        async def check(number: int, cancelled: bool) -> None:
            nonlocal written
            async with asyncio.timeout(10):
                while len(found) < written:
                    await read_some()
            assert found == list(range(written)), f"point {number}"
            assert_idle(consumer)
            await fill(broker, 50, first=written)
            written += 50

        assert await cancel_at_each_point(scenario, check) >= 3


@pytest.mark.parametrize("call", ["position", "seek_to_end", "end_offsets", "topics"])
async def test_questions(broker: EmbeddedCluster, call: str) -> None:
    await fill(broker, 5)
    async with reading(broker) as consumer:

        async def scenario(number: int) -> None:
            if call == "position":
                await consumer.seek_to_beginning()
                await consumer.position(TP)
            elif call == "seek_to_end":
                await consumer.seek_to_end()
            elif call == "end_offsets":
                await consumer.end_offsets([TP])
            else:
                await consumer.topics()

        async def check(number: int, cancelled: bool) -> None:
            await consumer.seek_to_beginning()
            assert numbers(await consumer.getmany(5)) == list(range(5))

        assert await cancel_at_each_point(scenario, check) >= 1


async def test_close_while_a_call_is_at_any_of_its_awaits(broker: EmbeddedCluster) -> None:
    """The other side of it: another task closes."""
    await fill(broker, 3)
    before = asyncio.all_tasks()
    for turns in range(12):
        consumer = consumer_of(broker, TOPIC)

        async def read(consumer: Consumer = consumer) -> None:
            async with consumer:
                async for _ in consumer:
                    pass

        task = asyncio.ensure_future(read())
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(3):
            await consumer.close()
            await asyncio.wait([task])
        assert not task.cancelled()
        task.exception()
        await assert_no_task_left(before, turns)


async def test_close_ends_in_time_when_no_broker_answers(broker: EmbeddedCluster) -> None:
    await fill(broker, 3)
    async with reading(broker) as consumer:
        await consumer.getone()
        for api in (ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS):
            broker.on(api, hold(), times=None)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await consumer.close(200)
        assert loop.time() - began < 2.5


async def test_every_task_of_the_clients_cancelled_from_outside_is_reported(
    broker: EmbeddedCluster,
) -> None:
    """Sweeps over all tasks, as some frameworks make them, must not leave a consumer that hangs."""
    await fill(broker, 3)
    before = asyncio.all_tasks()
    async with reading(broker, metadata_max_age_ms=20) as consumer:
        await consumer.getmany()
        for task in asyncio.all_tasks() - before:
            if task.get_name().startswith("aioprod-"):
                task.cancel()
        with pytest.raises(Exception, match=r"metadata task was cancelled from outside|closed"):
            async with asyncio.timeout(5):
                while True:
                    await consumer.getmany(timeout_ms=100)


async def test_idle_polls_pile_nothing_up(broker: EmbeddedCluster) -> None:
    """A million of them would show it as well; what grows with each is seen after a few
    thousand.
    """
    broker.create_topic(TOPIC)
    async with reading(broker, fetch_max_wait_ms=1_000) as consumer:
        for _ in range(200):
            await consumer.getmany(timeout_ms=0)
        gc.collect()
        before = len(gc.get_objects())
        for _ in range(20_000):
            assert await consumer.getmany(timeout_ms=0) == []
        for _ in range(50):
            assert await consumer.getmany(timeout_ms=1) == []
        gc.collect()
        assert len(gc.get_objects()) - before < 500
        assert len(asyncio.all_tasks()) < 20

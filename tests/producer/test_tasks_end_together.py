"""The end of an event loop: ``asyncio.run`` cancels all tasks at once, and closes the loop."""

from __future__ import annotations

import asyncio

import pytest

from aioprod import Producer
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, hold


def own_tasks() -> set[asyncio.Task[object]]:
    """Return the tasks of aioprod; asyncio has one that accepts a connection for the broker."""
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("aioprod-")}


@pytest.mark.parametrize("turns", range(6))
async def test_a_producer_starts_nothing_after_all_tasks_were_cancelled(turns: int) -> None:
    """Its callbacks still run, and must not replace a task that has ended."""
    async with EmbeddedCluster() as broker:
        broker.create_topic("orders")
        broker.on(ApiKey.INIT_PRODUCER_ID, hold(), times=1)
        before = own_tasks()
        producer = Producer(broker.bootstrap_servers, linger_ms=0)
        await producer.start()
        await producer.partitions_for("orders")
        await producer.send("orders", b"1")
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks = own_tasks() - before
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(5):
            await asyncio.sleep(0)
        assert own_tasks() == before
        await producer.close(0)

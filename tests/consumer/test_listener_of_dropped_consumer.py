"""A rebalance listener that refers to its consumer, as one that seeks does."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from aioprod import Consumer, Producer, RebalanceListener, TopicPartition
from aioprod.testing import EmbeddedCluster


class Seeking(RebalanceListener):
    def __init__(self, consumer: Consumer, calls: list[str]) -> None:
        self.consumer = consumer
        self.calls = calls

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("assigned")
        self.consumer.seek(partitions[0], 0)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append("revoked")


async def reading(broker: EmbeddedCluster, calls: list[str]) -> Consumer:
    """Return a consumer that has read a record; only it keeps its listener alive."""
    broker.create_topic("t", 1)
    async with Producer(broker.bootstrap_servers) as producer:
        await producer.send_and_wait("t", b"x")
    consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g")
    await consumer.start()
    consumer.subscribe(["t"], listener=Seeking(consumer, calls))
    gc.collect()
    assert (await consumer.getone(timeout_ms=10_000)).value == b"x"
    return consumer


async def test_it_does_not_keep_a_dropped_consumer_alive(broker: EmbeddedCluster) -> None:
    calls: list[str] = []
    consumer = await reading(broker, calls)
    watched = weakref.ref(consumer)
    del consumer
    with pytest.warns(ResourceWarning, match="keeps its 1 partition"):
        gc.collect()
    async with asyncio.timeout(5):
        while left := {t for t in asyncio.all_tasks() if t.get_name().startswith("aioprod-")}:
            await asyncio.wait(left, timeout=0.01)
    gc.collect()
    assert watched() is None
    assert calls == ["assigned"]


async def test_it_is_called_if_close_is_cancelled_and_the_consumer_dropped(
    broker: EmbeddedCluster,
) -> None:
    calls: list[str] = []
    consumer = await reading(broker, calls)
    closing = asyncio.create_task(consumer.close())
    del consumer
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    del closing
    gc.collect()
    await broker.wait_for_group("g", "Empty", timeout_seconds=5)
    assert calls == ["assigned", "revoked"]

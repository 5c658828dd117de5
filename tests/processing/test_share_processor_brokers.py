"""Processors of share groups on a real broker and on the embedded one, cancelled at each point, and
while nodes and leaders change: nothing is lost, and what is confirmed is not handled again.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aioprod import Admin, Consumer, ProducerRecord, ShareConsumerSettings
from aioprod.admin import NewTopic
from aioprod.processing import (
    Acknowledged,
    ProcessorObserver,
    Record,
    RetryPolicy,
    ShareProcessor,
)
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, cancel_at_each_point
from tests.consumer.share.conftest import share_broker as share_broker
from tests.consumer.share.share_groups import ShareTopic, lag
from tests.consumer.share.test_share_embedded_faults import COUNT, REFUSED, disturb
from tests.waiting import until

Raw = Record[bytes | None, bytes | None]
ACKNOWLEDGE = ApiKey.SHARE_ACKNOWLEDGE
FAST: ShareConsumerSettings = {"fetch_max_wait_ms": 100}


class Ledger(ProcessorObserver):
    """Notes what was handled, and what was confirmed; a member of its own for each processor."""

    def __init__(self, sure: set[int], handled: set[int]) -> None:
        self.sure = sure
        self.handled = handled
        self._done: set[int] = set()

    async def handle(self, record: Raw) -> None:
        assert record.offset not in self.sure
        await asyncio.sleep(0.001)
        self.handled.add(record.offset)
        self._done.add(record.offset)

    def on_acknowledged(self, event: Acknowledged) -> None:
        for offsets in event.offsets.values():
            if event.error is None:
                self.sure.update(offsets & self._done)
            self._done.difference_update(offsets)


async def until_done(topic: ShareTopic, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while await lag(topic) != 0:  # noqa: ASYNC110 - a state of the broker
            await asyncio.sleep(0.1)


async def test_all_ways_of_a_record(share_broker: str) -> None:
    topic = ShareTopic(share_broker)
    await topic.create(partitions=2, share_record_lock_duration_ms="1000")
    dead, out = f"{topic.topic}.dead", f"{topic.topic}.out"
    async with Admin(share_broker) as admin:
        await admin.create_topics([NewTopic(dead, 1), NewTopic(out, 1)])
    calls: list[tuple[bytes | None, int, int]] = []

    async def handle(record: Raw) -> ProducerRecord:
        calls.append((record.value, record.attempt, record.delivery_count))
        if record.value == b"1":
            raise ValueError("never")
        if record.value == b"2" and record.delivery_count == 1:
            raise ValueError("not here")
        if record.value == b"3":
            await asyncio.sleep(2.5)  # longer than two locks
        return ProducerRecord(out, record.value)

    await topic.write(range(4))
    await topic.write(range(4, 20), partition=1)
    settings: dict[str, Any] = {
        "bootstrap_servers": share_broker,
        "group_id": topic.group,
        "retry": RetryPolicy(attempts=2, backoff_ms=10),
        "dead_letter_topic": dead,
        "consumer": FAST,
    }
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(ShareProcessor(handle, topic.topic, **settings))
        for partition in (0, 1):
            async with asyncio.timeout(30):
                while await lag(topic, partition) != 0:  # noqa: ASYNC110 - a state of the broker
                    await asyncio.sleep(0.1)
    assert sorted(call for call in calls if call[0] in (b"1", b"2")) == [
        (b"1", 1, 1),
        (b"1", 1, 2),
        (b"1", 2, 1),
        (b"1", 2, 2),
        (b"2", 1, 1),
        (b"2", 1, 2),
        (b"2", 2, 1),
    ]
    assert len(calls) == 20 + 3 + 2
    async with Consumer(
        dead, out, bootstrap_servers=share_broker, auto_offset_reset="earliest"
    ) as consumer:
        found = [await consumer.getone(timeout_ms=20_000) for _ in range(20)]
    assert sorted(str(each.value) for each in found if each.topic == out) == sorted(
        str(b"%d" % number) for number in range(20) if number != 1
    )
    (letter,) = (each for each in found if each.topic == dead)
    assert dict(letter.headers)["aioprod.delivery-count"] == b"2"


async def test_cancelled_at_each_point_it_loses_nothing_and_leaves_nothing(
    share_broker: str,
) -> None:
    topic = ShareTopic(share_broker)
    await topic.create(share_record_lock_duration_ms="60000", share_delivery_count_limit="10")
    await topic.write(range(100))
    ledger = Ledger(set(), set())

    def processor() -> ShareProcessor[Any, Any]:
        return ShareProcessor(
            ledger.handle,
            topic.topic,
            bootstrap_servers=share_broker,
            group_id=topic.group,
            concurrency=2,
            reject_failed=True,
            consumer=FAST,
            observers=[ledger],
        )

    async def scenario(number: int) -> None:
        async with processor() as it:
            await until(lambda: it.metrics()["records-accepted-total"], 20)

    async def check(number: int, cancelled: bool) -> None:
        tasks = [task for task in asyncio.all_tasks() if "aioprod" in task.get_name()]
        assert not tasks or not (await asyncio.wait(tasks, timeout=5))[1]

    assert await cancel_at_each_point(scenario, check) >= 6
    assert ledger.sure
    async with processor():
        await until_done(topic)
    assert ledger.handled == set(range(100))


@pytest.mark.parametrize("members", [1, 3])
async def test_nothing_is_lost_and_nothing_confirmed_is_handled_again(members: int) -> None:
    async with EmbeddedCluster(nodes=3) as cluster:
        topic = ShareTopic(cluster.bootstrap_servers)
        await topic.create(share_record_lock_duration_ms="1000", share_delivery_count_limit="10")
        sure: set[int] = set()
        handled: set[int] = set()
        async with AsyncExitStack() as stack:
            for _ in range(members):
                ledger = Ledger(sure, handled)
                it: ShareProcessor[Any, Any] = ShareProcessor(
                    ledger.handle,
                    topic.topic,
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id=topic.group,
                    concurrency=4,
                    reject_failed=True,
                    consumer=FAST,
                    observers=[ledger],
                )
                await stack.enter_async_context(it)
            # Its acknowledgements go with fetches.
            await disturb(cluster, topic, [each for each in REFUSED if each[0] != ACKNOWLEDGE])
            await until_done(topic)
        assert handled == set(range(COUNT + 1))
        assert len(sure) > COUNT / 2

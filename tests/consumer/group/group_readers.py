"""Consumers that come and go while records are written, each noting what it processed and
committing when it has to give partitions away.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any, Protocol

from aioprod import Producer
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.consumer import Consumer
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from aioprod.types import TopicPartition
from tests.waiting import until

QUICK: dict[str, Any] = {
    "heartbeat_interval_ms": 50,
    "session_timeout_ms": 6_000,
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
}
LIMIT_S = 60.0


async def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic and wait until it can be written."""
    async with ClusterClient(bootstrap) as client:
        reply = await client.request(
            CreateTopicsRequest([CreatableTopic(name, partitions, 1)], 10_000)
        )
        assert reply.topics[0].error_code == 0, reply
    async with Producer(bootstrap) as producer:
        async with asyncio.timeout(LIMIT_S):
            while await producer.partitions_for(name) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


class Reading(Protocol):
    """A member of a group, ours or a foreign one."""

    async def leave(self) -> None:
        """End it; raise what went wrong."""


class Reader(RebalanceListener):
    """One of our consumers in a task of its own."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        processed: list[bytes],
        group_id: str = "g",
        **settings: Any,
    ) -> None:
        self.processed = processed
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.owned: set[TopicPartition] = set()
        self.leaving = False
        self.consumer = Consumer(
            bootstrap_servers=bootstrap,
            **{
                **QUICK,
                "group_id": group_id,
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                **settings,
            },
        )
        self.topic = topic
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        async with self.consumer as consumer:
            consumer.subscribe([self.topic], listener=self)
            while not self.leaving:
                records = await consumer.getmany(timeout_ms=50)
                self.processed.extend(record.value for record in records)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions))
        self.owned.update(partitions)

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions))
        self.owned.difference_update(partitions)
        await self.consumer.commit()

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", partitions))
        self.owned.difference_update(partitions)

    async def leave(self) -> None:
        self.leaving = True
        async with asyncio.timeout(LIMIT_S):
            await self.task


async def shared_out(members: list[Reader], partitions: int) -> None:
    """Wait until each of our members has partitions, and together they have all."""
    async with asyncio.timeout(LIMIT_S):
        while not all(each.owned for each in members) or partitions != sum(
            len(each.owned) for each in members
        ):
            await asyncio.sleep(0.01)
            raise_failures(members)


def raise_failures(members: list[Any]) -> None:
    """Raise the error of a member that has ended."""
    for each in members:
        if each.task.done():
            each.task.result()


class Writer:
    """Writes numbered records until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.written: list[bytes] = []
        self._arguments = bootstrap, topic, partitions
        self._stopping = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        bootstrap, topic, partitions = self._arguments
        async with Producer(bootstrap, linger_ms=1) as producer:
            while not self._stopping:
                for _ in range(20):
                    value = str(len(self.written)).encode()
                    self.written.append(value)
                    await producer.send(topic, value, partition=len(self.written) % partitions)
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stopping = True
        async with asyncio.timeout(LIMIT_S):
            await self.task


async def all_processed(
    written: list[bytes], processed: list[bytes], limit_s: float = LIMIT_S
) -> None:
    """Wait until as many were processed as were written."""
    try:
        await until(lambda: len(processed) >= len(written), limit_s)
    except TimeoutError:
        missing = [value for value in written if value not in set(processed)]
        raise AssertionError(
            f"{len(processed)} of {len(written)} processed; missing {missing[:20]}"
        ) from None


def check_once(written: list[bytes], processed: list[bytes]) -> None:
    """Each record was processed once."""
    doubled = {value: count for value, count in Counter(processed).items() if count > 1}
    assert not doubled, (
        f"processed more than once: {len(doubled)} of {len(written)}, such as "
        f"{sorted(doubled.items())[:10]}"
    )
    assert sorted(processed) == sorted(written)


async def come_and_go(
    bootstrap: str,
    topic: str,
    partitions: int,
    changes: int,
    rng: random.Random,
    makers: list[Any],
    pause_s: float = 0.3,
    join_first: bool = False,
) -> tuple[list[bytes], list[bytes], list[Any]]:
    """Members of all makes join and leave at random while records are written; returns what was
    written, what was processed, and all members.

    Args:
        join_first: before that, the second of our members joins the first, which has all partitions
            by then, and gets its share.
    """
    processed: list[bytes] = []
    writer = Writer(bootstrap, topic, partitions)
    present = [makers[0](bootstrap, topic, processed)]
    ever = list(present)
    try:
        if join_first:
            await shared_out(present, partitions)
            present.append(makers[0](bootstrap, topic, processed))
            ever.append(present[-1])
            await shared_out(present, partitions)
        for change in range(changes):
            await asyncio.sleep(rng.uniform(0, pause_s))
            raise_failures(present)
            if len(present) < 2 or (len(present) < 4 and rng.random() < 0.5):
                present.append(makers[(change + 1) % len(makers)](bootstrap, topic, processed))
                ever.append(present[-1])
            else:
                await present.pop(rng.randrange(len(present))).leave()
        await writer.stop()
        await all_processed(writer.written, processed)
        await asyncio.gather(*(each.leave() for each in present))
    finally:
        writer.task.cancel()
        await asyncio.gather(*(each.leave() for each in ever), return_exceptions=True)
    return writer.written, processed, ever

"""Writes numbered records to the topics of all groups, at the same pace to each partition."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import count

from aioprod import Delivery, KafkaError, Producer
from tests.faults.harness.groups.judge import Written

#: Seconds between two records of a partition.
PACE_SECONDS = 0.1


class Writer:
    """One producer for all topics.

    Attributes:
        written: the acknowledged records by topic. Others may be stored, too.
    """

    def __init__(self, servers: str) -> None:
        self.written: defaultdict[str, list[Written]] = defaultdict(list)
        self._producer = Producer(servers, linger_ms=0, metadata_max_age_ms=1_000)
        self._numbers = count()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Connect."""
        await self._producer.start()

    def add(self, topics: Iterable[str], partitions: Iterable[int]) -> None:
        """Write to these partitions of topics from now on."""
        listed = list(partitions)
        self._tasks += [
            asyncio.create_task(self._write(topic, partition))
            for topic in topics
            for partition in listed
        ]

    def forget(self) -> None:
        """Forget what was written: the topics were deleted."""
        self.written.clear()

    async def pause(self) -> None:
        """Stop writing and wait until no record is in flight."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
        await self._producer.flush()

    async def close(self) -> None:
        """Stop writing and close the producer."""
        await self.pause()
        await self._producer.close()

    async def _write(self, topic: str, partition: int) -> None:
        while True:
            number = next(self._numbers)
            try:
                delivery = await self._producer.send(topic, b"%d" % number, partition=partition)
            except KafkaError:
                await asyncio.sleep(PACE_SECONDS)
                continue
            delivery.add_done_callback(partial(self._done, topic, partition, number))
            await asyncio.sleep(PACE_SECONDS)

    def _done(self, topic: str, partition: int, number: int, delivery: Delivery) -> None:
        if delivery.exception() is None:
            self.written[topic].append(Written(time.monotonic(), partition, number))

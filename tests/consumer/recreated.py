"""A topic that is deleted and created again while it is read, and what a reader must have got of
it: all records of each partition from one offset on, in order, once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aioprod import Admin, Producer, TopicPartition
from aioprod.admin import NewTopic

OLD = 5  # records of each partition before
NEW = 60  # and after
PAUSE_S = 0.1  # after each of the last of them: the reader has noticed the new topic by then
AT_ONCE = {0: 8, 1: 3, 2: 2}  # more than before, and fewer: the old offset exists, or does not
LIMIT_S = 60


@dataclass
class Got:
    """The numbers that a reader got by partition, from the deleted topic and from the new one."""

    old: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    new: defaultdict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    errors: list[BaseException] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, partition: int, value: bytes | None) -> None:
        """Add a record."""
        assert value is not None
        kind, number = value.split()
        (self.old if kind == b"old" else self.new)[partition].append(int(number))
        self._changed.set()

    async def until(self, condition: Callable[[Got], bool]) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(LIMIT_S):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    def has_old(self, partitions: int) -> bool:
        """Return whether all records of the deleted topic are there."""
        return all(len(self.old[number]) >= OLD for number in range(partitions))

    def is_done(self, partitions: int) -> bool:
        """Return whether the last record of each partition is there."""
        return all(self.new[number][-1:] == [NEW - 1] for number in range(partitions))

    def check(self, partitions: int, *, from_the_first: bool) -> None:
        """Check that no record of the new topic is missing after the first one that was read."""
        for number in range(partitions):
            found = self.new[number]
            first = 0 if from_the_first else found[0]
            assert found == list(range(first, NEW)), f"partition {number}"
        assert not [number for number in self.new if number >= partitions]


async def write(producer: Producer, topic: str, partition: int, kind: str, which: range) -> None:
    """Write records to a partition."""
    for number in which:
        await producer.send(topic, f"{kind} {number}".encode(), partition=partition)
    await producer.flush()


@asynccontextmanager
async def topic_of(bootstrap: str, topic: str, partitions: int) -> AsyncIterator[Admin]:
    """A topic with old records, and a client to create it again."""
    async with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        await create(admin, topic, partitions)
        for number in range(partitions):
            await write(producer, topic, number, "old", range(OLD))
        yield admin


async def create(admin: Admin, topic: str, partitions: int) -> None:
    """Create a topic, which a broker that deletes it yet refuses."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            with contextlib.suppress(Exception):
                await admin.create_topics(NewTopic(topic, num_partitions=partitions))
            described = await admin.describe_topics([topic])
            found = described[topic]
            if not isinstance(found, Exception) and len(found.partitions) == partitions:
                return
            await asyncio.sleep(0.1)


async def create_again(
    admin: Admin, bootstrap: str, topic: str, partitions: int, *, missing_s: float = 0
) -> None:
    """Delete a topic, create it again, and write to it: some records at once, the others while a
    reader notices it.

    Args:
        missing_s: how long it does not exist.
    """
    await admin.delete_topics(topic)
    await asyncio.sleep(missing_s)
    await create(admin, topic, partitions)
    async with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(partitions):
            await write(producer, topic, number, "new", range(AT_ONCE[number]))
        for step in range(min(AT_ONCE.values()), NEW):
            await asyncio.sleep(PAUSE_S)
            for number in range(partitions):
                if step >= AT_ONCE[number]:
                    await write(producer, topic, number, "new", range(step, step + 1))


def places(topic: str, numbers: Iterable[int]) -> list[TopicPartition]:
    """Partitions of a topic."""
    return [TopicPartition(topic, number) for number in numbers]

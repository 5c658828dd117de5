"""The ways of reading that are compared, all of one shape: each reads a topic of one partition,
without a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol

from aioprod import Consumer, TopicPartition

MOST_AT_ONCE = 1_000
_LIMIT_S = 60.0


class Reader(Protocol):
    """A consumer, with its client's own defaults but for checksums, which all of them check. Made
    without arguments, opened and closed once.

    Attributes:
        name: as tables show it.
        client: the client of ``ADAPTERS`` in whose worker it runs.
    """

    name: ClassVar[str]
    client: ClassVar[str]

    async def open(self, servers: str) -> None:
        """Connect."""

    def assign(self, topic: str) -> None:
        """Take a topic, from its beginning on; once."""

    async def read(self, records: int) -> int:
        """Read so many records, and look at the value of each: how many bytes these have. Raises
        where one can't be read.
        """

    async def poll(self, polls: int) -> int:
        """Ask so often for records, without waiting for any; how many came."""

    async def close(self) -> None:
        """Disconnect."""


async def _read_each(consumer: Any, records: int) -> int:
    size, left = 0, records
    async for record in consumer:
        size += len(record.value)
        left -= 1
        if not left:
            break
    return size


class _Aioprod:
    client: ClassVar[str] = "aioprod"
    consumer: Consumer

    async def open(self, servers: str) -> None:
        self.consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await self.consumer.start()

    def assign(self, topic: str) -> None:
        self.consumer.assign([TopicPartition(topic, 0)])

    async def poll(self, polls: int) -> int:
        getmany, found = self.consumer.getmany, 0
        for _ in range(polls):
            found += len(await getmany(MOST_AT_ONCE, timeout_ms=0))
        return found

    async def close(self) -> None:
        await self.consumer.close()


class AioprodEach(_Aioprod):
    """``async for record in consumer``."""

    name: ClassVar[str] = "aioprod async for"

    async def read(self, records: int) -> int:
        return await _read_each(self.consumer, records)


class AioprodMany(_Aioprod):
    """``await consumer.getmany(1000)``."""

    name: ClassVar[str] = "aioprod getmany"

    async def read(self, records: int) -> int:
        size, found = 0, 0
        while found < records:
            some = await self.consumer.getmany(MOST_AT_ONCE)
            for record in some:
                size += len(record.value)
            found += len(some)
        return size


class _Aiokafka:
    client: ClassVar[str] = "aiokafka"
    consumer: Any

    async def open(self, servers: str) -> None:
        from aiokafka import AIOKafkaConsumer  # here, so that a worker loads no client but its own

        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            check_crcs=True,
        )
        await self.consumer.start()

    def assign(self, topic: str) -> None:
        from aiokafka import TopicPartition as TheirPartition

        self.consumer.assign([TheirPartition(topic, 0)])

    async def poll(self, polls: int) -> int:
        getmany, found = self.consumer.getmany, 0
        for _ in range(polls):
            found += sum(map(len, (await getmany(timeout_ms=0, max_records=MOST_AT_ONCE)).values()))
        return found

    async def close(self) -> None:
        # polls that find nothing don't give way, and stop() fails where a task of its own has not
        # begun
        await asyncio.sleep(0)
        await self.consumer.stop()


class AiokafkaEach(_Aiokafka):
    """``async for record in consumer``."""

    name: ClassVar[str] = "aiokafka async for"

    async def read(self, records: int) -> int:
        return await _read_each(self.consumer, records)


class AiokafkaMany(_Aiokafka):
    """``await consumer.getmany(max_records=1000)``."""

    name: ClassVar[str] = "aiokafka getmany"

    async def read(self, records: int) -> int:
        size, found = 0, 0
        while found < records:
            for some in (
                await self.consumer.getmany(timeout_ms=1_000, max_records=MOST_AT_ONCE)
            ).values():
                for record in some:
                    size += len(record.value)
                found += len(some)
        return size


class _Confluent:
    client: ClassVar[str] = "confluent-kafka"
    consumer: Any

    async def open(self, servers: str) -> None:
        from confluent_kafka import Consumer as TheirConsumer

        given = {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
        self.consumer = TheirConsumer(given)
        self.consumer.list_topics(timeout=_LIMIT_S)  # it connects in the background

    def assign(self, topic: str) -> None:
        from confluent_kafka import OFFSET_BEGINNING
        from confluent_kafka import TopicPartition as TheirPartition

        self.consumer.assign([TheirPartition(topic, 0, OFFSET_BEGINNING)])

    async def poll(self, polls: int) -> int:
        consume, found = self.consumer.consume, 0
        for _ in range(polls):
            found += len(consume(MOST_AT_ONCE, timeout=0))
        return found

    async def close(self) -> None:
        self.consumer.close()


class ConfluentMany(_Confluent):
    """``consumer.consume(1000)``."""

    name: ClassVar[str] = "confluent-kafka consume"

    async def read(self, records: int) -> int:
        size, found = 0, 0
        while found < records:
            # A value of a message that is an error would be its text: the sum of bytes would tell.
            some = self.consumer.consume(min(MOST_AT_ONCE, records - found), timeout=_LIMIT_S)
            for message in some:
                size += len(message.value())
            found += len(some)
        return size


class ConfluentEach(_Confluent):
    """``consumer.poll()``."""

    name: ClassVar[str] = "confluent-kafka poll"

    async def read(self, records: int) -> int:
        size, poll = 0, self.consumer.poll
        for _ in range(records):
            size += len(poll(_LIMIT_S).value())
        return size


_ALL: tuple[type[Reader], ...] = (
    AioprodEach,
    AioprodMany,
    AiokafkaEach,
    AiokafkaMany,
    ConfluentMany,
    ConfluentEach,
)

READERS: dict[str, type[Reader]] = {reader.name: reader for reader in _ALL}
"""By the names that tables show."""


@asynccontextmanager
async def opened(name: str, servers: str) -> AsyncIterator[Reader]:
    """A reader of ``READERS``, connected until the block ends."""
    reader = READERS[name]()
    await reader.open(servers)
    try:
        yield reader
    finally:
        await reader.close()

"""The readers that are compared. Each reads a topic, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, ClassVar, Protocol

from aioprod import Consumer, TopicPartition
from benchmarks.adapters import ForeignClient, FranzGo, Java
from benchmarks.adapters.foreign import WARM_UP_S
from benchmarks.fetch_line_rate import FetchLineRate
from benchmarks.harness import Cost

MAX_POLL_RECORDS = 1_000
_LIMIT_S = 60.0


class Reader(Protocol):
    """A consumer with default settings, except that all check checksums.

    Attributes:
        name: the name in tables.
        client: the client of ``ADAPTERS`` in whose worker it runs.
        cost: the cost of the last ``read`` if the reader measures it itself.
    """

    name: ClassVar[str]
    client: ClassVar[str]
    cost: Cost | None

    async def open(self, servers: str) -> None:
        """Connect."""

    def assign(self, topic: str, partitions: int) -> None:
        """Assign the partitions of a topic, from their beginnings."""

    async def read(self, records: int) -> int:
        """Read records and return the total size of their values in bytes."""

    async def poll(self, polls: int) -> int:
        """Poll without waiting and return the number of records."""

    async def close(self) -> None:
        """Disconnect."""


async def _read_each(consumer: Any, records: int) -> int:
    size, remaining = 0, records
    async for record in consumer:
        size += len(record.value)
        remaining -= 1
        if not remaining:
            break
    return size


class _Aioprod:
    client: ClassVar[str] = "aioprod"
    cost: Cost | None = None
    consumer: Consumer

    async def open(self, servers: str) -> None:
        self.consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await self.consumer.start()

    def assign(self, topic: str, partitions: int) -> None:
        self.consumer.assign([TopicPartition(topic, number) for number in range(partitions)])

    async def poll(self, polls: int) -> int:
        getmany, found = self.consumer.getmany, 0
        for _ in range(polls):
            found += len(await getmany(MAX_POLL_RECORDS, timeout_ms=0))
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
            some = await self.consumer.getmany(MAX_POLL_RECORDS)
            for record in some:
                size += len(record.value)
            found += len(some)
        return size


class AioprodArrow(_Aioprod):
    """``await consumer.getarrow()``."""

    name: ClassVar[str] = "aioprod getarrow"

    async def read(self, records: int) -> int:
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        size, found = 0, 0
        while found < records:
            table = await self.consumer.getarrow()
            size += pc.sum(pc.binary_length(table["value"])).as_py()
            found += table.num_rows
        return size


class _Aiokafka:
    client: ClassVar[str] = "aiokafka"
    package: ClassVar[str] = "aiokafka"
    cost: Cost | None = None
    consumer: Any

    async def open(self, servers: str) -> None:
        client = import_module(self.package)  # so that a worker imports only its client
        self.consumer = client.AIOKafkaConsumer(
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            check_crcs=True,
        )
        await self.consumer.start()

    def assign(self, topic: str, partitions: int) -> None:
        partition = import_module(self.package).TopicPartition
        self.consumer.assign([partition(topic, number) for number in range(partitions)])

    async def poll(self, polls: int) -> int:
        getmany, found = self.consumer.getmany, 0
        for _ in range(polls):
            found += sum(
                map(len, (await getmany(timeout_ms=0, max_records=MAX_POLL_RECORDS)).values())
            )
        return found

    async def close(self) -> None:
        # Polls without records do not yield to the loop, and stop() fails if its tasks have not
        # started.
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
                await self.consumer.getmany(timeout_ms=1_000, max_records=MAX_POLL_RECORDS)
            ).values():
                for record in some:
                    size += len(record.value)
                found += len(some)
        return size


class AiokafkaOne(_Aiokafka):
    """``await consumer.getone()``."""

    name: ClassVar[str] = "aiokafka getone"

    async def read(self, records: int) -> int:
        size, getone = 0, self.consumer.getone
        for _ in range(records):
            size += len((await getone()).value)
        return size


class NamesEach(AiokafkaEach):
    """Like ``AiokafkaEach``, with ``aioprod.compat.aiokafka``."""

    name, client, package = "aioprod compat async for", "aioprod compat", "aioprod.compat.aiokafka"


class NamesMany(AiokafkaMany):
    """Like ``AiokafkaMany``, with ``aioprod.compat.aiokafka``."""

    name, client, package = "aioprod compat getmany", "aioprod compat", "aioprod.compat.aiokafka"


class NamesOne(AiokafkaOne):
    """Like ``AiokafkaOne``, with ``aioprod.compat.aiokafka``."""

    name, client, package = "aioprod compat getone", "aioprod compat", "aioprod.compat.aiokafka"


class _Confluent:
    client: ClassVar[str] = "confluent-kafka"
    cost: Cost | None = None
    consumer: Any

    async def open(self, servers: str) -> None:
        from confluent_kafka import Consumer as ForeignConsumer

        config = {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
        self.consumer = ForeignConsumer(config)
        self.consumer.list_topics(timeout=_LIMIT_S)  # waits for the connection

    def assign(self, topic: str, partitions: int) -> None:
        from confluent_kafka import OFFSET_BEGINNING
        from confluent_kafka import TopicPartition as ForeignPartition

        self.consumer.assign(
            [ForeignPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )

    async def poll(self, polls: int) -> int:
        consume, found = self.consumer.consume, 0
        for _ in range(polls):
            found += len(consume(MAX_POLL_RECORDS, timeout=0))
        return found

    async def close(self) -> None:
        self.consumer.close()


class ConfluentMany(_Confluent):
    """``consumer.consume(1000)``."""

    name: ClassVar[str] = "confluent-kafka consume"

    async def read(self, records: int) -> int:
        size, found = 0, 0
        while found < records:
            # The value of an error is its text, which would change the total size.
            some = self.consumer.consume(min(MAX_POLL_RECORDS, records - found), timeout=_LIMIT_S)
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


class _Foreign:
    """A consumer in a program, which measures itself."""

    adapter: ClassVar[type[ForeignClient]]
    cost: Cost | None = None

    async def open(self, servers: str) -> None:
        self.adapter.program().request("open", servers)

    def assign(self, topic: str, partitions: int) -> None:
        self._assigned = topic, partitions

    async def read(self, records: int) -> int:
        """Read, in a new program for at least ``WARM_UP_S`` seconds before that."""
        program = self.adapter.program()
        while program.read_for_s < WARM_UP_S:
            program.read(*self._assigned, records)
        self.cost, size = program.read(*self._assigned, records)
        return size

    async def poll(self, polls: int) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        self.adapter.program().request("close")


class FranzGoMany(_Foreign):
    """``client.PollFetches(ctx)``."""

    name: ClassVar[str] = "franz-go"
    client: ClassVar[str] = "franz-go"
    adapter = FranzGo


class JavaMany(_Foreign):
    """``consumer.poll(...)``."""

    name: ClassVar[str] = "java"
    client: ClassVar[str] = "java"
    adapter = Java


_ALL: tuple[type[Reader], ...] = (
    AioprodEach,
    AioprodMany,
    AioprodArrow,
    AiokafkaEach,
    AiokafkaMany,
    ConfluentMany,
    ConfluentEach,
    AiokafkaOne,
    NamesEach,
    NamesMany,
    NamesOne,
    FranzGoMany,
    JavaMany,
    FetchLineRate,
)

READERS: dict[str, type[Reader]] = {reader.name: reader for reader in _ALL}
"""All readers by name."""


@asynccontextmanager
async def opened(name: str, servers: str) -> AsyncIterator[Reader]:
    """Connect a reader of ``READERS`` until the block ends."""
    reader = READERS[name]()
    await reader.open(servers)
    try:
        yield reader
    finally:
        await reader.close()

"""The transactional producers that are compared, in workers of ``ADAPTERS``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar, Protocol

from aioprod import Producer
from benchmarks.adapters import Java, Load, Settings
from benchmarks.adapters.confluent import configuration, counter
from benchmarks.harness import Cost

_LIMIT_S = 60


class Transactor(Protocol):
    """A producer whose ``transact`` sends all records of a load, and commits after each
    ``records_each``.

    Attributes:
        name: the client's name in ``ADAPTERS``.
        cost: the cost of the last ``transact`` if the client measures it itself.
    """

    name: ClassVar[str]
    cost: Cost | None

    async def open(self, settings: Settings, transactional_id: str) -> None:
        """Connect, and begin a new epoch of the transactional id."""

    async def transact(self, load: Load, records_each: int) -> None:
        """Send the records in transactions. Raises if one is not committed."""

    async def close(self) -> None:
        """Disconnect."""


class Aioprod:
    """``async with producer.transaction()``, and ``await producer.send(...)`` in it."""

    name: ClassVar[str] = "aioprod"
    cost: Cost | None = None

    async def open(self, settings: Settings, transactional_id: str) -> None:
        self.producer = Producer(
            settings.bootstrap_servers,
            transactional_id=transactional_id,
            linger_ms=settings.linger_ms,
            batch_size=settings.batch_size,
            buffer_memory=settings.buffer_memory,
        )
        await self.producer.start()

    async def transact(self, load: Load, records_each: int) -> None:
        send, values = self.producer.send, load.values()
        for _ in range(load.records // records_each):
            async with self.producer.transaction():
                for value in islice(values, records_each):
                    await send(load.topic, value)

    async def close(self) -> None:
        await self.producer.close()


class Aiokafka:
    """Like ``Aioprod``, with aiokafka."""

    name: ClassVar[str] = "aiokafka"
    cost: Cost | None = None
    producer: Any

    async def open(self, settings: Settings, transactional_id: str) -> None:
        client = import_module("aiokafka")  # so that a worker imports only its client
        self.producer = client.AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            transactional_id=transactional_id,
            linger_ms=settings.linger_ms,
            max_batch_size=settings.batch_size,
        )
        await self.producer.start()

    async def transact(self, load: Load, records_each: int) -> None:
        send, values = self.producer.send, load.values()
        for _ in range(load.records // records_each):
            async with self.producer.transaction():
                for value in islice(values, records_each):
                    await send(load.topic, value)

    async def close(self) -> None:
        await self.producer.stop()


class Confluent:
    """``begin_transaction``, ``produce`` with a delivery report each, ``commit_transaction``."""

    name: ClassVar[str] = "confluent-kafka"
    cost: Cost | None = None
    producer: Any

    async def open(self, settings: Settings, transactional_id: str) -> None:
        from confluent_kafka import Producer as ForeignProducer

        self.producer = ForeignProducer(
            {**configuration(settings), "transactional.id": transactional_id}
        )
        self.producer.init_transactions(_LIMIT_S)

    async def transact(self, load: Load, records_each: int) -> None:
        report, check = counter()
        produce, values = self.producer.produce, load.values()
        for _ in range(load.records // records_each):
            self.producer.begin_transaction()
            for value in islice(values, records_each):
                produce(load.topic, value, on_delivery=report)
            self.producer.commit_transaction(_LIMIT_S)
        check(load.records)

    async def close(self) -> None:
        self.producer.close()


class JavaTransactor:
    """``beginTransaction``, ``send`` with a callback each, ``commitTransaction``."""

    name: ClassVar[str] = "java"
    cost: Cost | None = None

    async def open(self, settings: Settings, transactional_id: str) -> None:
        self._program = Java.program()
        self._program.request(
            "begin",
            settings.bootstrap_servers,
            settings.acks,
            settings.linger_ms,
            settings.batch_size,
            settings.compression_type,
            settings.buffer_memory,
            transactional_id,
        )

    async def transact(self, load: Load, records_each: int) -> None:
        self.cost = self._program.transact(load, records_each)

    async def close(self) -> None:
        self._program.request("stop")


_ALL: tuple[type[Transactor], ...] = (Aioprod, Confluent, JavaTransactor, Aiokafka)

TRANSACTORS: dict[str, type[Transactor]] = {each.name: each for each in _ALL}
"""All transactional producers by the client's name."""


@asynccontextmanager
async def opened(
    client: str, settings: Settings, transactional_id: str
) -> AsyncIterator[Transactor]:
    """Connect a producer of ``TRANSACTORS`` until the block ends."""
    transactor = TRANSACTORS[client]()
    await transactor.open(settings, transactional_id)
    try:
        yield transactor
    finally:
        await transactor.close()

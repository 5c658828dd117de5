"""The clients that are compared, each with the settings that come nearest to the others'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from confluent_kafka.aio import AIOProducer

from aioprod import Producer

Send = Callable[[str, bytes, bytes | None], Awaitable[Awaitable[object]]]
"""Takes topic, value and key; gives the record's delivery, to be awaited."""

SendAndWait = Callable[[str, bytes, bytes | None], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes in bytes, times in milliseconds, as Kafka names them."""

    batch_size: int = 16_384
    linger_ms: int = 5
    buffer_memory: int = 33_554_432


@dataclass(frozen=True, slots=True)
class Client:
    """A producer that runs; the functions are its own where they fit, so that nothing is measured beside them."""

    send: Send
    send_and_wait: SendAndWait
    flush: Callable[[], Awaitable[object]]


Open = Callable[[str, Settings], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def aioprod(servers: str, settings: Settings) -> AsyncIterator[Client]:
    async with Producer(servers, batch_size=settings.batch_size, linger_ms=settings.linger_ms, buffer_memory=settings.buffer_memory) as producer:
        yield Client(producer.send, producer.send_and_wait, producer.flush)


@asynccontextmanager
async def aiokafka(servers: str, settings: Settings) -> AsyncIterator[Client]:
    """It has no bound on memory; acks and idempotence as the others."""
    async with AIOKafkaProducer(
        bootstrap_servers=servers, max_batch_size=settings.batch_size, linger_ms=settings.linger_ms, enable_idempotence=True, acks="all"
    ) as producer:
        yield Client(producer.send, producer.send_and_wait, producer.flush)


@asynccontextmanager
async def confluent(servers: str, settings: Settings) -> AsyncIterator[Client]:
    """librdkafka behind ``AIOProducer``. Its own buffer in front of librdkafka is cut to 100 records and the linger time: with the defaults (1,000
    records or one second) tasks that wait for their record would wait for that second."""
    producer = AIOProducer(
        {
            "bootstrap.servers": servers,
            "batch.size": settings.batch_size,
            "linger.ms": settings.linger_ms,
            "queue.buffering.max.kbytes": max(1, settings.buffer_memory // 1024),
            "enable.idempotence": True,
        },
        batch_size=100,
        buffer_timeout=settings.linger_ms / 1000,
    )

    async def send(topic: str, value: bytes, key: bytes | None) -> Awaitable[object]:
        future: asyncio.Future[object] = await producer.produce(topic, value=value, key=key)
        return future

    async def send_and_wait(topic: str, value: bytes, key: bytes | None) -> object:
        return await (await producer.produce(topic, value=value, key=key))

    try:
        yield Client(send, send_and_wait, producer.flush)
    finally:
        await producer.close()


PEERS: dict[str, Open] = {"aiokafka": aiokafka, "confluent-kafka AIOProducer": confluent}

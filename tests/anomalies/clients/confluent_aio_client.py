"""confluent-kafka's asyncio client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka.aio import AIOConsumer, AIOProducer

from tests.anomalies.clients.confluent_client import consumer_settings, producer_settings
from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned


class ConfluentAioSender:
    """confluent-kafka's ``AIOProducer``."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._is_transactional = transactional_id is not None
        self._settings = producer_settings(servers, transactional_id, transaction_ms)
        self._producer: Any = None

    async def start(self) -> None:
        self._producer = AIOProducer(self._settings)
        if self._is_transactional:
            await self._producer.init_transactions(DELIVERY_S)

    async def send(self, partition: int, value: int) -> int | None:
        sent = await self._producer.produce(self._topic, b"%d" % value, partition=partition)
        await self._producer.flush(DELIVERY_S)  # it would wait a second for more records
        offset: int | None = (await sent).offset()
        return offset

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        if commit:
            await self._producer.commit_transaction(DELIVERY_S)
        else:
            await self._producer.abort_transaction(DELIVERY_S)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close()


class ConfluentAioMember:
    """confluent-kafka's ``AIOConsumer``."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._assigned = assigned
        self._settings = consumer_settings(servers, group)
        self._consumer: Any = None

    async def start(self) -> None:
        self._consumer = AIOConsumer(self._settings)
        await self._consumer.subscribe([self._topic], on_assign=self._on_assign)

    async def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._assigned(None, [each.partition for each in partitions])

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        messages = await self._consumer.consume(20, POLL_S)
        return [
            (message.partition(), message.offset(), int(message.value()))
            for message in messages
            if message.error() is None
        ]

    async def commit(self) -> dict[int, int]:
        positions = [
            each
            for each in await self._consumer.position(await self._consumer.assignment())
            if each.offset >= 0
        ]
        if positions:
            await self._consumer.commit(offsets=positions, asynchronous=False)
        return {each.partition: each.offset for each in positions}

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()

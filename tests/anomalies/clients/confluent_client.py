"""confluent-kafka (librdkafka)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import confluent_kafka

from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned


def producer_settings(
    servers: str, transactional_id: str | None, transaction_ms: int | None
) -> dict[str, Any]:
    """Return a producer's settings: its defaults, but limits as the other clients have them."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "acks": "all",
        "message.timeout.ms": DELIVERY_S * 1000,
        "socket.timeout.ms": 10_000,
        "log_level": 0,
    }
    if transactional_id is None:
        return {**settings, "enable.idempotence": True}
    return {
        **settings,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": transaction_ms or 60_000,
        # It refuses more:
        "message.timeout.ms": min(DELIVERY_S * 1000, transaction_ms or 60_000),
        "socket.timeout.ms": min(10_000, transaction_ms or 60_000),
    }


def consumer_settings(servers: str, group: str) -> dict[str, Any]:
    """Return a consumer's settings. Its calls have no other limit than that of requests."""
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "socket.timeout.ms": 10_000,
        "log_level": 0,
    }


class ConfluentSender:
    """confluent-kafka's blocking producer, in threads."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._is_transactional = transactional_id is not None
        self._producer = confluent_kafka.Producer(
            producer_settings(servers, transactional_id, transaction_ms)
        )

    async def start(self) -> None:
        if self._is_transactional:
            await asyncio.to_thread(self._producer.init_transactions, DELIVERY_S)

    async def send(self, partition: int, value: int) -> int | None:
        return await asyncio.to_thread(self._send, partition, value)

    def _send(self, partition: int, value: int) -> int | None:
        ended: list[tuple[Any, Any]] = []
        self._producer.produce(
            self._topic,
            b"%d" % value,
            partition=partition,
            on_delivery=lambda error, message: ended.append((error, message)),
        )
        self._producer.flush(DELIVERY_S)
        if not ended or ended[0][0] is not None:
            raise RuntimeError(f"{value} was not acknowledged: {ended}")
        offset: int | None = ended[0][1].offset()
        return offset

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        producer = self._producer
        await asyncio.to_thread(
            producer.commit_transaction if commit else producer.abort_transaction, DELIVERY_S
        )

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._producer.flush(DELIVERY_S / 2)
        self._producer.close()


class ConfluentMember:
    """confluent-kafka's blocking consumer, in threads."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._assigned = assigned
        self._consumer = confluent_kafka.Consumer(consumer_settings(servers, group))

    async def start(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._assigned(None, [each.partition for each in partitions])

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        messages = await asyncio.to_thread(self._consumer.consume, 20, POLL_S)
        return [
            (message.partition() or 0, message.offset() or 0, int(message.value() or b"-1"))
            for message in messages
            if message.error() is None
        ]

    async def commit(self) -> dict[int, int]:
        return await asyncio.to_thread(self._commit)

    def _commit(self) -> dict[int, int]:
        positions = [
            each
            for each in self._consumer.position(self._consumer.assignment())
            if each.offset >= 0
        ]
        if positions:
            self._consumer.commit(offsets=positions, asynchronous=False)
        return {each.partition: each.offset for each in positions}

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)

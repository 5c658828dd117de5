"""aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned


class AiokafkaSender:
    """aiokafka's producer."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_ms or 60_000,
            enable_idempotence=True,
            request_timeout_ms=10_000,
        )

    async def start(self) -> None:
        await self._producer.start()

    async def send(self, partition: int, value: int) -> int | None:
        sent = await self._producer.send_and_wait(self._topic, b"%d" % value, partition=partition)
        offset: int = sent.offset
        return offset

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        if commit:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    async def close(self) -> None:
        await self._producer.stop()


class AiokafkaMember:
    """aiokafka's consumer."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=20,
        )

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None: ...

            def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                assigned(None, [each.partition for each in partitions])

        self._listener = Listener()

    async def start(self) -> None:
        await self._consumer.start()
        self._consumer.subscribe([self._topic], listener=self._listener)

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        found = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        return [
            (each.partition, each.offset, int(each.value or b"-1"))
            for records in found.values()
            for each in records
        ]

    async def commit(self) -> dict[int, int]:
        positions: dict[Any, int] = {}
        async with asyncio.timeout(DELIVERY_S):  # its calls have no limit of their own
            for partition in self._consumer.assignment():
                positions[partition] = await self._consumer.position(partition)
            if positions:
                await self._consumer.commit(positions)
        return {partition.partition: offset for partition, offset in positions.items()}

    async def close(self) -> None:
        await self._consumer.stop()

"""kafka-python, in threads."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Sequence
from typing import Any

from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned, Budget

with warnings.catch_warnings():
    # kafka-python uses a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        ConsumerRebalanceListener,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )


class KafkaPythonSender:
    """kafka-python's producer."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._is_transactional = transactional_id is not None
        self._settings = {
            "bootstrap_servers": servers,
            "transactional_id": transactional_id,
            "transaction_timeout_ms": transaction_ms or 60_000,
            "delivery_timeout_ms": DELIVERY_S * 1000,
            "request_timeout_ms": 10_000,
            "max_block_ms": DELIVERY_S * 1000,
        }
        self._producer: Any = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._producer = KafkaProducer(**self._settings)
        if self._is_transactional:
            self._producer.init_transactions()

    async def send(self, partition: int, value: int) -> int | None:
        return await asyncio.to_thread(self._send, partition, value)

    def _send(self, partition: int, value: int) -> int | None:
        sent = self._producer.send(self._topic, b"%d" % value, partition=partition)
        offset: int = sent.get(DELIVERY_S).offset
        return offset

    async def begin(self) -> None:
        await asyncio.to_thread(self._producer.begin_transaction)

    async def end(self, *, commit: bool) -> None:
        producer = self._producer
        await asyncio.to_thread(
            producer.commit_transaction if commit else producer.abort_transaction
        )

    async def close(self) -> None:
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close, DELIVERY_S / 2)


class KafkaPythonMember:
    """kafka-python's consumer."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._settings = {
            "bootstrap_servers": servers,
            "group_id": group,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_records": 20,
        }
        self._consumer: Any = None

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None: ...

            def on_partitions_assigned(self, partitions: Any) -> None:
                assigned(None, [each.partition for each in partitions])

        self._listener = Listener()

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._consumer = KafkaConsumer(**self._settings)
        self._consumer.subscribe([self._topic], listener=self._listener)

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        found = await asyncio.to_thread(self._consumer.poll, int(POLL_S * 1000))
        return [
            (each.partition, each.offset, int(each.value or b"-1"))
            for records in found.values()
            for each in records
        ]

    async def commit(self) -> dict[int, int]:
        return await asyncio.to_thread(self._commit)

    def _commit(self) -> dict[int, int]:
        budget = Budget()
        positions: dict[TopicPartition, int] = {}
        for partition in self._consumer.assignment():
            position = self._consumer.position(partition, timeout_ms=budget.rest_ms)
            if position is not None:
                positions[partition] = position
        offsets = {each: OffsetAndMetadata(offset) for each, offset in positions.items()}
        if offsets:
            self._consumer.commit(offsets, timeout_ms=budget.rest_ms)
        return {partition.partition: offset for partition, offset in positions.items()}

    async def close(self) -> None:
        if self._consumer is not None:
            await asyncio.to_thread(self._consumer.close, timeout_ms=DELIVERY_S * 1000)

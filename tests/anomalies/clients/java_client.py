"""Java's client, in a Java process that Py4J controls, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned, Budget
from tests.testing.java_client import JavaClients, java_clients

_DELIVERY_MS = str(DELIVERY_S * 1000)
_RUNNING = ExitStack()


@cache
def java() -> JavaClients:
    """Return this process's Java process, which ends with it."""
    return _RUNNING.enter_context(java_clients())


def stop_java() -> None:
    """End this process's Java process."""
    _RUNNING.close()
    java.cache_clear()


class JavaSender:
    """Java's ``KafkaProducer``."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._settings = {
            "bootstrap_servers": servers,
            "delivery_timeout_ms": _DELIVERY_MS,
            "request_timeout_ms": "10000",
            "max_block_ms": _DELIVERY_MS,
        }
        if transactional_id is not None:
            self._settings["transactional_id"] = transactional_id
        if transaction_ms is not None:
            self._settings["transaction_timeout_ms"] = str(transaction_ms)
        self._producer: Any = None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._producer = java().producer(**self._settings)
        if "transactional_id" in self._settings:
            self._producer.initTransactions()

    async def send(self, partition: int, value: int) -> int | None:
        return await asyncio.to_thread(self._send, partition, value)

    def _send(self, partition: int, value: int) -> int | None:
        sent = self._producer.send(java().record(self._topic, partition, b"%d" % value))
        seconds = java().jvm.java.util.concurrent.TimeUnit.SECONDS
        offset: int = sent.get(int(DELIVERY_S), seconds).offset()
        return offset

    async def begin(self) -> None:
        await asyncio.to_thread(self._producer.beginTransaction)

    async def end(self, *, commit: bool) -> None:
        producer = self._producer
        await asyncio.to_thread(producer.commitTransaction if commit else producer.abortTransaction)

    async def close(self) -> None:
        if self._producer is not None:
            await asyncio.to_thread(self._producer.close, java().seconds(int(DELIVERY_S / 2)))


class JavaMember:
    """Java's ``KafkaConsumer``."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._topic = topic
        self._assigned = assigned
        self._settings = {
            "bootstrap_servers": servers,
            "group_id": group,
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": "false",
            "max_poll_records": "20",
            "default_api_timeout_ms": _DELIVERY_MS,
            "request_timeout_ms": "10000",
        }
        self._consumer: Any = None
        self._known: tuple[int, str] = (-1, "[]")

    async def start(self) -> None:
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        self._consumer = java().consumer(**self._settings)
        topics = java().jvm.java.util.ArrayList()
        topics.add(self._topic)
        self._consumer.subscribe(topics)

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        return await asyncio.to_thread(self._poll)

    def _poll(self) -> list[tuple[int, int, int]]:
        timeout = java().jvm.java.time.Duration.ofMillis(int(POLL_S * 1000))
        records = self._consumer.poll(timeout)
        # A rebalance happens within a poll, before its records, and has a generation of its own.
        generation = self._consumer.groupMetadata().generationId()
        known = (generation, self._consumer.assignment().toString())
        if known != self._known:
            self._known = known
            self._assigned(generation, self._partitions())
        return [
            (record.partition(), record.offset(), int(bytes(record.value())))
            for record in records.iterator()
        ]

    def _partitions(self) -> list[int]:
        """Return the assigned partitions, from a text as ``[t-0, t-1]``."""
        names = self._known[1].strip("[]")
        return [int(each.rpartition("-")[2]) for each in names.split(", ") if each]

    async def commit(self) -> dict[int, int]:
        return await asyncio.to_thread(self._commit)

    def _commit(self) -> dict[int, int]:
        budget, positions = Budget(), {}
        duration = java().jvm.java.time.Duration
        offsets = java().jvm.java.util.HashMap()
        for number in self._partitions():
            partition = java().partition(self._topic, number)
            positions[number] = int(
                self._consumer.position(partition, duration.ofMillis(budget.rest_ms))
            )
            offsets.putAll(java().offsets(self._topic, number, positions[number]))
        self._consumer.commitSync(offsets, duration.ofMillis(budget.rest_ms))
        return positions

    async def close(self) -> None:
        if self._consumer is not None:
            await asyncio.to_thread(self._consumer.close, java().seconds(DELIVERY_S))

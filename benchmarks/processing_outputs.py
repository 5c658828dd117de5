"""Handlers that return an output for each record: a `Processor` with each guarantee, and a loop
around aiokafka that does without order and concurrency of its own: it reads what is there, sends an
output for each record, waits for all of them, and commits.

From the first handler to the commit after the last record.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from aioprod import ProducerRecord
from aioprod.processing import OffsetsCommitted, Processor, ProcessorObserver, Record
from benchmarks.harness import Cost

GUARANTEES = ("at_least_once", "at_most_once", "exactly_once")
AIOKAFKA = "aiokafka loop"
CLIENTS = (*GUARANTEES, AIOKAFKA)
_LIMIT_S = 300
_COMMIT_MS = 100


class _Committed(ProcessorObserver):
    """Knows when all records are committed."""

    def __init__(self, records: int) -> None:
        self._records = records
        self._positions: dict[object, int] = {}
        self.all = asyncio.Event()

    def on_offsets_committed(self, event: OffsetsCommitted) -> None:
        self._positions.update(event.offsets)
        if sum(self._positions.values()) >= self._records:
            self.all.set()


class _Clock:
    """The time from the first handler on."""

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0
        self.calls = 0

    def called(self) -> None:
        """Note a call of the handler."""
        if not self.calls:
            self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.calls += 1

    def cost(self) -> Cost:
        """Return what the calls cost so far."""
        return Cost(self.calls, time.process_time() - self._cpu, time.perf_counter() - self._wall)


async def process_outputs(
    servers: str, topic: str, output: str, group: str, client: str, order: str, records: int
) -> Cost:
    """Process all records of a topic in a new group, with an output for each."""
    if client == AIOKAFKA:
        return await _loop_around_aiokafka(servers, topic, output, group, records)
    clock, committed = _Clock(), _Committed(records)

    async def handle(record: Record[bytes | None, bytes | None]) -> ProducerRecord:
        clock.called()
        return ProducerRecord(output, record.value, record.key)

    processor = Processor(
        handle,
        topic,
        bootstrap_servers=servers,
        group_id=group,
        guarantee=cast("Any", client),
        order=cast("Any", order),
        commit_interval_ms=None if client == "at_most_once" else _COMMIT_MS,
        observers=[committed],
    )
    async with asyncio.timeout(_LIMIT_S), processor:
        await committed.all.wait()
        if client == "at_most_once":  # its positions are committed first
            while processor.metrics()["records-handled-total"] < records:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return clock.cost()


async def _loop_around_aiokafka(
    servers: str, topic: str, output: str, group: str, records: int
) -> Cost:
    clock = _Clock()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    async with asyncio.timeout(_LIMIT_S), consumer, producer:
        while clock.calls < records:
            found = await consumer.getmany(timeout_ms=1_000, max_records=500)
            deliveries = []
            for listed in found.values():
                for record in listed:
                    clock.called()
                    deliveries.append(await producer.send(output, record.value, record.key))
            await asyncio.gather(*deliveries)
            await consumer.commit()
        return clock.cost()

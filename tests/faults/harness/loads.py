"""Load by three clients: aioprod, with a history of each record for the checkers, and two others
for comparison.

All send small numbered records at the same rate to partitions with the same leaders. Each partition
has its own tasks, so that one that blocks does not delay others. Clients have their default
settings with acks=all and idempotence, unless a scenario sets others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaProducer

from aioprod import Delivery, KafkaError, Producer, TopicPartition
from tests.faults.harness.cluster_control import PARTITIONS
from tests.faults.harness.timeline import Failure, Timeline
from tests.simulation.history import (
    OK,
    Content,
    Finding,
    Guarantee,
    History,
    ProducerTrace,
    RecordPosition,
    SentRecord,
    error_name,
)

#: Seconds between two records of one task.
PACE_SECONDS = 0.05
TASKS_PER_PARTITION = 2
_FILLER = b"." * 100
# After its timeout `close` gives its tasks a second, and its connections another.
_CLOSE_SLACK_SECONDS = 2.0


class Load(Protocol):
    """A client that sends."""

    name: str
    timeline: Timeline

    async def run(self, stop: asyncio.Event) -> None:
        """Send until ``stop`` is set, wait for all deliveries and close."""


class Limits:
    """The time limits that follow from a producer's settings, in seconds."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.delivery = float(settings.get("delivery_timeout_ms", 120_000)) / 1000
        self.block = float(settings.get("max_block_ms", 60_000)) / 1000


class AioprodLoad:
    """aioprod. ``history`` records everything for the checkers.

    Args:
        close_timeout_ms: the argument of ``close``.
        pace: seconds between two records of a task.
        settings: the settings of the producer.
    """

    name = "aioprod"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        close_timeout_ms: float | None = None,
        partitions: int = PARTITIONS,
        pace: float = PACE_SECONDS,
        **settings: Any,
    ) -> None:
        self.topic = topic
        self.timeline = Timeline()
        self.history = History(time.monotonic)
        self.producer = Producer(servers, **settings)
        self._partitions = partitions
        self._pace = pace
        self._close_timeout_ms = close_timeout_ms
        self._limits = limits = Limits(settings)
        transactional_id = settings.get("transactional_id")
        trace = ProducerTrace(
            self.name,
            Guarantee.EXACTLY_ONCE,
            True,
            limits.delivery + 1.0,
            limits.block + 1.0,
            transactional_id=transactional_id,
        )
        self.trace = self.history.producers[self.name] = trace

    async def run(self, stop: asyncio.Event) -> None:
        await self.producer.start()
        try:
            tasks = [
                self._send_until(stop, number % self._partitions)
                for number in range(self._partitions * TASKS_PER_PARTITION)
            ]
            await asyncio.gather(*tasks)
        finally:
            await self.close()

    async def _send_until(self, stop: asyncio.Event, partition: int) -> None:
        while not stop.is_set():
            await self.send(partition)
            await asyncio.sleep(self._pace)

    async def send(self, partition: int, transaction: int | None = None) -> Delivery | None:
        """Send the next record; return None if it was refused."""
        content = Content.of(None, b"%d %s" % (len(self.history.records), _FILLER), ())
        record = self.history.send(self.name, self.topic, content, partition, transaction)
        self.timeline.sent += 1
        try:
            delivery = await self.producer.send(self.topic, content.value, partition=partition)
        except KafkaError as error:
            self.history.refused(record, error_name(error))
            return None
        self.history.accepted(record)
        self.timeline.open += 1
        delivery.add_done_callback(partial(self._ended, record, partition, time.monotonic()))
        return delivery

    def _ended(
        self, record: SentRecord, partition: int, sent_at: float, delivery: Delivery
    ) -> None:
        now = time.monotonic()
        self.timeline.open -= 1
        error = delivery.exception()
        if error is not None:
            self.timeline.failures.append(
                Failure(partition, now, now - sent_at, type(error).__name__)
            )
            self.history.failed(record, error_name(error), never_left=False)
            return
        self.timeline.acknowledged[partition].append(now)
        metadata = delivery.result()
        self.history.acknowledged(
            record,
            RecordPosition(TopicPartition(metadata.topic, metadata.partition), metadata.offset),
        )

    def anomalies(self, findings: list[Finding]) -> set[str]:
        """Return the names of the findings, and "failure" if a record failed."""
        return {finding.anomaly for finding in findings} | (
            {"failure"} if self.timeline.failures else set()
        )

    async def call(
        self, name: str, work: Coroutine[Any, Any, Any], limit: float
    ) -> KafkaError | None:
        """Make a call with a time limit in seconds; cancel it if it exceeds the limit by far."""
        trace = self.history.call(self.name, name, limit)
        try:
            async with asyncio.timeout(limit + 10):
                await work
        except KafkaError as error:
            self.history.returned(trace, error_name(error))
            return error
        except TimeoutError:
            return None
        self.history.returned(trace, OK)
        return None

    async def close(self) -> None:
        """Close the producer and check for leftovers."""
        limit = (
            self._limits.delivery
            if self._close_timeout_ms is None
            else self._close_timeout_ms / 1000
        )
        began = time.monotonic()
        await self.call(
            "close", self.producer.close(self._close_timeout_ms), limit + _CLOSE_SLACK_SECONDS
        )
        self.timeline.close_seconds = time.monotonic() - began
        pool = self.producer._pool
        if pool.available != pool.total:
            self.trace.leftovers.append(
                f"{pool.total - pool.available} bytes of memory were not released"
            )
        if (
            self.producer._accumulator.incomplete
            or self.producer._sender.in_flight
            or self.producer._brokers.connected
        ):
            self.trace.leftovers.append("batches, requests or connections")


class AiokafkaLoad:
    """aiokafka, in a separate event loop, whose end cancels the remaining tasks."""

    name = "aiokafka"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        close_timeout_s: float = 60,
        partitions: int = PARTITIONS,
        **settings: Any,
    ) -> None:
        self.timeline = Timeline()
        self._topic = topic
        self._partitions = partitions
        self._close_timeout_s = close_timeout_s
        self._make = partial(
            AIOKafkaProducer,
            bootstrap_servers=servers,
            acks="all",
            enable_idempotence=True,
            **settings,
        )
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        stopping = threading.Event()
        working = asyncio.ensure_future(asyncio.to_thread(asyncio.run, self._work(stopping)))
        try:
            await stop.wait()
        finally:
            stopping.set()
            await working

    async def _work(self, stop: threading.Event) -> None:
        producer = self._make()
        await producer.start()
        senders = [
            asyncio.ensure_future(self._send_until(producer, stop, number % self._partitions))
            for number in range(self._partitions * TASKS_PER_PARTITION)
        ]
        await asyncio.to_thread(stop.wait)
        began = time.monotonic()
        closing = asyncio.ensure_future(producer.stop())
        await asyncio.wait([closing, *senders, *self._waiting], timeout=self._close_timeout_s)
        self.timeline.close_seconds = time.monotonic() - began
        for connection in producer.client._conns.values():  # if stop() did not return
            connection.close()

    async def _send_until(self, producer: Any, stop: threading.Event, partition: int) -> None:
        while not stop.is_set():
            self.timeline.sent += 1
            self.timeline.open += 1
            began = time.monotonic()
            try:
                delivery = await producer.send(
                    self._topic, b"%d %s" % (self.timeline.sent, _FILLER), partition=partition
                )
            except Exception as error:
                self._ended(partition, began, error)
            else:
                waiting = asyncio.ensure_future(self._wait(delivery, partition, began))
                self._waiting.add(waiting)
                waiting.add_done_callback(self._waiting.discard)
            await asyncio.sleep(PACE_SECONDS)

    async def _wait(self, delivery: Any, partition: int, began: float) -> None:
        try:
            await delivery
        except Exception as error:
            self._ended(partition, began, error)
        else:
            self._ended(partition, began, None)

    def _ended(self, partition: int, began: float, error: BaseException | None) -> None:
        now = time.monotonic()
        self.timeline.open -= 1
        if error is None:
            self.timeline.acknowledged[partition].append(now)
        else:
            self.timeline.failures.append(
                Failure(partition, now, now - began, type(error).__name__)
            )


class ConfluentLoad:
    """confluent-kafka (librdkafka), in a separate thread, as it blocks."""

    name = "confluent-kafka"

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        close_timeout_s: float = 60,
        partitions: int = PARTITIONS,
        **settings: Any,
    ) -> None:
        self.timeline = Timeline()
        self._topic = topic
        self._partitions = partitions
        self._close_timeout_s = close_timeout_s
        self._settings = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "log_level": 0,
            **settings,
        }
        self._stop = threading.Event()

    async def run(self, stop: asyncio.Event) -> None:
        sending = asyncio.ensure_future(asyncio.to_thread(self._send))
        try:
            await stop.wait()
        finally:
            self._stop.set()
            await sending

    def _send(self) -> None:
        producer = confluent_kafka.Producer(self._settings)
        pause = PACE_SECONDS / (self._partitions * TASKS_PER_PARTITION)
        due = time.monotonic()
        while not self._stop.is_set():
            due = max(due + pause, time.monotonic() - 1.0)
            while (rest := due - time.monotonic()) > 0:
                producer.poll(rest)  # returns after each callback
            partition = self.timeline.sent % self._partitions
            self.timeline.sent += 1
            self.timeline.open += 1
            value = b"%d %s" % (self.timeline.sent, _FILLER)
            try:
                producer.produce(
                    self._topic,
                    value,
                    partition=partition,
                    on_delivery=self._callback(partition, time.monotonic()),
                )
            except BufferError:
                self.timeline.open -= 1
        began = time.monotonic()
        producer.flush(self._close_timeout_s)
        self.timeline.close_seconds = time.monotonic() - began

    def _callback(self, partition: int, began: float) -> Callable[[Any, Any], None]:
        def ended(error: Any, message: Any) -> None:
            now = time.monotonic()
            self.timeline.open -= 1
            if error is None:
                self.timeline.acknowledged[partition].append(now)
            else:
                self.timeline.failures.append(
                    Failure(partition, now, now - began, str(error.name()))
                )

        return ended

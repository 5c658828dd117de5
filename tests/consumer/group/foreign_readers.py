"""Members of a group that other projects wrote, with the same calls as
:class:`group_readers.Reader`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AiokafkaListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.consumer.group.group_readers import LIMIT_S

_ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class AiokafkaReader(AiokafkaListener):  # type: ignore[misc]  # untyped
    def __init__(
        self,
        bootstrap: str,
        topic: str,
        processed: list[bytes],
        group_id: str = "g",
        strategy: str = "range",
    ) -> None:
        self.processed = processed
        self.leaving = False
        self._settings = {
            "bootstrap_servers": bootstrap,
            "group_id": group_id,
            "partition_assignment_strategy": (_ASSIGNORS[strategy],),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 6_000,
            "retry_backoff_ms": 1,
        }
        self.topic = topic
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        self.consumer = AIOKafkaConsumer(**self._settings)
        self.consumer.subscribe([self.topic], listener=self)
        await self.consumer.start()
        try:
            while not (self.leaving and await self._commit_all()):
                found = await self.consumer.getmany(timeout_ms=20)
                self.processed.extend(
                    record.value or b"" for records in found.values() for record in records
                )
        finally:
            await self.consumer.stop()

    async def _commit_all(self) -> bool:
        """It joins in the background: a commit is refused while the broker is a generation further
        than it knows. So it leaves only after one.
        """
        try:
            await self.consumer.commit()
        except CommitFailedError:
            return False
        return True

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass

    async def leave(self) -> None:
        self.leaving = True
        async with asyncio.timeout(LIMIT_S):
            await self.task


class ConfluentReader:
    """A member by librdkafka. Its group needs :func:`commit_beginnings`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        processed: list[bytes],
        group_id: str = "g",
        strategy: str = "range",
        **settings: Any,
    ) -> None:
        self.processed = processed
        self._topic = topic
        self._leaving = threading.Event()
        self._done = False
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **(
                settings
                or {
                    "partition.assignment.strategy": strategy,
                    "heartbeat.interval.ms": 50,
                    "session.timeout.ms": 6_000,
                }
            ),
        }
        self.task = asyncio.create_task(asyncio.to_thread(self.run))

    def run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic], on_revoke=self._commit)
        try:
            while not (self._leaving.is_set() and self._commit_all(consumer)):
                message = consumer.poll(0.02)
                if message is not None and not message.error():
                    self.processed.append(message.value() or b"")
        finally:
            # During close() librdkafka still calls the callbacks, also with no partitions, but may
            # answer nothing; and what they raise ends the thread without an outcome.
            self._done = True
            consumer.close()

    def _commit_all(self, consumer: Consumer) -> bool:
        """While a cooperative group rebalances, its commits are refused, including those that it
        makes as it closes: so it leaves only after one.
        """
        try:
            self._commit(consumer, consumer.assignment())
        except KafkaException:
            return False
        return True

    def _commit(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        read = [position for position in consumer.position(revoked) if position.offset >= 0]
        if read and not self._done:
            consumer.commit(offsets=read, asynchronous=False)

    async def leave(self) -> None:
        self._leaving.set()
        async with asyncio.timeout(LIMIT_S):
            await self.task

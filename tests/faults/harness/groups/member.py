"""A member of a group, in a process of its own: it reads, and notes each record in its ledger.

SIGTERM ends it in good order, SIGUSR1 makes the handler of the next records busy for
``busy_seconds``, and it ends with the process that started it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from aioprod import Consumer, KafkaError, TopicPartition
from aioprod.consumer import RebalanceListener
from tests.faults.harness.child import end_with_parent
from tests.faults.harness.groups.ledger import ASSIGNED, CLOSED, ERROR, REVOKED, LedgerWriter

EAGER, COOPERATIVE, KIP_848 = "eager", "cooperative", "KIP-848"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Settings:
    """The settings of a member: the same for all clients.

    Attributes:
        protocol: one of `EAGER`, `COOPERATIVE` and `KIP_848`.
        session_timeout_ms: with KIP-848 the broker has it.
        busy_seconds: how long a busy handler takes.
    """

    client: str
    protocol: str
    servers: str
    topic: str
    group: str
    ledger: str
    session_timeout_ms: int = 6_000
    heartbeat_interval_ms: int = 1_000
    commit_interval_ms: int = 1_000
    metadata_max_age_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    busy_seconds: float = 0.0

    def to_json(self) -> str:
        """Return the argument of the program."""
        return json.dumps(asdict(self))


class Member:
    """The common part of the members of all clients."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = LedgerWriter(Path(settings.ledger))
        self.stopping = False
        self.busy = False
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._become_busy)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def _become_busy(self, *_: object) -> None:
        self.busy = True

    def busy_seconds(self) -> float:
        """Return how long the handler of the next records takes."""
        was, self.busy = self.busy, False
        return self.settings.busy_seconds if was else 0.0

    def failed(self, error: BaseException | str) -> None:
        """Note an error."""
        self.ledger.note(ERROR, error if isinstance(error, str) else repr(error))


class AioprodMember(Member, RebalanceListener):
    """aioprod."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.ledger.partitions(ASSIGNED, (tp.partition for tp in partitions))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.ledger.partitions(REVOKED, (tp.partition for tp in partitions))

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        settings = self.settings
        classic = {
            "session_timeout_ms": settings.session_timeout_ms,
            "heartbeat_interval_ms": settings.heartbeat_interval_ms,
        }
        protocols: dict[str, dict[str, Any]] = {
            EAGER: {**classic, "partition_assignment_strategy": ("range",)},
            COOPERATIVE: {**classic, "partition_assignment_strategy": ("cooperative-sticky",)},
            KIP_848: {"group_protocol": "consumer"},
        }
        consumer = Consumer(
            bootstrap_servers=settings.servers,
            group_id=settings.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=settings.commit_interval_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            **protocols[settings.protocol],
        )
        consumer.subscribe([settings.topic], listener=self)
        await _until_done(self, consumer.start)
        while not self.stopping:
            try:
                records = await consumer.getmany(timeout_ms=POLL_SECONDS * 1000)
            except KafkaError as error:
                self.failed(error)
                continue
            if seconds := self.busy_seconds():
                await asyncio.sleep(seconds)
            self.ledger.records((record.partition, record.value or b"") for record in records)
        await consumer.close()


class _AiokafkaListener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, ledger: LedgerWriter) -> None:
        self._ledger = ledger

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._ledger.partitions(ASSIGNED, (tp.partition for tp in assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._ledger.partitions(REVOKED, (tp.partition for tp in revoked))


class AiokafkaMember(Member):
    """aiokafka, which has eager groups only."""

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        settings = self.settings
        consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.servers,
            group_id=settings.group,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=settings.commit_interval_ms,
            metadata_max_age_ms=settings.metadata_max_age_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        consumer.subscribe([settings.topic], listener=_AiokafkaListener(self.ledger))
        await _until_done(self, consumer.start)
        while not self.stopping:
            try:
                polled = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            except Exception as error:
                self.failed(error)
                await asyncio.sleep(POLL_SECONDS)
                continue
            if seconds := self.busy_seconds():
                await asyncio.sleep(seconds)
            self.ledger.records(
                (record.partition, record.value)
                for records in polled.values()
                for record in records
            )
        await consumer.stop()


class ConfluentMember(Member):
    """confluent-kafka. It stores offsets after records were processed, as its documentation shows
    for at-least-once.
    """

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(self._settings())
        consumer.subscribe(
            [self.settings.topic],
            on_assign=self._noting(ASSIGNED),
            on_revoke=self._noting(REVOKED),
            on_lost=self._noting(REVOKED),
        )
        while not self.stopping:
            try:
                messages = consumer.consume(500, POLL_SECONDS)
            except confluent_kafka.KafkaException as error:
                self.failed(error)
                continue
            good = []
            for message in messages:
                if message.error():
                    self.failed(str(message.error()))
                else:
                    good.append(message)
            if good and (seconds := self.busy_seconds()):
                time.sleep(seconds)
            self.ledger.records(
                (message.partition() or 0, message.value() or b"") for message in good
            )
            for message in good:
                try:
                    consumer.store_offsets(message)
                except confluent_kafka.KafkaException:
                    continue  # the partition was revoked meanwhile
        consumer.close()

    def _noting(self, event: str) -> Any:
        def noted(_: Any, partitions: list[Any]) -> None:
            self.ledger.partitions(event, (each.partition for each in partitions))

        return noted

    def _settings(self) -> dict[str, Any]:
        settings = self.settings
        classic = {
            "session.timeout.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.heartbeat_interval_ms,
        }
        protocols: dict[str, dict[str, Any]] = {
            EAGER: {**classic, "partition.assignment.strategy": "range"},
            COOPERATIVE: {**classic, "partition.assignment.strategy": "cooperative-sticky"},
            KIP_848: {"group.protocol": "consumer"},
        }
        return {
            "bootstrap.servers": settings.servers,
            "group.id": settings.group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": settings.commit_interval_ms,
            "enable.auto.offset.store": False,
            "topic.metadata.refresh.interval.ms": settings.metadata_max_age_ms,
            "max.poll.interval.ms": settings.max_poll_interval_ms,
            "log_level": 0,
            **protocols[settings.protocol],
        }


MEMBERS: dict[str, type[AioprodMember | AiokafkaMember | ConfluentMember]] = {
    "aioprod": AioprodMember,
    "aiokafka": AiokafkaMember,
    "confluent-kafka": ConfluentMember,
}


async def _until_done(member: Member, start: Any) -> None:
    """Start; after an error, again, as its supervisor would."""
    while not member.stopping:
        try:
            await start()
            return
        except Exception as error:
            member.failed(error)
            await asyncio.sleep(POLL_SECONDS)


def main() -> None:
    """Run a member until SIGTERM; the argument has its settings."""
    end_with_parent()
    settings = Settings(**json.loads(sys.argv[1]))
    member = MEMBERS[settings.client](settings)
    try:
        member.run()
    except BaseException as error:
        member.failed(error)
        raise
    member.ledger.note(CLOSED)


if __name__ == "__main__":
    main()

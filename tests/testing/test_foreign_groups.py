"""Consumer groups of other clients: members join and leave while records arrive, and each record is
processed once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AiokafkaListener
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from aioprod.testing import EmbeddedCluster
from aioprod.types import TopicPartition as Place
from tests.testing.librdkafka_groups import commit_beginnings
from tests.testing.raw_client import RawClient, make_batch
from tests.waiting import until

with warnings.catch_warnings():
    # It reads its resources in a deprecated way.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.consumer.subscription_state import (
        AsyncConsumerRebalanceListener as KafkaPythonListener,
    )

LIMIT_SECONDS = 20.0
PARTITIONS = 6
BATCH_SIZE = 10
POLL_SECONDS = 0.02


class Member(ABC):
    """A consumer that appends what it reads to the troupe's ``processed``, and commits when it
    loses partitions or leaves.

    Attributes:
        needs_offsets: whether its group must have committed offsets from the start on.
    """

    needs_offsets: ClassVar[bool] = False

    def __init__(self, bootstrap_servers: str, processed: list[bytes]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.processed = processed
        self.leaving = threading.Event()
        self.task = asyncio.create_task(self.run())

    @abstractmethod
    async def run(self) -> None:
        """Read until asked to leave."""

    async def leave(self) -> None:
        """Leave the group; raise the consumer's error."""
        self.leaving.set()
        await self.task


class AiokafkaMember(Member, AiokafkaListener):  # type: ignore[misc]  # untyped
    async def run(self) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=50,
            session_timeout_ms=6_000,
            # stop() raises CancelledError while a fetch waits for a retry
            retry_backoff_ms=1,
        )
        self.consumer.subscribe(["t"], listener=self)
        await self.consumer.start()
        try:
            while not self.leaving.is_set():
                found = await self.consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
                self.processed.extend(
                    record.value or b"" for records in found.values() for record in records
                )
            await self.consumer.commit()
        finally:
            await self.consumer.stop()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:  # getmany returns nothing more until the next assignment
            await self.consumer.commit()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass


class ThreadedMember(Member):
    async def run(self) -> None:
        await asyncio.to_thread(self.run_in_thread)

    @abstractmethod
    def run_in_thread(self) -> None:
        """Read until asked to leave."""


class ConfluentMember(ThreadedMember):
    settings: ClassVar[dict[str, Any]] = {}
    needs_offsets = True

    def run_in_thread(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 50,
                "session.timeout.ms": 6_000,
                "log_level": 0,
                **self.settings,
            }
        )
        consumer.subscribe(["t"], on_revoke=self._commit)
        try:
            while not self.leaving.is_set():
                message = consumer.poll(POLL_SECONDS)
                if message is not None and not message.error():
                    self.processed.append(message.value() or b"")
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        read = [position for position in consumer.position(revoked) if position.offset >= 0]
        if read:
            consumer.commit(offsets=read, asynchronous=False)


class CooperativeMember(ConfluentMember):
    settings: ClassVar[dict[str, Any]] = {"partition.assignment.strategy": "cooperative-sticky"}


class KafkaPythonMember(ThreadedMember, KafkaPythonListener):  # type: ignore[misc]  # untyped
    def run_in_thread(self) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=50,
            session_timeout_ms=6_000,
        )
        self.consumer.subscribe(["t"], listener=self)
        # Without this it may join with an empty assignment and think that it has all.
        assert self.consumer.partitions_for_topic("t")
        try:
            while not self.leaving.is_set():
                # where this passes as a rebalance ends, it forgets to read on and to send
                # heartbeats
                found = self.consumer.poll(timeout_ms=500)
                self.processed.extend(
                    record.value for records in found.values() for record in records
                )
            self.consumer.commit()
        finally:
            self.consumer.close()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            await self.consumer.commit_async()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        pass


class Troupe:
    """Members of one kind, what they have processed, and a writer that sends small batches to the
    whole topic meanwhile.
    """

    def __init__(self, broker: EmbeddedCluster, kind: type[Member]) -> None:
        self.broker = broker
        self.kind = kind
        self.members: list[Member] = []
        self.processed: list[bytes] = []
        self.batch_count = 0
        self.enough = asyncio.Event()
        self.pen = asyncio.Lock()  # who has it has the writer wait
        self.writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        while not self.enough.is_set():
            partition = self.batch_count % PARTITIONS
            async with (
                self.pen,
                RawClient(self.broker.address(self.broker.leader("t", partition))) as client,
            ):
                answer = await client.produce(
                    "t", make_batch(self._values(self.batch_count)), partition=partition
                )
            assert not answer.error_code
            self.batch_count += 1
            await asyncio.sleep(0.005)

    def _values(self, batch: int) -> list[bytes]:
        return [b"%d" % number for number in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)]

    def add(self) -> None:
        """Add a member."""
        self.members.append(self.kind(self.broker.bootstrap_servers, self.processed))

    async def remove(self) -> None:
        """Let the oldest member leave after all have noticed the last change: kafka-python can't
        leave while it joins.
        """
        await self.read_on()
        await self.members.pop(0).leave()
        await self.share()

    async def share(self) -> None:
        """Wait until the members share all partitions."""
        group = await self.broker.wait_for_group("g", member_count=len(self.members))
        # Cooperative members revoke first and assign later.
        while group.partitions != [Place("t", index) for index in range(PARTITIONS)]:
            await asyncio.sleep(0.01)
            group = await self.broker.wait_for_group("g", member_count=len(self.members))

    async def read_on(self) -> None:
        """Wait until they have read something new of each partition."""
        first = self.batch_count + 1
        awaited = {
            value for batch in range(first, first + PARTITIONS) for value in self._values(batch)
        }
        await until(lambda: awaited <= set(self.processed))

    async def finish(self) -> None:
        """Check that each record was processed once, and that the offsets are committed."""
        while len(self.members) > 1:
            await self.remove()
        await self.read_on()
        self.enough.set()
        await self.writing
        expected = Counter(
            value for batch in range(self.batch_count) for value in self._values(batch)
        )
        await until(lambda: len(self.processed) >= expected.total())
        await self.members.pop().leave()
        await self.broker.wait_for_group("g", "Empty")
        assert Counter(self.processed) == expected
        assert sum(self.broker.committed_offsets("g").values()) == expected.total()

    async def abandon(self) -> None:
        """Clean up after a test that failed."""
        self.enough.set()
        for member in self.members:
            member.leaving.set()
            member.task.cancel()
        await asyncio.gather(
            self.writing, *(member.task for member in self.members), return_exceptions=True
        )


@pytest.fixture(autouse=True)
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect garbage, so that a client's unclosed resources are reported in its own test and not
    kept alive by log records.
    """
    caplog.set_level(logging.CRITICAL, "kafka")
    yield
    gc.collect()


# kafka-python does not close sockets whose connection was refused
LEAKING = pytest.param(
    KafkaPythonMember,
    marks=pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)


@pytest.mark.parametrize(
    "kind",
    [AiokafkaMember, ConfluentMember, CooperativeMember, LEAKING],
    ids=lambda kind: kind.__name__,
)
async def test_each_record_is_processed_once_while_members_and_coordinators_come_and_go(
    kind: type[Member],
) -> None:
    async with asyncio.timeout(LIMIT_SECONDS), EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", PARTITIONS)
        if kind.needs_offsets:
            await commit_beginnings(broker.bootstrap_servers, "g", "t", PARTITIONS)
        troupe = Troupe(broker, kind)
        try:
            for _ in range(2):
                troupe.add()
                await troupe.share()
            # librdkafka does not retry if a request for offsets (OffsetFetch) gets
            # NOT_COORDINATOR, and waits forever
            await troupe.read_on()
            broker.move_coordinator("group", "g", broker.coordinator("group", "g") % 3 + 1)
            troupe.add()
            await troupe.share()
            await troupe.remove()
            await troupe.read_on()
            async with troupe.pen:
                await broker.stop_node(broker.coordinator("group", "g"))
            await troupe.finish()
        finally:
            await troupe.abandon()


def use_admin(bootstrap_servers: str) -> list[object]:
    """Check what librdkafka's admin client sees of a group with a member, and of one without."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    found = admin.list_consumer_groups(request_timeout=LIMIT_SECONDS).result()
    answers: list[object] = [
        sorted(
            (each.group_id, each.state.name, each.is_simple_consumer_group) for each in found.valid
        ),
        found.errors,
    ]
    group = admin.describe_consumer_groups(["g"], request_timeout=LIMIT_SECONDS)["g"].result()
    member = group.members[0]
    places = [(each.topic, each.partition) for each in member.assignment.topic_partitions]
    answers += [
        group.state.name,
        group.partition_assignor,
        group.coordinator.id,
        len(group.members),
        member.group_instance_id,
        sorted(places),
    ]
    altered = ConsumerGroupTopicPartitions("idle", [TopicPartition("t", 0, 7)])
    answers += [
        admin.alter_consumer_group_offsets([altered])["idle"].result().topic_partitions[0].error
    ]
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("idle")])[
        "idle"
    ].result()
    answers += [[(each.topic, each.partition, each.offset) for each in listed.topic_partitions]]
    for group_id in ("g", "idle"):
        deleted = admin.delete_consumer_groups([group_id])[group_id].exception()
        answers.append(None if deleted is None else deleted.args[0].name())
    return answers


class StaticConfluentMember(ConfluentMember):
    settings: ClassVar[dict[str, Any]] = {"group.instance.id": "i"}


async def test_an_admin_client_sees_and_deletes_groups() -> None:
    async with asyncio.timeout(LIMIT_SECONDS), EmbeddedCluster(nodes=3) as broker:
        broker.create_topic("t", 2)
        member = StaticConfluentMember(broker.bootstrap_servers, [])
        await broker.wait_for_group("g")
        answers = await asyncio.to_thread(use_admin, broker.bootstrap_servers)
        coordinator = broker.coordinator("group", "g")
        await member.leave()
    assert answers[:2] == [[("g", "STABLE", False)], []]
    assert answers[2:8] == ["STABLE", "range", coordinator, 1, "i", [("t", 0), ("t", 1)]]
    assert answers[8:] == [None, [("t", 0, 7)], "NON_EMPTY_GROUP", None]
    assert broker.group_ids == ["g"]


async def test_a_static_member_goes_on_after_a_restart_without_a_rebalance() -> None:
    async with asyncio.timeout(LIMIT_SECONDS), EmbeddedCluster() as broker:
        broker.create_topic("t", 2)
        member = StaticConfluentMember(broker.bootstrap_servers, [])
        before = await broker.wait_for_group("g")
        await member.leave()
        assert broker.group("g") == before
        member = StaticConfluentMember(broker.bootstrap_servers, [])
        await until(lambda: broker.group("g").members.keys() != before.members.keys())
        after = broker.group("g")
        await member.leave()
    assert (after.state, after.generation_id, after.partitions) == (
        "Stable",
        before.generation_id,
        before.partitions,
    )

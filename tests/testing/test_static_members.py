"""Clients restart in groups of the embedded broker: static members without a rebalance
(KIP-345).
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AiokafkaListener
from confluent_kafka import Consumer as ConfluentConsumer

from aioprod import Consumer
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from aioprod.testing.broker.groups.view import ConsumerGroup
from tests.waiting import until

LIMIT_SECONDS = 20.0
ROUNDS = 12


class AiokafkaMember(AiokafkaListener):  # type: ignore[misc]  # untyped
    """A consumer of topic "t", and its assignments.

    Attributes:
        assigned: the partitions of each assignment.
    """

    def __init__(self, address: str, group_id: str, instance_id: str | None) -> None:
        self.assigned: list[list[int]] = []
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            group_id=group_id,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=20,
            retry_backoff_ms=10,
        )
        self.consumer.subscribe(["t"], listener=self)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.assigned.append(sorted(each.partition for each in assigned))

    async def ready(self) -> None:
        """Wait until it has partitions and has fetched the committed offsets."""
        await self.consumer.start()
        await self.consumer.seek_to_committed()

    async def join_again(self) -> None:
        """Forget the member id, as after a restart. A dynamic member leaves first."""
        count = len(self.assigned)
        self.consumer.unsubscribe()
        self.consumer.subscribe(["t"], listener=self)
        await until(lambda: len(self.assigned) > count)


async def play(broker: ThreadedCluster, group_id: str, *, static: bool) -> None:
    """When the second member is ready, the first one has its new partitions."""
    address = broker.bootstrap_servers
    first, second = (
        AiokafkaMember(address, group_id, f"i{number}" if static else None) for number in range(2)
    )
    try:
        await first.ready()
        assert first.assigned == [[0, 1]]
        await second.ready()
        assert sorted(first.assigned[1:] + second.assigned) == [[0], [1]]
        before = broker.group(group_id).generation_id
        await second.join_again()
        if static:
            assert second.assigned[0] == second.assigned[1]
            assert len(first.assigned) == 2
            assert broker.group(group_id).generation_id == before
        else:
            assert broker.group(group_id).generation_id > before
    finally:
        await asyncio.gather(first.consumer.stop(), second.consumer.stop())


@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
async def test_members_of_aiokafka_learn_of_a_rebalance_together(static: bool) -> None:
    """The broker's thread may be interrupted by the client's while it sends the first response."""
    with EmbeddedCluster.in_thread() as broker:
        broker.create_topic("t", 2)
        async with asyncio.timeout(LIMIT_SECONDS):
            for number in range(ROUNDS):
                await play(broker, f"g{number}", static=static)


class Reader(ABC):
    """A static member that reads topic "t" until it is stopped, without leaving its group."""

    def __init__(self, address: str, instance_id: str) -> None:
        self.address = address
        self.instance_id = instance_id
        self.stopping = threading.Event()
        self.task = asyncio.create_task(self.run())

    @abstractmethod
    async def run(self) -> None:
        """Read until ``stopping`` is set."""

    async def stop(self) -> None:
        """Stop, and raise the reader's error."""
        self.stopping.set()
        await self.task


class OurReader(Reader):
    async def run(self) -> None:
        async with Consumer(
            "t",
            bootstrap_servers=self.address,
            group_id="g",
            group_instance_id=self.instance_id,
            heartbeat_interval_ms=20,
        ) as consumer:
            while not self.stopping.is_set():
                await consumer.getmany(timeout_ms=20)


class ConfluentReader(Reader):
    async def run(self) -> None:
        await asyncio.to_thread(self._run_in_thread)

    def _run_in_thread(self) -> None:
        consumer = ConfluentConsumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "g",
                "group.instance.id": self.instance_id,
                "heartbeat.interval.ms": 20,
                "log_level": 0,
            }
        )
        consumer.subscribe(["t"])
        try:
            while not self.stopping.is_set():
                consumer.poll(0.02)
        finally:
            consumer.close()


class AiokafkaReader(Reader):
    async def run(self) -> None:
        member = AiokafkaMember(self.address, "g", self.instance_id)
        await member.ready()
        while not self.stopping.is_set():
            await member.consumer.getmany(timeout_ms=20)
        await member.consumer.stop()


def shares(group: ConsumerGroup) -> dict[str | None, object]:
    """Return the partitions of each instance."""
    return {each.instance_id: each.partitions for each in group.members.values()}


@pytest.mark.parametrize("kind", [OurReader, ConfluentReader, AiokafkaReader])
@pytest.mark.parametrize("restarted", [0, 1], ids=["leader", "follower"])
async def test_a_static_member_restarts_without_a_rebalance(
    kind: type[Reader], restarted: int
) -> None:
    async with asyncio.timeout(LIMIT_SECONDS), EmbeddedCluster() as broker:
        broker.create_topic("t", 2)
        readers = []
        for count in (1, 2):
            readers.append(kind(broker.bootstrap_servers, f"i{count}"))
            before = await broker.wait_for_group("g", "Stable", member_count=count)
        assert sorted(before.partitions) == sorted(set(before.partitions)) != []
        await readers[restarted].stop()
        assert broker.group("g").members.keys() == before.members.keys()
        readers[restarted] = kind(broker.bootstrap_servers, f"i{restarted + 1}")
        await until(lambda: broker.group("g").members.keys() != before.members.keys())
        after = await broker.wait_for_group("g", "Stable", member_count=2)
        assert (after.generation_id, shares(after)) == (before.generation_id, shares(before))
        for reader in readers:
            await reader.stop()

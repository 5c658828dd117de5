"""Clients restart in groups of the embedded broker: static members (KIP-345) without a rebalance, others with one."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AiokafkaListener

from aioprod.testing import EmbeddedCluster

LIMIT_SECONDS = 20.0
ROUNDS = 12


class AiokafkaMember(AiokafkaListener):  # type: ignore[misc]  # untyped
    """A consumer of topic "t", and what it was told.

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
        """Wait until it has partitions, and knows what is committed."""
        await self.consumer.start()
        await self.consumer.seek_to_committed()


async def play(address: str, group_id: str, *, static: bool) -> None:
    """As aiokafka's own tests of KIP-345: when the second member is ready, the first one has heard of its new partitions."""
    first, second = (AiokafkaMember(address, group_id, f"i{number}" if static else None) for number in range(2))
    try:
        await first.ready()
        assert first.assigned == [[0, 1]]
        await second.ready()
        assert sorted(first.assigned[1:] + second.assigned) == [[0], [1]]
        if static:
            kept = second.assigned[0]
            second.consumer.unsubscribe()  # forgets its member id, and does not leave
            second.consumer.subscribe(["t"], listener=second)
            await second.consumer._subscription.wait_for_assignment()
            assert (len(first.assigned), second.assigned[1:]) == (2, [kept])
    finally:
        await asyncio.gather(first.consumer.stop(), second.consumer.stop())


async def test_aiokafka_s_members_hear_of_a_rebalance_together() -> None:
    """The broker has a thread of its own: it is interrupted while it sends, by whoever was answered first."""
    with EmbeddedCluster.in_thread() as broker:
        broker.create_topic("t", 2)
        async with asyncio.timeout(LIMIT_SECONDS):
            for number in range(ROUNDS):
                await play(broker.bootstrap_servers, f"g{number}", static=number % 2 == 0)

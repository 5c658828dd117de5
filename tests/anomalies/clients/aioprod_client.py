"""aioprod, native or in pure Python (``AIOPROD_PURE=1``)."""

from __future__ import annotations

from collections.abc import Sequence

from aioprod import Consumer, Producer, RebalanceListener, TopicPartition
from tests.anomalies.clients.interface import DELIVERY_S, POLL_S, Assigned, Budget


class AioprodSender:
    """aioprod's producer."""

    def __init__(
        self,
        servers: str,
        topic: str,
        transactional_id: str | None = None,
        transaction_ms: int | None = None,
    ) -> None:
        self._topic = topic
        self._producer = Producer(
            servers,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_ms or 60_000,
            delivery_timeout_ms=DELIVERY_S * 1000,
            request_timeout_ms=10_000,
            max_block_ms=DELIVERY_S * 1000,
        )

    async def start(self) -> None:
        await self._producer.start()

    async def send(self, partition: int, value: int) -> int | None:
        sent = await self._producer.send_and_wait(self._topic, b"%d" % value, partition=partition)
        return sent.offset

    async def begin(self) -> None:
        await self._producer.begin_transaction()

    async def end(self, *, commit: bool) -> None:
        if commit:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()

    async def close(self) -> None:
        await self._producer.close()


class AioprodMember:
    """aioprod's consumer."""

    def __init__(self, servers: str, topic: str, group: str, assigned: Assigned) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._consumer = consumer = Consumer(
            bootstrap_servers=servers,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=20,
            default_api_timeout_ms=DELIVERY_S * 1000,
        )

        class Listener(RebalanceListener):
            def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
                generation = consumer.group_metadata().generation_id
                assigned(generation, [each.partition for each in partitions])

        consumer.subscribe([topic], listener=Listener())

    async def start(self) -> None:
        await self._consumer.start()

    async def poll(self) -> Sequence[tuple[int, int, int]]:
        records = await self._consumer.getmany(timeout_ms=POLL_S * 1000)
        return [(each.partition, each.offset, int(each.value or b"-1")) for each in records]

    async def commit(self) -> dict[int, int]:
        budget = Budget()
        positions = {
            partition: await self._consumer.position(partition, timeout_ms=budget.rest_ms)
            for partition in self._consumer.assignment()
        }
        await self._consumer.commit(positions, timeout_ms=budget.rest_ms)
        return {partition.partition: offset for partition, offset in positions.items()}

    async def close(self) -> None:
        await self._consumer.close()

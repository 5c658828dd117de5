"""A test of a FastStream application with the embedded broker in the same event loop, as
docs/aiokafka.md shows it. Prints what the broker has.

Arguments: the client, which is "aioprod".
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import json

import aioprod.compat.aiokafka

aioprod.compat.aiokafka.install()

from faststream.kafka import KafkaBroker, KafkaRouter  # noqa: E402

from aioprod import TopicPartition  # noqa: E402
from aioprod.testing import EmbeddedCluster  # noqa: E402

router = KafkaRouter()


@router.subscriber("orders", group_id="billing", auto_offset_reset="earliest")
@router.publisher("bills")
async def bill(amount: int) -> int:
    return amount * 10


async def main():
    async with EmbeddedCluster() as kafka:
        kafka.create_topic("bills")
        broker = KafkaBroker(kafka.bootstrap_servers)
        broker.include_router(router)
        async with broker:
            await broker.start()
            await broker.publish(2, "orders")
            await broker.publish_batch(3, 4, topic="orders")
            async with asyncio.timeout(20):
                while len(kafka.records("bills")) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        committed = kafka.committed_offsets("billing")[TopicPartition("orders", 0)]
        print(json.dumps([[each.value.decode() for each in kafka.records("bills")], committed]))


asyncio.run(main())

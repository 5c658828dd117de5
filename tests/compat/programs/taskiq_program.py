"""taskiq-aio-kafka: tasks are sent and received. Prints what it has seen.

Arguments: the client ("aiokafka" or "aioprod"), and the bootstrap servers.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import json
import sys

if sys.argv[1] == "aioprod":
    import aioprod.compat.aiokafka

    aioprod.compat.aiokafka.install()

from taskiq.receiver import Receiver
from taskiq_aio_kafka import AioKafkaBroker

SERVERS = sys.argv[2]


async def main():
    broker = AioKafkaBroker(bootstrap_servers=SERVERS, kafka_topic="tasks")
    broker.configure_consumer(
        group_id="workers",
        auto_offset_reset="earliest",
    )
    seen = []
    done = asyncio.Event()

    @broker.task(task_name="add")
    async def add(first: int, second: int) -> None:
        seen.append(first + second)
        if len(seen) == 5:
            done.set()

    broker.is_worker_process = True
    await broker.startup()
    finish = asyncio.Event()
    receiver = asyncio.create_task(Receiver(broker, max_async_tasks=1).listen(finish))
    for number in range(5):
        await add.kiq(number, 100)
    await asyncio.wait_for(done.wait(), 30)
    finish.set()
    await asyncio.wait_for(receiver, 30)
    await broker.shutdown()
    print(json.dumps(sorted(seen)))


asyncio.run(main())

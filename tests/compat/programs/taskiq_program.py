"""taskiq-aio-kafka: tasks are sent and run, by the default topic and by one of their own. Prints
what it has seen.

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

from taskiq import InMemoryBroker
from taskiq.api import run_receiver_task
from taskiq_aio_kafka import AioKafkaBroker

SERVERS = sys.argv[2]


async def main():
    seen = []
    broker = AioKafkaBroker(bootstrap_servers=SERVERS, kafka_topic="tasks").with_result_backend(
        InMemoryBroker().result_backend
    )
    broker.configure_consumer(group_id="workers", auto_offset_reset="earliest")
    broker.configure_producer(acks="all")

    @broker.task(task_name="add")
    async def add(a: int, b: int) -> int:
        seen.append(["add", a, b])
        return a + b

    @broker.task_with_topic("special", task_name="fail")
    async def fail(text: str) -> None:
        seen.append(["fail", text])
        raise LookupError(text)

    broker.is_worker_process = True
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker))
    sent = [await add.kiq(number, b=1) for number in range(5)] + [await fail.kiq("text")]
    results = [await each.wait_result(timeout=20) for each in sent]
    receiver.cancel()
    await asyncio.wait([receiver])
    await broker.shutdown()
    outcomes = [[each.is_err, each.return_value, repr(each.error)] for each in results]
    print(json.dumps([sorted(seen), outcomes], default=repr))


asyncio.run(main())

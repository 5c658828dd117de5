"""Reads a topic by another client, in a process of its own: one of them aborts, one hangs.

``peer_program.py CLIENT HOST:PORT TOPIC COUNT`` prints the values of the records, in hexadecimal.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import Any

LIMIT_S = 6.0


def librdkafka(servers: str, topic: str, count: int) -> list[bytes | None]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "other"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    while len(found) < count and (records := consumer.consume(count, LIMIT_S)):
        for each in records:
            if (error := each.error()) is not None:
                raise ValueError(error.str())
            found.append(each.value())
    return found


def aiokafka(servers: str, topic: str, count: int) -> list[bytes | None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[bytes | None]:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, 0)])
            async with asyncio.timeout(LIMIT_S):
                return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


def kafka_python(servers: str, topic: str, count: int) -> list[bytes | None]:
    from kafka import KafkaConsumer, TopicPartition

    consumer: Any = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found: list[bytes | None] = []
    while len(found) < count and (polled := consumer.poll(LIMIT_S * 1000)):
        found += [each.value for records in polled.values() for each in records]
    return found


CLIENTS = {each.__name__: each for each in (aiokafka, kafka_python, librdkafka)}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    client, servers, topic, count = sys.argv[1:]
    for value in CLIENTS[client](servers, topic, int(count)):
        print("null" if value is None else value.hex(), flush=True)

"""FastStream: publish, requests of batches, ack policies, a listener, topics that it creates, and
settings of transactions. Prints what it has seen.

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

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage, Topic

SERVERS = sys.argv[2]
seen: dict[str, list] = {}


def note(name, value):
    seen.setdefault(name, []).append(value)


class Listener(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked):
        pass

    async def on_partitions_assigned(self, assigned):
        note("assigned", sorted(tp.partition for tp in assigned))


def make_broker():
    broker = KafkaBroker(SERVERS, request_timeout_ms=5_000)
    early = {"auto_offset_reset": "earliest"}

    @broker.subscriber("plain", group_id="plain", listener=Listener(), **early)
    async def plain(body: dict, message: KafkaMessage):
        note("plain", [body["number"], message.headers.get("h"), message.raw_message.key])

    @broker.subscriber(Topic("wide", num_partitions=4), isolation_level="read_committed", **early)
    async def wide(body: int, message: KafkaMessage):
        note("wide", [body, message.raw_message.partition])

    @broker.subscriber("batch", group_id="batch", batch=True, batch_timeout_ms=500, **early)
    async def batch(bodies: list[int]):
        for body in bodies:
            note("batch", body)

    @broker.subscriber("chain", group_id="chain", **early)
    @broker.publisher("chained")
    async def chain(body: int) -> int:
        return body * 10

    @broker.subscriber("chained", group_id="chained", **early)
    async def chained(body: int):
        note("chained", body)

    for policy in (AckPolicy.ACK, AckPolicy.REJECT_ON_ERROR, AckPolicy.NACK_ON_ERROR):
        name = policy.value

        @broker.subscriber(name, group_id=name, ack_policy=policy, **early)
        async def failing(body: int, message: KafkaMessage):
            topic = message.raw_message.topic
            note(topic, body)
            if body == 1 and seen[topic].count(1) == 1:
                raise LookupError(body)

    @broker.subscriber("manual", group_id="manual", ack_policy=AckPolicy.MANUAL, **early)
    async def manual(body: int, message: KafkaMessage):
        note("manual", body)
        if body == 2:
            await message.ack()

    return broker


async def committed(group):
    async with AIOKafkaConsumer(bootstrap_servers=SERVERS, group_id=group) as consumer:
        return await consumer.committed(TopicPartition(group, 0))


async def publish_without_a_transaction():
    """FastStream has the setting, but no calls that begin and end transactions."""
    broker = KafkaBroker(SERVERS, transactional_id="t")
    async with broker:
        await broker.start()
        try:
            await broker.publish("outside", "elsewhere")
        except Exception as error:
            note("transactional", type(error).__name__)


def done(expected):
    nacked = seen.get("nack_on_error", [])
    return 3 in nacked and all(len(seen.get(name, [])) >= count for name, count in expected.items())


async def main():
    broker = make_broker()
    expected = {
        "plain": 5,
        "wide": 4,
        "batch": 4,
        "chained": 3,
        "ack": 4,
        "reject_on_error": 4,
        "manual": 4,
    }
    async with broker:
        await broker.start()
        for number in range(5):
            await broker.publish({"number": number}, "plain", key=b"k", headers={"h": "x"})
        found = await broker.publish({"number": 9}, "elsewhere", partition=0)
        note("metadata", [type(found).__name__, found.topic, found.partition, found.offset])
        await broker.publish_batch(1, 2, 3, 4, topic="batch")
        for number in range(3):
            await broker.publish(number, "chain")
        for number in range(4):
            await broker.publish(number, "wide", key=b"%d" % number)
        for topic in ("ack", "reject_on_error", "nack_on_error", "manual"):
            for number in range(4):
                await broker.publish(number, topic)
        note("ping", await broker.ping(5.0))
        for _ in range(300):
            if done(expected):
                break
            await asyncio.sleep(0.05)  # handlers run in tasks of FastStream
    seen["wide"].sort()  # of four partitions
    await publish_without_a_transaction()
    for group in ("plain", "ack", "reject_on_error", "nack_on_error", "manual"):
        note("committed", [group, await committed(group)])
    print(json.dumps(seen, sort_keys=True, default=repr))


asyncio.run(main())

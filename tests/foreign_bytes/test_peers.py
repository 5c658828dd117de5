"""Whatever aiokafka, kafka-python or librdkafka reads of a real broker, we read, too."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as OfAiokafka
from confluent_kafka import Consumer as Librdkafka
from confluent_kafka import TopicPartition as OfLibrdkafka

from tests.foreign_bytes.batches import VALUES, batch_of
from tests.foreign_bytes.corpus import CORPUS
from tests.foreign_bytes.odd_records import ODD
from tests.foreign_bytes.test_acceptance import new_topic
from tests.testing.raw_client import RawClient

pytestmark = [pytest.mark.strangers, pytest.mark.kafka, pytest.mark.timeout(600)]
_LIMIT_S = 5.0
Values = list[bytes | None]
Peer = Callable[[str, str, int], Awaitable[Values]]


async def librdkafka(servers: str, topic: str, count: int) -> Values:
    def read() -> Values:
        consumer = Librdkafka({"bootstrap.servers": servers, "group.id": "other"})
        consumer.assign([OfLibrdkafka(topic, 0, 0)])
        found: Values = []
        try:
            while len(found) < count:
                records = consumer.consume(count, _LIMIT_S)
                if not records or records[0].error() is not None:
                    break
                found += [each.value() for each in records if each.error() is None]
        finally:
            consumer.close()
        return found

    return await asyncio.to_thread(read)


async def aiokafka(servers: str, topic: str, count: int) -> Values:
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        consumer.assign([OfAiokafka(topic, 0)])
        async with asyncio.timeout(_LIMIT_S):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def kafka_python(servers: str, topic: str, count: int) -> Values:
    def read() -> Values:
        with warnings.catch_warnings(action="ignore"):
            from kafka import KafkaConsumer
            from kafka import TopicPartition as OfKafkaPython

            consumer: Any = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
            try:
                consumer.assign([OfKafkaPython(topic, 0)])
                found: Values = []
                while len(found) < count and (polled := consumer.poll(_LIMIT_S * 1000)):
                    found += [each.value for records in polled.values() for each in records]
            finally:
                consumer.close()
        return found

    return await asyncio.to_thread(read)


@pytest.mark.parametrize("peer", [aiokafka, kafka_python, librdkafka])
async def test_all_that_a_peer_reads(kafka: str, peer: Peer) -> None:
    batches = {str(each): (batch_of(each), each.is_read, list[Any](VALUES)) for each in CORPUS}
    for odd in ODD:
        values = [value for _, _, _, value, _ in odd.rows or ()]
        batches[str(odd)] = odd.data, odd.rows is not None, values
    unread: list[str] = []
    async with RawClient(kafka) as client:
        for name, (data, we_read_it, expected) in batches.items():
            topic = await new_topic(kafka)
            if (await client.produce(topic, data)).error_code:
                continue
            assert we_read_it, name
            try:
                found = await peer(kafka, topic, len(expected))
            except Exception as error:
                unread.append(f"{name}: {type(error).__name__}")
                continue
            if found != expected:
                unread.append(f"{name}: {len(found)} of {len(expected)} records")
    print(f"{peer.__name__} does not read {len(unread)}:", *unread, sep="\n  ")

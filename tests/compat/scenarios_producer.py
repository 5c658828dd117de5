"""Programs that use aiokafka's producer. Each function returns what it has seen."""

from __future__ import annotations

import asyncio
from functools import partial
from types import ModuleType
from typing import Any

from tests.compat.outcomes import outcome, outcome_of, stored

REFUSED_SECURITY: list[dict[str, Any]] = [
    {"security_protocol": "SOME"},
    {"security_protocol": "SSL"},
    {"security_protocol": "SASL_SSL"},
    {"security_protocol": "SASL_PLAINTEXT"},
    {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "name"},
]


async def a_send_returns_a_future(client: ModuleType, servers: str) -> object:
    seen: list[object] = []
    for acks in (0, 1, "all", -1):
        async with client.AIOKafkaProducer(bootstrap_servers=servers, acks=acks) as producer:
            future = await producer.send("orders", b"a", b"k", 1, 1_700_000_000_000)
            seen.append(isinstance(future, asyncio.Future))
            found = await future
            seen.append(None if found is None else tuple(found)[:6])
    return seen


async def fields_of_metadata(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        found = await producer.send_and_wait("orders", b"a", partition=1)
    return type(found)._fields, found.timestamp > 1_600_000_000_000, found.topic_partition


async def a_cancelled_future_does_not_stop_the_record(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        future = await producer.send("orders", b"a", partition=0)
        future.cancel()
        await producer.flush()
    return await stored(client, servers, "orders")


async def refused_records(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(
        bootstrap_servers=servers, max_request_size=2_000, request_timeout_ms=2_000
    ) as producer:
        seen = [
            await outcome(producer.send("orders")),
            await outcome(producer.send("orders", "text")),
            await outcome(producer.send("orders", b"a", key=7)),
            await outcome(producer.send("orders", 5)),
            await outcome(producer.send("orders", b"x" * 3_000)),
            await outcome(producer.send("orders", b"a", partition=99)),
            await outcome(producer.send("orders", b"a", partition=-1)),
            await outcome(producer.begin_transaction()),
            await outcome(producer.commit_transaction()),
            await outcome(producer.abort_transaction()),
            await outcome(producer.send_offsets_to_transaction({}, "g")),
        ]
    return [*seen, await outcome(producer.send("orders", b"a")), await outcome(producer.stop())]


async def refused_settings(client: ModuleType, servers: str) -> object:
    refused: list[dict[str, Any]] = [
        {"acks": 2},
        {"acks": "some"},
        {"compression_type": "rar"},
        {"enable_idempotence": True, "acks": 1},
        {"transactional_id": "t", "acks": 0},
        *REFUSED_SECURITY,
        {"unknown": 1},
    ]
    make = partial(client.AIOKafkaProducer, bootstrap_servers=servers)
    return [outcome_of(partial(make, **each)) for each in refused]


async def serializers(client: ModuleType, servers: str) -> object:
    def fail(value: object) -> bytes:
        raise LookupError(value)

    async with client.AIOKafkaProducer(
        bootstrap_servers=servers, key_serializer=str.encode, value_serializer=lambda v: v * 2
    ) as producer:
        await producer.send_and_wait("orders", b"a", key="k", partition=0)
    async with client.AIOKafkaProducer(bootstrap_servers=servers, value_serializer=fail) as failing:
        error = await outcome(failing.send("orders", b"a"))
    return error, await stored(client, servers, "orders")


async def a_key_chooses_the_partition(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        sent = [await producer.send("orders", b"v", key=b"%d" % n) for n in range(50)]
        return [(await each).partition for each in sent]


async def a_partitioner_gets_lists_of_its_own(client: ModuleType, servers: str) -> object:
    def empty(key: bytes | None, partitions: Any, available: Any) -> int:
        chosen = max(partitions) - max(available) + min(partitions)
        for given in (partitions, available):
            given.clear()
        return int(chosen)

    async with client.AIOKafkaProducer(bootstrap_servers=servers, partitioner=empty) as producer:
        found = [await producer.send_and_wait("orders", b"v", key=key) for key in (None, b"k")]
    return [each.partition for each in found]


async def records_without_a_key_are_spread(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        sent = [await producer.send("orders", b"v") for _ in range(60)]
        return {(await each).partition for each in sent}


async def a_custom_partitioner(client: ModuleType, servers: str) -> object:
    calls: list[object] = []

    def last(key: bytes | None, partitions: Any, available: Any) -> int:
        calls.append((key, sorted(partitions), sorted(available)))
        return int(max(partitions))

    async with client.AIOKafkaProducer(
        bootstrap_servers=servers, partitioner=last, key_serializer=lambda key: key and key.encode()
    ) as producer:
        found = await producer.send_and_wait("orders", b"v", key="k")
        await producer.send_and_wait("orders", b"v")
    return found.partition, calls


async def headers_and_compression(client: ModuleType, servers: str) -> object:
    for codec in ("gzip", "lz4", "zstd", None):
        async with client.AIOKafkaProducer(
            bootstrap_servers=servers, compression_type=codec
        ) as producer:
            headers = [("a", b"1"), ("a", b"2"), ("b", b"")]
            await producer.send_and_wait("orders", b"v" * 500, partition=0, headers=headers)
    return await stored(client, servers, "orders")


async def batches(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=500) as producer:
        batch = producer.create_batch()
        appended = []
        for number in range(100):
            found = batch.append(key=None, value=b"v%d" % number, timestamp=1_000 + number)
            if found is None:
                break
            appended.append((found.offset, found.timestamp))
        seen: list[object] = [appended[:3], 3 < len(appended) < 50, batch.closed()]
        seen.append(batch.record_count() == len(appended))
        seen.append(batch.append(key=None, value=b"x", timestamp=None))
        future = await producer.send_batch(batch, "orders", partition=2)
        found = await future
        seen += [isinstance(future, asyncio.Future), found.partition, found.offset]
        seen.append(
            await outcome(producer.send_batch(producer.create_batch(), "orders", partition=9))
        )
        other = producer.create_batch()
        seen.append(outcome_of(lambda: other.append(key=None, value="text", timestamp=None)))
        other.append(key=b"k", value=None, timestamp=None, headers=[("h", b"1")])
        await (await producer.send_batch(other, "orders", partition=2))
    values = await stored(client, servers, "orders")
    return seen, values[:4], values[-1][:-1]


async def partitions_of_a_topic(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        return await producer.partitions_for("orders")


async def a_topic_that_does_not_exist(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(
        bootstrap_servers=servers, request_timeout_ms=500
    ) as producer:
        return [
            await outcome(producer.send("nowhere", b"a")),
            await outcome(producer.partitions_for("nowhere")),
            await outcome(producer.send("no name", b"a", partition=0)),
        ]


async def no_broker(client: ModuleType, servers: str) -> object:
    producer = client.AIOKafkaProducer(bootstrap_servers="127.0.0.1:9", request_timeout_ms=500)
    consumer = client.AIOKafkaConsumer(bootstrap_servers="127.0.0.1:9", request_timeout_ms=600)
    seen = [await outcome(producer.start()), await outcome(consumer.start())]
    await producer.stop()
    await consumer.stop()
    return seen


async def transactions(client: ModuleType, servers: str) -> object:
    seen: list[object] = []
    async with client.AIOKafkaProducer(
        bootstrap_servers=servers, transactional_id="t1"
    ) as producer:
        seen.append(await outcome(producer.send("orders", b"outside", partition=0)))
        seen.append(await outcome(producer.commit_transaction()))
        seen.append(await outcome(producer.abort_transaction()))
        seen.append(await outcome(producer.send_offsets_to_transaction({}, "")))
        async with producer.transaction():
            await producer.send("orders", b"committed", partition=0)
            seen.append(await outcome(producer.begin_transaction()))
        try:
            async with producer.transaction():
                await producer.send_and_wait("orders", b"aborted", partition=0)
                raise LookupError
        except LookupError:
            seen.append("raised")
        await producer.begin_transaction()
        await producer.send("orders", b"second", partition=0)
        tp = client.TopicPartition("orders", 0)
        seen.append(await outcome(producer.send_offsets_to_transaction({tp: 7}, "")))
        seen.append(await outcome(producer.send_offsets_to_transaction({}, "g")))
        seen.append(await outcome(producer.send_offsets_to_transaction({tp: (7, "m")}, "g")))
        await producer.commit_transaction()
    async with client.AIOKafkaConsumer(bootstrap_servers=servers, group_id="g") as consumer:
        seen.append(await consumer.committed(tp))
    return seen, await stored(client, servers, "orders", isolation_level="read_committed")


async def a_fenced_producer(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t2") as old:
        await old.begin_transaction()
        await old.send_and_wait("orders", b"1", partition=0)
        async with client.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t2") as new:
            async with new.transaction():
                await new.send_and_wait("orders", b"2", partition=0)
            return await outcome(old.send_and_wait("orders", b"3", partition=0))


async def order_of_many_records(client: ModuleType, servers: str) -> object:
    async with client.AIOKafkaProducer(bootstrap_servers=servers, linger_ms=5) as producer:
        for number in range(500):
            await producer.send("orders", b"%d" % number, partition=0)
    found = await stored(client, servers, "orders")
    return [each[4] for each in found]

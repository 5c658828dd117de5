"""Programs that use aiokafka's consumer. Each function returns what it has seen."""

from __future__ import annotations

import asyncio
from functools import partial
from types import ModuleType
from typing import Any

from tests.compat.outcomes import outcome, outcome_of, record


async def _fill(client: ModuleType, servers: str, count: int = 5, partitions: int = 3) -> None:
    """Write records with timestamps 1,000, 1,001, ... to each partition."""
    async with client.AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for partition in range(partitions):
            for number in range(count):
                await producer.send(
                    "orders",
                    b"%d-%d" % (partition, number),
                    partition=partition,
                    timestamp_ms=1_000 + number,
                )


def _consumer(client: ModuleType, servers: str, *topics: str, **settings: Any) -> Any:
    settings = {"auto_offset_reset": "earliest", **settings}
    return client.AIOKafkaConsumer(*topics, bootstrap_servers=servers, **settings)


async def records(client: ModuleType, servers: str) -> object:
    await _fill(client, servers)
    found = []
    async with _consumer(client, servers, "orders") as consumer:
        for _ in range(15):
            one = await consumer.getone()
            found.append((record(one), one.timestamp, one.timestamp_type, one.checksum))
    return sorted(found)


async def many_records(client: ModuleType, servers: str) -> object:
    await _fill(client, servers)
    tps = [client.TopicPartition("orders", number) for number in range(3)]
    async with _consumer(client, servers) as consumer:
        consumer.assign(tps)
        one = await consumer.getmany(tps[1], timeout_ms=5_000, max_records=2)
        other = await consumer.getmany(tps[2], timeout_ms=5_000)
        rest = dict.fromkeys(tps, 0)
        while sum(rest.values()) < 8:
            for tp, found in (await consumer.getmany(timeout_ms=1_000)).items():
                rest[tp] += len(found)
        single = await outcome(asyncio.wait_for(consumer.getone(tps[0]), 0.1))
        empty = [await consumer.getmany(), await consumer.getmany(timeout_ms=50)]
        kinds = type(one).__name__, [type(each).__name__ for each in one.values()]
        return (
            [record(each) for each in one[tps[1]]],
            len(other[tps[2]]),
            rest,
            single,
            empty,
            kinds,
            await outcome(consumer.getmany(max_records=0)),
            await outcome(consumer.getmany(("orders", 0))),
            await outcome(consumer.getone("orders")),
        )


async def deserializers(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 3, 1)

    def decode(value: bytes) -> str:
        if value == b"0-1":
            raise LookupError(value)
        return value.decode()

    async with _consumer(client, servers, "orders", value_deserializer=decode) as consumer:
        first = await consumer.getone()
        return record(first), await outcome(consumer.getone())


async def positions(client: ModuleType, servers: str) -> object:
    await _fill(client, servers)
    tp, other = (client.TopicPartition("orders", number) for number in (0, 1))
    nowhere = client.TopicPartition("nowhere", 0)
    async with _consumer(client, servers) as consumer:
        seen = [await outcome(consumer.position(tp)), outcome_of(lambda: consumer.assign([tp]))]
        seen.append(await outcome(consumer.position(tp)))
        await consumer.getone()
        seen += [await consumer.position(tp), outcome_of(lambda: consumer.seek(tp, 3))]
        seen += [await consumer.position(tp), record(await consumer.getone())]
        seen += [await consumer.position(tp), consumer.highwater(tp)]
        seen += [consumer.last_stable_offset(tp), consumer.last_poll_timestamp(tp) > 0]
        seen += [await outcome(consumer.seek_to_beginning(tp)), await consumer.position(tp)]
        seen += [await outcome(consumer.seek_to_end()), await consumer.position(tp)]
        seen += [
            outcome_of(lambda: consumer.seek(tp, -1)),
            outcome_of(lambda: consumer.seek(tp, "1")),
            outcome_of(lambda: consumer.seek(other, 1)),
            await outcome(consumer.seek_to_beginning(other)),
            await outcome(consumer.seek_to_end("orders")),
            await outcome(consumer.position(other)),
            outcome_of(lambda: consumer.highwater(other)),
            outcome_of(lambda: consumer.last_stable_offset(other)),
            outcome_of(lambda: consumer.pause(other)),
            outcome_of(lambda: consumer.pause("orders")),
        ]
        return seen, await outcome(consumer.seek_to_committed()), nowhere


async def offsets(client: ModuleType, servers: str) -> object:
    await _fill(client, servers)
    tps = [client.TopicPartition("orders", number) for number in range(2)]
    async with _consumer(client, servers) as consumer:
        return [
            await consumer.beginning_offsets(tps),
            await consumer.end_offsets(tps),
            await consumer.offsets_for_times({tps[0]: 1_002, tps[1]: 9_000}),
            await outcome(consumer.offsets_for_times({tps[0]: -1})),
            await consumer.topics(),
            consumer.partitions_for_topic("orders"),
            await outcome(consumer.commit()),
            await outcome(consumer.committed(tps[0])),
        ]


async def no_subscription(client: ModuleType, servers: str) -> object:
    async with _consumer(client, servers) as consumer:
        return [
            consumer.subscription() == frozenset(),
            consumer.assignment() == frozenset(),
            consumer.paused(),
            await outcome(consumer.seek_to_beginning()),
        ]


async def refused_subscriptions(client: ModuleType, servers: str) -> object:
    tp = client.TopicPartition("orders", 0)
    async with _consumer(client, servers) as consumer:
        seen = [
            outcome_of(lambda: consumer.subscribe()),
            outcome_of(lambda: consumer.subscribe(["a"], pattern="a")),
            outcome_of(lambda: consumer.subscribe("orders")),
            outcome_of(lambda: consumer.subscribe(["orders"], listener=object())),
            outcome_of(lambda: consumer.subscribe(pattern="(")),
            outcome_of(lambda: consumer.assign([tp])),
            outcome_of(lambda: consumer.subscribe(["orders"])),
            consumer.assignment(),
            await consumer.getmany(timeout_ms=50),
        ]
    async with _consumer(client, servers, "orders") as subscribed:
        seen += [
            outcome_of(lambda: subscribed.assign([tp])),
            outcome_of(lambda: subscribed.subscribe(pattern="ord")),
            subscribed.subscription(),
            subscribed.assignment(),
            await subscribed.getmany(timeout_ms=50),
        ]
    return seen


async def refused_settings(client: ModuleType, servers: str) -> object:
    refused: list[dict[str, Any]] = [{"max_poll_records": 0}, {"unknown": 1}]
    return [outcome_of(partial(_consumer, client, servers, **each)) for each in refused]


async def single_records_and_many_continue_each_other(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 600)
    tps = [client.TopicPartition("orders", number) for number in range(3)]
    async with _consumer(client, servers, group_id="g", max_poll_records=7) as consumer:
        consumer.assign(tps)
        found = [await consumer.getone() for _ in range(900)]
        while len(found) < 1_500:
            some = await consumer.getmany(timeout_ms=1_000)
            found += [each for records in some.values() for each in records]
        offsets = [[each.offset for each in found if each.partition == tp.partition] for tp in tps]
        positions = [await consumer.position(tp) for tp in tps]
    return [each == [*range(end)] for each, end in zip(offsets, positions, strict=True)]


async def a_pattern(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 1)
    async with _consumer(client, servers, group_id="g") as consumer:
        consumer.subscribe(pattern="^ord")
        found = [await asyncio.wait_for(consumer.getone(), 10) for _ in range(3)]
        return sorted(record(each) for each in found), consumer.subscription()


async def paused_partitions(client: ModuleType, servers: str) -> object:
    tps = [client.TopicPartition("orders", number) for number in range(2)]
    async with _consumer(client, servers) as consumer:
        consumer.assign(tps)
        consumer.pause(tps[0])
        await _fill(client, servers, 2, 2)
        found: list[object] = []
        while len(found) < 2:
            found += [
                tp for tp, each in (await consumer.getmany(timeout_ms=100)).items() for _ in each
            ]
        seen: list[object] = [set(found), consumer.paused()]
        seen.append(await consumer.getmany(timeout_ms=100))
        consumer.resume(tps[0])
        seen += [consumer.paused(), record(await consumer.getone())]
        return seen


async def a_stopped_consumer(client: ModuleType, servers: str) -> object:
    consumer = _consumer(client, servers, "orders")
    await consumer.start()

    async def iterate() -> list[object]:
        return [each async for each in consumer]

    waiting = [asyncio.create_task(outcome(consumer.getone())), asyncio.create_task(iterate())]
    many = asyncio.create_task(outcome(consumer.getmany(timeout_ms=10_000)))
    await asyncio.sleep(0.05)
    await consumer.stop()
    return [
        *[await each for each in waiting],
        await many,
        await outcome(consumer.getone()),
        await outcome(consumer.getmany()),
        outcome_of(lambda: aiter(consumer)),
        await outcome(consumer.stop()),
    ]


async def no_offset(client: ModuleType, servers: str) -> object:
    tp = client.TopicPartition("orders", 0)
    async with _consumer(client, servers, auto_offset_reset="none", group_id="g") as consumer:
        consumer.assign([tp])
        seen = [await outcome(consumer.getone())]
        consumer.seek(tp, 0)
        await _fill(client, servers, 1, 1)
        return [*seen, record(await asyncio.wait_for(consumer.getone(), 10))]


async def an_offset_out_of_range(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2, 1)
    tp = client.TopicPartition("orders", 0)
    async with _consumer(client, servers, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 50)
        seen = [await outcome(consumer.getone()), await outcome(consumer.getmany(timeout_ms=50))]
        consumer.seek(tp, 1)
        return seen[0], record(await asyncio.wait_for(consumer.getone(), 10))


async def a_topic_that_does_not_exist(client: ModuleType, servers: str) -> object:
    consumer = _consumer(client, servers, "nowhere", request_timeout_ms=700)
    seen = [await outcome(consumer.start())]
    await consumer.stop()
    return seen


async def many_tasks(client: ModuleType, servers: str) -> object:
    await _fill(client, servers)
    async with _consumer(client, servers, "orders", group_id="g") as consumer:

        async def take() -> list[object]:
            found: list[object] = []
            for _ in range(5):
                found.append(record(await consumer.getone()))
                await consumer.commit()
                await consumer.topics()
            return found

        found = await asyncio.wait_for(asyncio.gather(*[take() for _ in range(3)]), 20)
        committed = [await consumer.committed(tp) for tp in sorted(consumer.assignment())]
        return sorted(each for part in found for each in part), committed  # type: ignore[type-var]


async def a_seek_in_the_middle(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 400, 1)
    tp = client.TopicPartition("orders", 0)
    seen = []
    async with _consumer(client, servers) as consumer:
        consumer.assign([tp])
        for target in (390, 0, 200, 399, 5):
            consumer.seek(tp, target)
            seen += [(await consumer.getone()).offset, (await consumer.getone(tp)).offset]
            if target == 399:
                break
            found = await consumer.getmany(timeout_ms=1_000, max_records=3)
            seen.append([each.offset for each in found[tp]])
            if target == 200:
                consumer.seek(tp, 397)
                seen += [(await consumer.getone()).offset]
                break
    return seen

"""Programs that use groups of aiokafka's consumers. Each function returns what it has seen."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

from tests.compat.outcomes import outcome, record
from tests.compat.scenarios_consumer import _consumer, _fill


async def commits(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 5, 1)
    tp, other = (client.TopicPartition("orders", number) for number in (0, 9))
    async with _consumer(client, servers, group_id="g", enable_auto_commit=False) as consumer:
        seen = [await outcome(consumer.commit())]
        consumer.assign([tp])
        seen += [await consumer.committed(tp), await outcome(consumer.seek_to_committed(tp))]
        await consumer.getone()
        await consumer.getone()
        seen += [await outcome(consumer.commit()), await consumer.committed(tp)]
        seen += [await outcome(consumer.commit({tp: 4})), await consumer.committed(tp)]
        seen += [await outcome(consumer.commit({tp: (3, "text")})), await consumer.committed(tp)]
        metadata = client.OffsetAndMetadata(2, "m")
        seen += [await outcome(consumer.commit({tp: metadata})), await consumer.committed(tp)]
        refused: list[Any] = [{}, {tp: "x"}, {("orders", 0): 1}, {tp: (1, 2)}, {other: 1}, [tp]]
        seen += [await outcome(consumer.commit(each)) for each in refused]
        seen += [await outcome(consumer.seek_to_committed()), record(await consumer.getone())]
        return seen


async def a_restart_continues_after_the_commit(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 6, 1)
    found = []
    for auto_commit in (True, False, True):
        async with _consumer(
            client, servers, "orders", group_id="g", enable_auto_commit=auto_commit
        ) as consumer:
            found += [record(await consumer.getone()) for _ in range(2)]
    return found


async def automatic_commits(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2, 1)
    tp = client.TopicPartition("orders", 0)
    async with _consumer(
        client, servers, "orders", group_id="g", auto_commit_interval_ms=50
    ) as consumer:
        await consumer.getone()
        await consumer.getone()
        async with asyncio.timeout(10):
            while await consumer.committed(tp) != 2:
                await consumer.getmany(timeout_ms=20)
        return await consumer.committed(tp)


async def the_listener_runs_in_the_background(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2)
    calls: list[object] = []

    class Listener(client.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def __init__(self, name: str, consumer: Any) -> None:
            self.name = name
            self.consumer = consumer

        async def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append((self.name, "revoked", len(revoked)))
            if revoked:
                await asyncio.gather(self.consumer.commit())

        async def on_partitions_assigned(self, assigned: Any) -> None:
            committed = await asyncio.gather(*[self.consumer.committed(tp) for tp in assigned])
            calls.append((self.name, "assigned", len(assigned), set(committed)))
            for tp in assigned:
                self.consumer.seek(tp, 1)

    settings: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 100}
    first = _consumer(client, servers, **settings)
    first.subscribe(["orders"], listener=Listener("first", first))
    await first.start()
    found = record(await first.getone())
    second = _consumer(client, servers, **settings)
    second.subscribe(["orders"], listener=Listener("second", second))
    await asyncio.wait_for(second.start(), 10)  # the first one does not poll
    async with asyncio.timeout(10):
        while len(first.assignment()) + len(second.assignment()) != 3 or len(calls) < 6:
            await second.topics()  # the first one still does not poll
    shared = sorted(first.assignment() | second.assignment())
    await second.stop()
    await first.stop()
    kinds = sorted((each[0], each[1]) for each in calls[:6])  # type: ignore[index]
    return found[2], calls[:2], kinds, shared


async def the_listener_of_each_subscription_is_called(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2)
    calls: list[object] = []

    class Listener(client.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(("assigned", len(assigned)))

    consumer = _consumer(client, servers, group_id="g")
    consumer.subscribe(["orders"], listener=Listener())
    await consumer.start()
    seen = [record(await consumer.getone())[4] is not None, [*calls]]
    consumer.unsubscribe()
    calls.clear()
    consumer.subscribe(["orders"], listener=Listener())
    seen.append(await outcome(consumer.commit()))
    await asyncio.wait_for(consumer.getone(), 10)
    seen.append([*calls])
    await consumer.stop()
    return seen


async def an_assignment_replaces_the_last(client: ModuleType, servers: str) -> object:
    await _fill(client, servers, 2)
    tps = [client.TopicPartition("orders", number) for number in range(3)]
    async with _consumer(client, servers) as consumer:
        consumer.assign(tps[:2])
        await consumer.getmany(timeout_ms=1_000)
        consumer.assign(tps[1:])
        found: set[object] = set()
        while len(found) < 4:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found.update((each.partition, each.offset) for each in records)
        return sorted(found), consumer.assignment()  # type: ignore[type-var]

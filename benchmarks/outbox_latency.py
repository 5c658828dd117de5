"""The time from the COMMIT of a row of an outbox until Kafka has acknowledged its transaction, and
until a reader of committed records has it. The floor: the same steps for one row at a time.

Writers, relay and reader are in three processes, as those of a user are.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from multiprocessing import get_context
from typing import Any, TypeAlias
from unittest.mock import patch

import asyncpg

from aioprod import Consumer, Delivery, Producer, TopicPartition
from aioprod.outbox import Outbox, OutboxRelay
from aioprod.outbox.databases import Row
from aioprod.outbox.schema import CHANNEL, COLUMNS
from aioprod.outbox.shard import Shard
from benchmarks.timing import frozen_heap, percentile

_KEYS = [b"%d" % number for number in range(100)]
_WRITERS = 8
_VALUE = 1 + COLUMNS.index("value")
_WARM_ROWS = 200
_PAUSE_S = 0.02
_LIMIT_S = 60.0

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Times = dict[int, float]  # of each row, by its number
_now = time.perf_counter  # on Linux, the same clock in all processes


async def latencies(
    database: str, servers: str, topic: str, per_second: int, seconds: int
) -> dict[str, list[float]]:
    """Return the sorted seconds from each COMMIT. The rows of the first second are not counted."""
    total = per_second * seconds
    acknowledged: Times = {}

    class TimedShard(Shard):
        async def _send(self, rows: list[Row]) -> Any:
            refused = await super()._send(rows)
            acknowledged.update(dict.fromkeys((int(row[_VALUE]) for row in rows), _now()))
            return refused

    with (
        ProcessPoolExecutor(2, get_context("spawn")) as pool,
        patch("aioprod.outbox.relay.Shard", TimedShard),
        frozen_heap(),
    ):

        def start(work: Callable[..., Coroutine[Any, Any, Times]], *given: object) -> Any:
            return asyncio.get_running_loop().run_in_executor(pool, _run, work, *given)

        async with OutboxRelay(database, servers, name=f"l{os.getpid()}") as relay:
            await _warm_up(relay, database, topic)
            await start(_read, servers, topic, 0)  # the process is started now
            reading = start(_read, servers, topic, total)
            committed = await start(_write, database, topic, total, per_second)
            async with asyncio.timeout(_LIMIT_S):
                found = await reading
    return {
        label: sorted(ends[number] - committed[number] for number in range(per_second, total))
        for label, ends in (
            ("until Kafka has acknowledged the row's transaction", acknowledged),
            ("until a reader of committed records has the row", found),
        )
    }


def _run(work: Callable[..., Coroutine[Any, Any, Times]], *given: object) -> Times:
    return asyncio.run(work(*given))


async def _warm_up(relay: OutboxRelay, database: str, topic: str) -> None:
    """Wait until the relay has sent rows: its start is not measured."""
    connection = await asyncpg.connect(database)
    for _ in range(_WARM_ROWS):
        await _add(connection, topic, -1)
    await connection.close()
    async with asyncio.timeout(_LIMIT_S):
        while relay.records_sent < _WARM_ROWS:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _add(connection: Connection, topic: str, number: int) -> float:
    """Add a row in a transaction. Return when its COMMIT was sent."""
    transaction = connection.transaction()
    await transaction.start()
    await Outbox().add(connection, topic, b"%d" % number, key=_KEYS[number % len(_KEYS)])
    committed_at = _now()
    await transaction.commit()
    return committed_at


async def _write(database: str, topic: str, total: int, per_second: int) -> Times:
    committed: Times = {}
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(_WRITERS):
        free.put_nowait(await asyncpg.connect(database))

    async def write(number: int) -> None:
        connection = await free.get()
        committed[number] = await _add(connection, topic, number)
        free.put_nowait(connection)

    begun = _now()
    async with asyncio.TaskGroup() as group:
        for number in range(total):
            wait = begun + number / per_second - _now()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(write(number))
    while not free.empty():
        free.get_nowait().terminate()
    return committed


async def _read(servers: str, topic: str, total: int) -> Times:
    """Read until all rows are found, and one of :func:`_warm_up`."""
    found: Times = {}
    async with Consumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id=None,
    ) as consumer:
        async for record in consumer:
            found[int(record.value or b"")] = _now()
            if len(found) == total + 1:
                break
    return found


async def floors(database: str, servers: str, topic: str, rows: int) -> dict[str, list[float]]:
    """Return the sorted seconds from the COMMIT of one row at a time until its notification was
    received and Kafka has acknowledged a record; and the same with a transaction in Kafka.
    """
    name = f"floor-{os.getpid()}"
    position = {TopicPartition(topic, 0): 1}
    async with Producer(servers) as plain, Producer(servers, transactional_id=name) as producer:

        async def produce() -> None:
            await plain.send_and_wait(topic, b"x", _KEYS[0])

        async def transact() -> None:
            await producer.begin_transaction()
            sent: Delivery = await producer.send(topic, b"x", _KEYS[0])
            await producer.send_offsets_to_transaction(position, name)
            await producer.commit_transaction()
            await sent

        async with _notified(database) as (connection, notified):
            return {
                label: sorted([await _floor(connection, notified, topic, act) for _ in range(rows)])
                for label, act in (
                    ("floor: NOTIFY, and one record", produce),
                    ("floor: NOTIFY, and one transaction with a record and an offset", transact),
                )
            }


@asynccontextmanager
async def _notified(database: str) -> AsyncIterator[tuple[Connection, asyncio.Event]]:
    """Yield a connection, and an event that another connection sets at each notification."""
    notified = asyncio.Event()
    writer, listener = await asyncpg.connect(database), await asyncpg.connect(database)
    try:
        await listener.add_listener(CHANNEL, lambda *_: notified.set())
        yield writer, notified
    finally:
        writer.terminate()
        listener.terminate()


async def _floor(
    connection: Connection,
    notified: asyncio.Event,
    topic: str,
    act: Callable[[], Awaitable[None]],
) -> float:
    await asyncio.sleep(_PAUSE_S)
    notified.clear()
    committed_at = await _add(connection, topic, 0)
    await notified.wait()
    await act()
    return _now() - committed_at


def percentiles_ms(seconds: list[float]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    return percentile(seconds, 50) * 1000, percentile(seconds, 99) * 1000

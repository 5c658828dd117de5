"""The relay of an outbox on PostgreSQL: how many rows per second one relay sends, and how long a
row takes from its commit until a reader of committed records has it. The cost of ``Outbox.add``,
compared with a bare INSERT.

The rate is compared with the same records in transactions of the same size without a database.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median

import asyncpg

from aioprod import Consumer, Producer, ProducerRecord
from aioprod.outbox import Outbox, OutboxRelay, ddl
from benchmarks.real_broker import bootstrap, topics
from benchmarks.timing import percentile

_BATCH = 1_000
_VALUE = b"x" * 100
_KEYS = [b"%d" % number for number in range(100)]
_PARTITIONS = 6
_WRITERS = 8
_TABLES = (
    "DROP VIEW IF EXISTS aioprod_outbox_version; "
    "DROP TABLE IF EXISTS aioprod_outbox, aioprod_outbox_refused, aioprod_outbox_relay, "
    "aioprod_outbox_member, bare; DROP FUNCTION IF EXISTS aioprod_outbox_notify; "
    + ddl("postgresql")
    + "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "topic text NOT NULL, key bytea, value bytea);"
)
_BARE = "INSERT INTO bare (topic, key, value) VALUES ($1, $2, $3)"


async def relay_rate(database: str, servers: str, topic: str, rows: int, shards: int) -> float:
    """Return the rows per second of one relay, from its start until the table is empty."""
    connection = await asyncpg.connect(database)
    await connection.execute(_TABLES)
    for first in range(0, rows, _BATCH):
        records = [
            ProducerRecord(topic, _VALUE, _KEYS[number % len(_KEYS)])
            for number in range(first, min(rows, first + _BATCH))
        ]
        async with connection.transaction():
            await Outbox().add_many(connection, records)
    await connection.execute("ANALYZE aioprod_outbox")
    begun = time.perf_counter()
    async with OutboxRelay(database, servers, name=f"b{os.getpid()}", shards=shards) as relay:
        while relay.records_sent < rows:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        took = time.perf_counter() - begun
    await connection.close()
    return rows / took


async def transactions_rate(servers: str, topic: str, rows: int) -> float:
    """Return the records per second in transactions, one after the other."""
    async with Producer(servers, transactional_id=f"plain-{os.getpid()}") as producer:
        begun = time.perf_counter()
        for first in range(0, rows, _BATCH):
            async with producer.transaction():
                for number in range(first, min(rows, first + _BATCH)):
                    await producer.send(topic, _VALUE, _KEYS[number % len(_KEYS)])
        return rows / (time.perf_counter() - begun)


async def latencies(
    database: str, servers: str, topic: str, per_second: int, seconds: int
) -> list[float]:
    """Return the seconds from each commit until a reader of committed records has the record."""
    setup = await asyncpg.connect(database)
    await setup.execute(_TABLES)
    await setup.close()
    total = per_second * seconds
    committed: dict[int, float] = {}
    found: dict[int, float] = {}
    free: asyncio.Queue[asyncpg.Connection[asyncpg.Record]] = asyncio.Queue()
    for _ in range(_WRITERS):
        free.put_nowait(await asyncpg.connect(database))

    async def write(number: int) -> None:
        connection = await free.get()
        async with connection.transaction():
            await Outbox().add(connection, topic, b"%d" % number, key=_KEYS[number % len(_KEYS)])
        committed[number] = time.perf_counter()
        free.put_nowait(connection)

    async with (
        OutboxRelay(database, servers, name=f"l{os.getpid()}"),
        Consumer(
            topic,
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            group_id=None,
        ) as consumer,
    ):
        writing = asyncio.create_task(_on_time(write, total, per_second))
        while len(found) < total:
            record = await consumer.getone()
            found[int(record.value or b"")] = time.perf_counter()
        await writing
    while not free.empty():
        free.get_nowait().terminate()
    warm = per_second  # the first second is not counted
    return sorted(found[number] - committed[number] for number in range(warm, total))


async def _on_time(write: Callable[[int], Awaitable[None]], total: int, per_second: int) -> None:
    begun = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for number in range(total):
            wait = begun + number / per_second - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(write(number))  # type: ignore[arg-type]


async def cost_of_add(database: str, topic: str, rounds: int) -> list[tuple[str, float, float]]:
    """Return microseconds per row of a bare INSERT and of ``add``, for one row and for many."""
    connection = await asyncpg.connect(database)
    await connection.execute(_TABLES)
    outbox = Outbox()
    record = ProducerRecord(topic, _VALUE, _KEYS[0])

    async def bare() -> None:
        for _ in range(100):
            await connection.execute(_BARE, topic, _KEYS[0], _VALUE)

    async def add() -> None:
        for _ in range(100):
            await outbox.add(connection, topic, _VALUE, key=_KEYS[0])

    async def bare_many() -> None:
        await connection.executemany(_BARE, [(topic, _KEYS[0], _VALUE)] * _BATCH)

    async def add_many() -> None:
        await outbox.add_many(connection, [record] * _BATCH)

    rows = []
    for label, calls, number in (
        ("100 calls in a transaction", (bare, add), 100),
        (f"{_BATCH} rows in a call", (bare_many, add_many), _BATCH),
    ):
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            for call, into in zip(calls, took, strict=True):
                transaction = connection.transaction()
                await transaction.start()
                begun = time.perf_counter()
                await call()
                into.append((time.perf_counter() - begun) / number * 1e6)
                await transaction.rollback()
        rows.append((label, median(took[0]), median(took[1])))
    await connection.close()
    return rows


async def _run(options: argparse.Namespace, servers: str, names: list[str]) -> None:
    rates: dict[str, list[float]] = {}
    for _ in range(options.repetitions):
        for shards in (1, 4):
            rate = await relay_rate(options.database, servers, names[0], options.rows, shards)
            rates.setdefault(f"one relay, shards={shards}", []).append(rate)
        rate = await transactions_rate(servers, names[0], options.rows)
        rates.setdefault("transactions without a database", []).append(rate)
    print("| rate | rows/s |\n|---|---|")
    for label, found in rates.items():
        print(f"| {label} | {median(found):,.0f} |")
    took = await latencies(options.database, servers, names[1], options.per_second, options.seconds)
    print(f"\n| from commit to a reader at {options.per_second}/s | ms |\n|---|---|")
    for share in (50, 99):
        print(f"| p{share} | {percentile(took, share) * 1000:.1f} |")
    print("\n| add | bare INSERT, us | add, us | ratio |\n|---|---|---|---|")
    for label, bare, add in await cost_of_add(options.database, names[0], options.rounds):
        print(f"| {label} | {bare:.0f} | {add:.0f} | {add / bare:.2f} |")


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="postgresql://...; its tables of the outbox are replaced")
    parser.add_argument("--bootstrap", metavar="HOST:PORT")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--per-second", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    with bootstrap(options.bootstrap) as servers, topics(servers, 2, _PARTITIONS) as names:
        asyncio.run(_run(options, servers, names))


if __name__ == "__main__":
    main()

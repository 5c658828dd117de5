"""The relay of an outbox on PostgreSQL: how many rows per second one relay sends, its CPU time, and
how long a row takes from its COMMIT. The cost of ``Outbox.add``, compared with a bare INSERT.

The rate is compared with the same records in transactions of the same size without a database, the
latency with the same steps for one row at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from statistics import median

import asyncpg

from aioprod import Producer, ProducerRecord
from aioprod.outbox import Outbox, OutboxRelay, ddl
from benchmarks.outbox_latency import floors, latencies, percentiles_ms
from benchmarks.real_broker import bootstrap, topics

_BATCH = 1_000
_VALUE = b"x" * 100
_KEYS = [b"%d" % number for number in range(100)]
_PARTITIONS = 6
_TABLES = (
    "DROP VIEW IF EXISTS aioprod_outbox_version; "
    "DROP TABLE IF EXISTS aioprod_outbox, aioprod_outbox_refused, aioprod_outbox_relay, "
    "aioprod_outbox_member, bare; DROP FUNCTION IF EXISTS aioprod_outbox_notify; "
    + ddl("postgresql")
    + "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "topic text NOT NULL, key bytea, value bytea);"
)
#: For each row of a table, the columns of each round.
Table = dict[str, list[tuple[float, float]]]
_BARE = "INSERT INTO bare (topic, key, value) VALUES ($1, $2, $3)"


async def _new_tables(database: str) -> asyncpg.Connection[asyncpg.Record]:
    connection = await asyncpg.connect(database)
    await connection.execute(_TABLES)
    return connection


async def relay_rate(
    database: str, servers: str, topic: str, rows: int, shards: int
) -> tuple[float, float]:
    """Return the rows per second of one relay, from its start until the table is empty, and its
    microseconds of CPU time per row.
    """
    connection = await _new_tables(database)
    for first in range(0, rows, _BATCH):
        records = [
            ProducerRecord(topic, _VALUE, _KEYS[number % len(_KEYS)])
            for number in range(first, min(rows, first + _BATCH))
        ]
        async with connection.transaction():
            await Outbox().add_many(connection, records)
    await connection.execute("ANALYZE aioprod_outbox")
    begun, cpu_begun = time.perf_counter(), time.process_time()
    async with OutboxRelay(database, servers, name=f"b{os.getpid()}", shards=shards) as relay:
        while relay.records_sent < rows:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    await connection.close()
    return rows / took, cpu / rows * 1e6


async def transactions_rate(servers: str, topic: str, rows: int) -> tuple[float, float]:
    """Return the records per second in transactions, one after the other, and the microseconds of
    CPU time per record.
    """
    async with Producer(servers, transactional_id=f"plain-{os.getpid()}") as producer:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        for first in range(0, rows, _BATCH):
            async with producer.transaction():
                for number in range(first, min(rows, first + _BATCH)):
                    await producer.send(topic, _VALUE, _KEYS[number % len(_KEYS)])
        took, cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
    return rows / took, cpu / rows * 1e6


async def cost_of_add(database: str, topic: str, rounds: int) -> list[tuple[str, float, float]]:
    """Return microseconds per row of a bare INSERT and of ``add``, for one row and for many."""
    connection = await _new_tables(database)
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


def _shown(values: Sequence[float], digits: int) -> str:
    """Return the median and the range."""
    low, middle, high = (
        f"{each:,.{digits}f}" for each in (min(values), median(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} ({low}-{high})"


def _print(title: str, columns: Sequence[tuple[str, int]], table: Table) -> None:
    print(f"\n| {title} | " + " | ".join(name for name, _ in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for label, rounds in table.items():
        cells = [
            _shown(values, digits)
            for values, (_, digits) in zip(zip(*rounds, strict=True), columns, strict=True)
        ]
        print(f"| {label} | " + " | ".join(cells) + " |")


async def _run(options: argparse.Namespace, servers: str, names: list[str]) -> None:
    rates: Table = {}
    times: Table = {}
    rows, rate = options.rows, options.per_second
    for number in range(options.repetitions):
        for shards in (1, 4):
            found = await relay_rate(options.database, servers, names[0], rows, shards)
            rates.setdefault(f"one relay, shards={shards}", []).append(found)
        found = await transactions_rate(servers, names[0], rows)
        rates.setdefault("transactions without a database", []).append(found)
        await (await _new_tables(options.database)).close()
        took = await floors(options.database, servers, names[0], options.floor_rows)
        await (await _new_tables(options.database)).close()
        topic = names[1 + number]
        took |= await latencies(options.database, servers, topic, rate, options.seconds)
        for label, seconds in took.items():
            times.setdefault(label, []).append(percentiles_ms(seconds))
    _print("rate", (("rows/s", 0), ("CPU, us/row", 1)), rates)
    _print(f"from COMMIT at {rate} rows/s", (("p50, ms", 1), ("p99, ms", 1)), times)
    print("\n| add | bare INSERT, us | add, us | ratio |\n|---|---|---|---|")
    for label, bare, add in await cost_of_add(options.database, names[0], options.rounds):
        print(f"| {label} | {bare:.0f} | {add:.0f} | {add / bare:.2f} |")


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("database", help="postgresql://...; its tables of the outbox are replaced")
    parser.add_argument("--bootstrap", metavar="HOST:PORT")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--per-second", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--floor-rows", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    with (
        bootstrap(options.bootstrap) as servers,
        topics(servers, 1 + options.repetitions, _PARTITIONS) as names,
    ):
        asyncio.run(_run(options, servers, names))


if __name__ == "__main__":
    main()

"""The inbox with a real PostgreSQL, which must be installed: Debian's package ``postgresql``."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from aioprod import Producer, ProducerRecord, TopicPartition
from aioprod.processing import Processor, Record, RetryPolicy
from aioprod.processing.inbox import Inbox, InboxError, ddl, first_time
from aioprod.processing.inbox import inbox as inbox_module
from aioprod.processing.inbox.connections import begin, fetch
from aioprod.processing.inbox.inbox import Fenced, Unavailable
from aioprod.testing import EmbeddedCluster
from tests.processing.inbox_processor import inbox_processor
from tests.selection import by_default_each
from tests.waiting import programs_per_core, until

if TYPE_CHECKING:
    import asyncpg

pytestmark = pytest.mark.slow

PARTITIONS = 4
PROGRAM = """
import asyncio, sys
from aioprod.processing import Processor
from aioprod.processing.inbox import Inbox

inbox = Inbox(sys.argv[2])

async def handle(record):
    value = int(record.value)
    await inbox.connection.execute("INSERT INTO effects VALUES ($1)", value)
    if value == int(sys.argv[3]):
        print("begun", flush=True)
        await asyncio.sleep(1)
    await asyncio.sleep(0.002)

asyncio.run(Processor(
    handle, "orders", bootstrap_servers=sys.argv[1], group_id="g", order="partition",
    guarantee="exactly_once_in_database", inbox=inbox, drain_timeout_ms=1000,
    consumer={"session_timeout_ms": 6000, "heartbeat_interval_ms": 500},
).run())
"""


@pytest.fixture
async def database(
    server: str,
) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    import asyncpg

    connection = await asyncpg.connect(server, timeout=60)
    try:
        await connection.execute(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public;"
            f"{ddl('postgresql')} CREATE TABLE effects (value integer)"
        )
        yield connection
    finally:
        await connection.close(timeout=10)


async def fill(servers: str, numbers: range) -> None:
    async with Producer(servers) as producer:
        records = [ProducerRecord("orders", b"%d" % n, partition=n % PARTITIONS) for n in numbers]
        await (await producer.send_many("orders", records)).wait()


async def effects(database: asyncpg.Connection[asyncpg.Record]) -> list[int]:
    return [row[0] for row in await database.fetch("SELECT value FROM effects ORDER BY value")]


async def until_effects(database: asyncpg.Connection[asyncpg.Record], wanted: int) -> None:
    async with asyncio.timeout(60 * programs_per_core()):
        while True:
            if len(await effects(database)) >= wanted:
                return
            await asyncio.sleep(0.02)


LIBRARIES = ("url", "asyncpg", "psycopg", "sqlalchemy+asyncpg", "sqlalchemy+psycopg", "session")


@asynccontextmanager
async def connections(library: str, server: str) -> AsyncIterator[Any]:
    """Yield what an application gives an inbox, or opens for `first_time`."""
    if library == "url":
        yield server
    elif library == "asyncpg":
        import asyncpg

        async with asyncpg.create_pool(server, min_size=1, max_size=PARTITIONS) as pool:
            yield pool.acquire
    elif library == "psycopg":
        import psycopg
        from psycopg.rows import dict_row

        @asynccontextmanager
        async def connect() -> AsyncIterator[psycopg.AsyncConnection[Any]]:
            connection = await psycopg.AsyncConnection.connect(server, row_factory=dict_row)
            # A cancellation during the rollback at the end of "async with connection" would leave
            # it open.
            try:
                yield connection
            finally:
                await connection.close()

        yield connect
    else:
        from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

        driver = "psycopg" if library.endswith("psycopg") else "asyncpg"
        engine = create_async_engine(server.replace("postgresql", f"postgresql+{driver}"))
        yield async_sessionmaker(engine) if library == "session" else engine.connect
        await engine.dispose()


@pytest.mark.parametrize(
    "library",
    [pytest.param(each, marks=by_default_each(2, place)) for place, each in enumerate(LIBRARIES)],
)
async def test_connections_that_are_lost(
    broker: EmbeddedCluster,
    server: str,
    database: asyncpg.Connection[asyncpg.Record],
    library: str,
) -> None:
    async with connections(library, server) as given:
        await _lose_connections(broker, Inbox(given), database)


async def _lose_connections(
    broker: EmbeddedCluster, inbox: Inbox, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    broker.create_topic("orders", PARTITIONS)
    await fill(broker.bootstrap_servers, range(200))
    begun = {value: asyncio.Event() for value in (20, 60, 120)}
    lost = {value: asyncio.Event() for value in begun}

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        value = int(record.value or b"")
        insert = "INSERT INTO effects VALUES ($1) RETURNING value"
        await fetch(inbox.connection, insert, value)
        if value in begun:  # the connection is lost in the middle of its transaction
            begun[value].set()
            await lost[value].wait()
        await asyncio.sleep(0.005)

    async with (
        asyncio.timeout(120 * programs_per_core()),
        inbox_processor(broker, inbox, handle),
    ):
        for value in begun:
            await begun[value].wait()
            ended = await database.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE pid != pg_backend_pid() AND backend_type = 'client backend'"
            )
            assert ended
            lost[value].set()
        await until_effects(database, 200)
    assert await effects(database) == list(range(200))


@pytest.mark.parametrize("library", LIBRARIES)
async def test_cancelled_anywhere_each_record_is_handled_once(
    broker: EmbeddedCluster,
    server: str,
    database: asyncpg.Connection[asyncpg.Record],
    library: str,
) -> None:
    broker.create_topic("orders", PARTITIONS)
    number = 200
    await fill(broker.bootstrap_servers, range(number))

    async with connections(library, server) as given:

        def running() -> Processor[Any, Any]:
            inbox = Inbox(given)

            async def handle(record: Record[bytes | None, bytes | None]) -> None:
                insert = "INSERT INTO effects VALUES ($1) RETURNING value"
                await fetch(inbox.connection, insert, int(record.value or b""))

            return inbox_processor(broker, inbox, handle, consumer={"session_timeout_ms": 6_000})

        for turn in range(6):
            wanted = len(await effects(database)) + 1
            task = asyncio.create_task(running().run())
            await until_effects(database, wanted)
            for _ in range(turn):
                await asyncio.sleep(0)
            for _ in range(2):  # the second one ends it at once
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([task])
        async with running():
            await until_effects(database, number)
    assert await effects(database) == list(range(number))


@pytest.mark.parametrize("library", ["url", "psycopg"])
@pytest.mark.parametrize("statement", ["COMMIT", "ROLLBACK"])
async def test_a_handler_that_ends_the_transaction(
    broker: EmbeddedCluster,
    server: str,
    database: asyncpg.Connection[asyncpg.Record],
    library: str,
    statement: str,
) -> None:
    broker.create_topic("orders", PARTITIONS)
    await fill(broker.bootstrap_servers, range(1))
    async with connections(library, server) as given:
        inbox = Inbox(given)

        async def handle(record: Record[bytes | None, bytes | None]) -> None:
            await inbox.connection.execute(statement)

        with pytest.raises(InboxError, match="the handler has committed or rolled back"):
            async with asyncio.timeout(20):  # less than drain_timeout_ms
                await inbox_processor(broker, inbox, handle).run()
    assert await database.fetchval("SELECT max(position) FROM aioprod_inbox") == -1


async def test_a_database_that_hangs_is_not_the_fault_of_a_record(
    broker: EmbeddedCluster,
    server: str,
    database: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("aioprod.processing.inbox.databases._STATEMENT_S", 1.0)
    broker.create_topic("orders", PARTITIONS)
    inbox = Inbox(server)

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        await inbox.connection.execute("INSERT INTO effects VALUES ($1)", int(record.value or b""))

    async def are_assigned() -> bool:
        rows: int = await database.fetchval("SELECT count(*) FROM aioprod_inbox")
        return rows == PARTITIONS

    async with inbox_processor(broker, inbox, handle, retry=RetryPolicy(attempts=1)):
        await until(are_assigned)
        async with database.transaction():
            await database.execute("LOCK TABLE aioprod_inbox")
            await fill(broker.bootstrap_servers, range(8))
            await until(lambda: "the database fails, retrying" in caplog.text)
        await until_effects(database, 8)
    assert await effects(database) == list(range(8))


async def test_killed_and_frozen_members(
    broker: EmbeddedCluster, server: str, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    """A frozen member does not delay the next one, and commits nothing when it wakes up."""
    broker.create_topic("orders", PARTITIONS)
    number = 240
    await fill(broker.bootstrap_servers, range(number))

    def start(stops_at: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, broker.bootstrap_servers, server, str(stops_at)]
        return subprocess.Popen(command, stdout=subprocess.PIPE)

    processes = [start(101)]
    try:
        await asyncio.to_thread(processes[0].stdout.readline)  # type: ignore[union-attr]
        processes[0].send_signal(signal.SIGSTOP)
        before = await effects(database)
        assert 101 not in before
        for wanted in (len(before) + 10, number - 20):
            processes.append(start(-1))
            await until_effects(database, wanted)
            processes[-1].kill()
        processes.append(start(-1))
        await until_effects(database, number)
        processes[0].send_signal(signal.SIGCONT)
        await asyncio.sleep(2)
        assert await effects(database) == list(range(number))
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.parametrize("library", LIBRARIES)
async def test_large_positions_and_epochs(
    server: str, database: asyncpg.Connection[asyncpg.Record], library: str
) -> None:
    """A library may choose the type of a number by its size."""
    partition, large = TopicPartition("orders", 3), 2**40
    async with connections(library, server) as given:
        inbox = Inbox(given)
        await inbox._open(1)
        assert await inbox._take_over("g", partition, "id") == (-1, 1)
        await database.execute("UPDATE aioprod_inbox SET epoch = $1, position = $1", large)
        assert await inbox._take_over("g", partition, "id") == (large, large + 1)
        async with inbox._transaction("g", partition, large + 1) as step:
            assert step.position == large
            step.position += 5
        with pytest.raises(Fenced):
            async with inbox._transaction("g", partition, large) as step:
                raise AssertionError
        await inbox._close()
    row = await database.fetchrow("SELECT position, epoch FROM aioprod_inbox")
    assert row is not None and tuple(row) == (large + 5, large + 1)


@pytest.mark.parametrize("library", LIBRARIES)
async def test_positions_of_older_tables_are_kept(
    server: str, database: asyncpg.Connection[asyncpg.Record], library: str
) -> None:
    await database.execute(ddl("postgresql", from_version=2, to_version=1))
    await database.execute("INSERT INTO aioprod_inbox VALUES ('g', 'orders', 0, 'id', 7, 3)")
    async with connections(library, server) as given:
        inbox = Inbox(given)
        with pytest.raises(
            InboxError, match=r"have version 1, .*ddl\('postgresql', from_version=1"
        ):
            await inbox._open(1)
        await inbox._close()
        await database.execute(ddl("postgresql", from_version=1))
        await inbox._open(1)
        assert await inbox._take_over("g", TopicPartition("orders", 0), "id") == (7, 4)
        await inbox._close()
        await inbox._open(1)  # for the next processor
        assert await inbox._take_over("g", TopicPartition("orders", 0), "id") == (7, 5)
        await inbox._close()
    assert await database.fetchval("SELECT version FROM aioprod_inbox_version") == 2


@pytest.mark.parametrize("library", LIBRARIES)
async def test_a_member_frozen_before_the_commit_delays_no_other(
    server: str,
    database: asyncpg.Connection[asyncpg.Record],
    library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advance = inbox_module._ADVANCE_IN_POSTGRESQL.replace("10s", "200ms")
    monkeypatch.setattr(inbox_module, "_ADVANCE_IN_POSTGRESQL", advance)
    fetch_at_once, frozen, thawed = inbox_module._fetch, asyncio.Event(), asyncio.Event()

    async def fetch_and_freeze(connection: Any, statement: str, *given: object) -> Any:
        rows = await fetch_at_once(connection, statement, *given)
        if statement == advance:
            frozen.set()
            await thawed.wait()
        return rows

    monkeypatch.setattr(inbox_module, "_fetch", fetch_and_freeze)
    partition = TopicPartition("orders", 0)
    async with connections(library, server) as given:
        first, second = Inbox(given), Inbox(server)
        await first._open(1)
        await second._open(1)
        assert await first._take_over("g", partition, "id") == (-1, 1)

        async def process() -> None:
            async with first._transaction("g", partition, 1) as step:
                step.position = 8

        processing = asyncio.create_task(process())
        async with asyncio.timeout(20):
            await frozen.wait()
            assert await second._take_over("g", partition, "id") == (-1, 2)
            thawed.set()
            with pytest.raises(Unavailable):
                await processing
            with pytest.raises(Fenced):
                await process()
        await first._close()
        await second._close()


class _Undone(Exception):
    """A transaction is to be rolled back."""


@pytest.mark.parametrize("library", LIBRARIES[1:])
async def test_the_first_time_of_an_id(
    server: str, database: asyncpg.Connection[asyncpg.Record], library: str
) -> None:
    async with connections(library, server) as connect:
        async with connect() as connection:
            with pytest.raises(_Undone):
                async with begin(connection):
                    assert await first_time(connection, "mails", "1")
                    raise _Undone
        for expected in (True, False):
            async with connect() as connection, begin(connection):
                assert await first_time(connection, "mails", "1") is expected
                assert not await first_time(connection, "mails", "1")
    assert await database.fetchval("SELECT count(*) FROM aioprod_inbox_handled") == 1


async def test_connections_that_block_or_commit_by_themselves(
    server: str, database: asyncpg.Connection[asyncpg.Record]
) -> None:
    import psycopg
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    with psycopg.connect(server) as blocking:
        assert await first_time(blocking, "mails", "1")
    engine = create_engine(server.replace("postgresql", "postgresql+psycopg"))
    with Session(engine) as session, session.begin():
        assert not await first_time(session, "mails", "1")
        assert await first_time(session, "mails", "2")
    engine.dispose()
    with pytest.raises(InboxError, match=r"async with connection.transaction\(\)"):
        await first_time(database, "mails", "3")
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as alone:
        with pytest.raises(InboxError, match=r"async with connection.transaction\(\)"):
            await first_time(alone, "mails", "3")
        async with alone.transaction():
            assert not await first_time(alone, "mails", "2")
            with pytest.raises(InboxError, match="already in a transaction"):
                begin(alone)
    async with database.transaction():
        with pytest.raises(InboxError, match="already in a transaction"):
            begin(database)

"""The inbox with connections of the application: SQLAlchemy with SQLite."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session

from aioprod import TopicPartition
from aioprod.database.address import database_address
from aioprod.outbox import Outbox
from aioprod.outbox import ddl as outbox_ddl
from aioprod.processing import Processor, Record, RetryPolicy
from aioprod.processing.inbox import Inbox, InboxError, ddl, first_time
from aioprod.processing.inbox.connections import fetch, is_transient
from aioprod.processing.inbox.databases import _Transaction
from aioprod.testing import EmbeddedCluster
from tests.processing.inbox_processor import fill, inbox_processor
from tests.waiting import until

Raw = Record[bytes | None, bytes | None]
Connect = Callable[[AsyncEngine], Any]
CONNECTIONS: dict[str, Connect] = {
    "connection": lambda engine: engine.connect,
    "session": lambda engine: async_sessionmaker(engine),
}
_INSERT = "INSERT INTO effects VALUES (:value)"
_INSERT_ONE = "INSERT INTO effects VALUES ($1)"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl("sqlite") + outbox_ddl("sqlite"))
        connection.execute("CREATE TABLE effects (value integer)")
        connection.commit()
        yield connection


@pytest.fixture
async def engine(path: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    yield engine
    await engine.dispose()


@pytest.fixture(params=CONNECTIONS)
def connect(request: pytest.FixtureRequest, engine: AsyncEngine) -> Any:
    return CONNECTIONS[request.param](engine)


def effects(database: sqlite3.Connection) -> list[int]:
    return [value for (value,) in database.execute("SELECT value FROM effects ORDER BY value")]


def stored(path: str) -> int:
    """Return the number of effects, or -1 if the database is locked: to wait for a lock would stop
    the event loop, and a statement that has the lock may end only in the event loop.
    """
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        try:
            return len(effects(connection))
        except sqlite3.OperationalError as error:
            assert "locked" in str(error)
            return -1


def processor(
    broker: EmbeddedCluster, inbox: Inbox, handle: Callable[[Raw], Any] | None = None, **more: Any
) -> Processor[Any, Any]:
    async def simple(record: Raw) -> None:
        await inbox.connection.execute(text(_INSERT), {"value": int(record.value or b"")})

    return inbox_processor(broker, inbox, handle or simple, **more)


async def test_a_transaction_for_each_call(
    broker: EmbeddedCluster, path: str, connect: Any, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(20))
    inbox = Inbox(connect)
    failed = set()

    async def handle(record: Raw) -> None:
        connection, value = inbox.connection, int(record.value or b"")
        assert isinstance(connection, AsyncConnection | AsyncSession)
        await connection.execute(text(_INSERT), {"value": value})
        await Outbox().add(connection, "out", record.value)
        if value % 5 == 0 and value not in failed:
            failed.add(value)
            raise ValueError("once")

    retry = RetryPolicy(backoff_ms=1)
    for numbers in (range(20), range(20, 30)):
        if numbers.start:
            await fill(broker.bootstrap_servers, numbers)
        async with asyncio.timeout(30), processor(broker, inbox, handle, retry=retry):
            await until(lambda wanted=numbers.stop: stored(path) >= wanted)  # type: ignore[misc]
        inbox = Inbox(connect)
    assert effects(database) == list(range(30)) and failed == set(range(0, 30, 5))
    assert database.execute("SELECT count(*) FROM aioprod_outbox").fetchone() == (30,)
    rows = database.execute("SELECT group_id, partition, position, epoch FROM aioprod_inbox")
    assert sorted(rows) == [("g", 0, 15, 2), ("g", 1, 15, 2)]


async def test_a_member_that_lost_its_partition_can_not_commit(
    broker: EmbeddedCluster,
    connect: Any,
    database: sqlite3.Connection,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("orders", 2)
    inbox = Inbox(connect)

    async def handle(record: Raw) -> None:
        value = int(record.value or b"")
        if value == 2:
            # As another member does; SQLite allows it only in this transaction.
            await inbox.connection.execute(text("UPDATE aioprod_inbox SET epoch = epoch + 1"))
        await inbox.connection.execute(text(_INSERT), {"value": value})

    await fill(broker.bootstrap_servers, range(3))
    async with asyncio.timeout(30), processor(broker, inbox, handle, drain_timeout_ms=100):
        await until(lambda: "another member has taken over orders-0" in caplog.text)
    assert effects(database) == [0, 1]


@pytest.mark.parametrize("action", ["commit", "rollback"])
@pytest.mark.parametrize("kind", [*CONNECTIONS, "file"])
async def test_a_handler_that_ends_the_transaction(
    broker: EmbeddedCluster,
    engine: AsyncEngine,
    path: str,
    database: sqlite3.Connection,
    kind: str,
    action: str,
) -> None:
    """Its rows would be committed without the position, or the position without its rows."""
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(1))
    inbox = Inbox(path if kind == "file" else CONNECTIONS[kind](engine))
    calls = 0

    async def handle(record: Raw) -> None:
        nonlocal calls
        calls += 1
        await fetch(inbox.connection, f"{_INSERT_ONE} RETURNING value", int(record.value or b""))
        done = getattr(inbox.connection, action)()
        if isawaitable(done):
            await done

    with pytest.raises(InboxError, match="the handler has committed or rolled back"):
        async with asyncio.timeout(20):  # less than drain_timeout_ms
            await processor(broker, inbox, handle).run()
    positions = database.execute("SELECT DISTINCT position FROM aioprod_inbox").fetchall()
    assert positions == [(-1,)] and calls == 1
    assert effects(database) == ([0] if action == "commit" else [])


async def test_a_locked_database_is_retried(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 0.01})
    calls = 0
    inbox = Inbox(engine.connect)

    async def handle(record: Raw) -> None:
        nonlocal calls
        calls += 1
        await inbox.connection.execute(text(_INSERT), {"value": int(record.value or b"")})

    running = processor(broker, inbox, handle, retry=RetryPolicy(attempts=1))
    async with asyncio.timeout(30), running:
        await until(lambda: len(database.execute("SELECT * FROM aioprod_inbox").fetchall()) == 2)
        database.execute("BEGIN IMMEDIATE")
        await fill(broker.bootstrap_servers, range(2))
        await until(lambda: calls >= 3)
        database.execute("ROLLBACK")  # COMMIT waits for readers, and they for the event loop
        await until(lambda: stored(path) == 2)
    await engine.dispose()
    assert effects(database) == [0, 1]


async def test_the_end_of_a_transaction_is_not_interrupted() -> None:
    """Otherwise the next use of the connection begins while it is rolled back."""
    may_end, ended = asyncio.Event(), []

    @asynccontextmanager
    async def context() -> AsyncIterator[None]:
        yield
        await may_end.wait()
        ended.append(True)

    transaction = _Transaction(context())
    await transaction.__aenter__()
    ending = asyncio.create_task(transaction.__aexit__(None, None, None))
    for _ in range(3):
        await asyncio.sleep(0)
        ending.cancel()
    await asyncio.sleep(0)
    assert not ending.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert ended == [True]


async def test_a_cancelled_statement_leaves_no_lock(
    connect: Any, path: str, database: sqlite3.Connection
) -> None:
    """An unfinished cursor would keep it until it is collected as garbage."""
    inbox = Inbox(connect)
    await inbox._open(1)
    gc.disable()
    try:
        for turn in range(0, 400, 4):
            partition = TopicPartition("orders", turn)
            taking = asyncio.create_task(inbox._take_over("g", partition, "id"))
            for _ in range(turn):
                await asyncio.sleep(0)
            for _ in range(2):
                taking.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([taking])
            with closing(
                sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            ) as other:
                await asyncio.to_thread(other.execute, "BEGIN EXCLUSIVE")
    finally:
        gc.enable()


async def _error_of(broker: EmbeddedCluster, connect: Any) -> str:
    if not broker.topics.get("orders"):
        broker.create_topic("orders", 2)
    with pytest.raises(InboxError) as raised:
        async with asyncio.timeout(30):
            await processor(broker, Inbox(connect)).run()
    return str(raised.value)


async def test_connections_that_commit_by_themselves_are_refused(
    broker: EmbeddedCluster, engine: AsyncEngine, database: sqlite3.Connection
) -> None:
    """Each record would be committed without its position."""
    each_statement = engine.execution_options(isolation_level="AUTOCOMMIT")
    for connect in CONNECTIONS.values():
        assert "AUTOCOMMIT" in await _error_of(broker, connect(each_statement))
    for begun in (engine.begin, async_sessionmaker(engine).begin):
        assert "already in a transaction" in await _error_of(broker, begun)
    assert database.execute("SELECT * FROM aioprod_inbox").fetchall() == []


async def test_connections_of_another_kind(
    broker: EmbeddedCluster, engine: AsyncEngine, path: str
) -> None:
    import aiosqlite

    assert "are the inbox's tables there" in await _error_of(broker, engine.connect)
    assert "give the name of the SQLite file" in await _error_of(
        broker, lambda: aiosqlite.connect(path)
    )
    assert "of type Session: must be asynchronous" in await _error_of(broker, lambda: Session())
    nothing = asynccontextmanager(_nothing)
    assert "connection of type NoneType: must be" in await _error_of(broker, nothing)

    def broken() -> Any:
        raise OSError("refused")

    assert await _error_of(broker, broken) == "no connection: OSError: refused"
    with pytest.raises(InboxError, match=r"database of type AsyncEngine: must be .*engine.connect"):
        Inbox(engine)  # type: ignore[arg-type]


async def _nothing() -> AsyncIterator[None]:
    yield None


async def test_a_database_that_does_not_respond(
    broker: EmbeddedCluster, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait of the inbox has a limit, including that for a connection."""

    @asynccontextmanager
    async def hangs() -> AsyncIterator[AsyncConnection]:
        await asyncio.get_running_loop().create_future()
        yield await engine.connect()

    monkeypatch.setattr("aioprod.processing.inbox.databases._STATEMENT_S", 0.05)
    error = await _error_of(broker, hangs)
    assert error == "the database has not responded within 0.05 s"


async def test_the_first_time_of_an_id(
    engine: AsyncEngine, connect: Any, database: sqlite3.Connection
) -> None:
    async with connect() as connection, connection.begin():
        assert await first_time(connection, "mails", "1")
        assert not await first_time(connection, "mails", "1")
    async with connect() as connection:
        assert not await first_time(connection, "mails", "1")
        assert await first_time(connection, "mails", "2")
        await connection.rollback()
        assert await first_time(connection, "mails", "2")
        with pytest.raises(InboxError, match="record_id of type bytes: must be a str"):
            await first_time(connection, "mails", b"2")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite+aiosqlite:///shop.db", ("sqlite", "shop.db")),
        ("sqlite:////tmp/shop.db", ("sqlite", "/tmp/shop.db")),
        ("postgresql+psycopg://shop@db/shop", ("postgresql", "postgresql://shop@db/shop")),
        ("postgres://shop@db/shop", ("postgresql", "postgresql://shop@db/shop")),
    ],
)
def test_addresses_of_sqlalchemy(url: str, expected: tuple[str, str]) -> None:
    assert database_address(url, InboxError) == expected


async def test_what_is_the_fault_of_the_database(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        with pytest.raises(DBAPIError) as raised:
            await connection.execute(text("SELECT * FROM missing"))
    assert not is_transient(raised.value)
    raised.value.connection_invalidated = True
    assert is_transient(raised.value)
    locked = DBAPIError("", {}, sqlite3.OperationalError("database is locked"))
    assert is_transient(locked) and not is_transient(ValueError("connection is closed"))


@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
def test_the_states_of_postgresql(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncpg
    import psycopg

    def error_of(state: str) -> BaseException:
        if library == "psycopg":
            return psycopg.errors.lookup(state)("")
        fields = {"C": state, "M": ""}
        made: BaseException = asyncpg.exceptions.PostgresError.new(fields)
        return made

    for state in ("57P01", "57014", "08006", "40001", "40P01"):
        assert is_transient(error_of(state)), state
        assert is_transient(DBAPIError("", {}, error_of(state)))
    for state in ("23505", "22P02", "42P01", "40002"):
        assert not is_transient(error_of(state)), state
    assert is_transient(psycopg.OperationalError("the connection is closed"))
    assert is_transient(asyncpg.InterfaceError("connection is closed"))
    assert not is_transient(asyncpg.InterfaceError("cannot perform operation"))
    for name in ("asyncpg", "psycopg"):
        monkeypatch.delitem(sys.modules, name)
    assert not is_transient(ValueError())

"""The databases of an inbox: a transaction for each call of the handler."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from aioprod.database.address import database_address
from aioprod.database.postgresql import asyncpg_for
from aioprod.processing.inbox.connections import begin, connect_session, uninterrupted
from aioprod.processing.inbox.errors import InboxError
from aioprod.running_loop import start_task

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
#: Returns a connection or session, which ``async with`` opens and closes.
Connect = Callable[[], AbstractAsyncContextManager[Any]]

_BUSY_S = 5.0
_STATEMENT_S = 30.0


@asynccontextmanager
async def limited() -> AsyncIterator[None]:
    """Limit the time of a response of the database.

    Raises:
        InboxError: if it takes longer.
    """
    try:
        async with asyncio.timeout(_STATEMENT_S):
            yield
    except TimeoutError as error:
        raise InboxError(f"the database has not responded within {_STATEMENT_S:g} s") from error


class Database(Protocol):
    """The database that has the application's rows."""

    async def open(self, connections: int) -> None:
        """Connect, at most this often.

        Raises:
            InboxError: if it fails.
        """

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return a context with a connection of the database's library, in a transaction that is
        committed at the end, and rolled back after an error or a cancellation.
        """

    async def close(self) -> None:
        """Disconnect."""


def make_database(database: str | Connect) -> Database:
    """Return the database of a URL, ``postgresql://...``, of a file of SQLite, or of a function
    that returns connections.

    Raises:
        InboxError: if it is of an unknown kind.
    """
    if isinstance(database, str):
        dialect, address = database_address(database, InboxError)
        return SqliteDatabase(address) if dialect == "sqlite" else PostgresDatabase(address)
    if not callable(database):
        raise InboxError(
            f"database of type {type(database).__name__}: must be postgresql://..., a file of "
            "SQLite, or a function that returns a connection, such as engine.connect or "
            "pool.connection"
        )
    return PooledDatabase(database)


class _Opened(NamedTuple):
    """An open file of SQLite.

    Attributes:
        connection: its only connection.
        thread: runs the work that blocks.
        lock: taken by each transaction; one event loop can use it.
    """

    connection: sqlite3.Connection
    thread: ThreadPoolExecutor
    lock: asyncio.Lock

    async def run(self, work: Callable[[], T]) -> T:
        """Run blocking work. A cancellation waits for its end: the connection is in use."""
        return await uninterrupted(asyncio.get_running_loop().run_in_executor(self.thread, work))


class SqliteDatabase:
    """A file of SQLite, with one connection. One transaction runs at a time: SQLite has no more.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._opened: _Opened | None = None

    async def open(self, connections: int) -> None:
        """See :class:`Database`."""
        try:
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise InboxError(f"database {self._path}: {error}") from error
        thread = ThreadPoolExecutor(1, "aioprod-inbox")
        self._opened = _Opened(connection, thread, asyncio.Lock())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[sqlite3.Connection]:
        """See :class:`Database`."""
        opened = self._opened
        if opened is None:
            raise InboxError(f"database {self._path} is not open")
        connection = opened.connection
        async with opened.lock:
            try:
                # In a thread, as it waits for the transactions of other processes.
                await opened.run(lambda: connection.execute("BEGIN IMMEDIATE"))
                yield connection
                await opened.run(lambda: connection.execute("COMMIT"))
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    async def close(self) -> None:
        """See :class:`Database`."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.thread.shutdown(wait=False)
            opened.connection.close()


class PooledDatabase:
    """A database whose connections come from a function, such as those of the application's pool.

    Args:
        connect: returns a connection of asyncpg or psycopg, or a connection or session of
            SQLAlchemy, which is not in a transaction.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect

    async def open(self, connections: int) -> None:
        """Do nothing: the application opens them."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """See :class:`Database`."""
        async with AsyncExitStack() as stack:
            try:
                opened = self._connect()
                if not isinstance(opened, AbstractAsyncContextManager):
                    raise InboxError(
                        f"a connection of type {type(opened).__name__}: must be asynchronous, and "
                        "be opened by 'async with'"
                    )
                connection = await stack.enter_async_context(_Limited(opened))
                await stack.enter_async_context(_Transaction(begin(connection)))
                async with limited():
                    await connect_session(connection)
            except InboxError:
                raise
            except Exception as error:
                raise InboxError(f"no connection: {type(error).__name__}: {error}") from error
            yield connection

    async def close(self) -> None:
        """Do nothing: the connections are those of the application."""


class PostgresDatabase(PooledDatabase):
    """A pool of connections of asyncpg.

    Args:
        url: the address, with the password if there is one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(self._acquire)
        self._url = url
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    def _acquire(self) -> AbstractAsyncContextManager[Any]:
        if self._pool is None:
            raise InboxError("the database is not open")
        return self._pool.acquire()

    async def open(self, connections: int) -> None:
        """See :class:`Database`."""
        with asyncpg_for(InboxError) as asyncpg:
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=connections,
                timeout=_STATEMENT_S,
                command_timeout=_STATEMENT_S,
            )

    async def close(self) -> None:
        """See :class:`Database`."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()


class _Limited:
    """A context whose beginning and end have a limit of time.

    Args:
        context: the context.
    """

    def __init__(self, context: AbstractAsyncContextManager[Any]) -> None:
        self._context = context

    async def __aenter__(self) -> Any:
        async with limited():
            return await self._context.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        async with limited():
            return await self._context.__aexit__(kind, error, traceback)


class _Transaction(_Limited):
    """A transaction, whose end is not interrupted: SQLAlchemy would return a connection to its pool
    that still has locks.
    """

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        ending = start_task(super().__aexit__(kind, error, traceback), name="aioprod-inbox-end")
        return await uninterrupted(ending)

"""The databases of a relay. All of their errors are raised as OutboxError."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from aioprod.database.address import Dialect, database_address
from aioprod.database.postgresql import asyncpg_for, errors_of_asyncpg
from aioprod.outbox.errors import OutboxError
from aioprod.outbox.schema import CHANNEL, NOW_MS

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
Row = tuple[Any, ...]

_BUSY_S = 5.0
_NO_TABLES = "; create the tables with the statements of: aioprod outbox ddl --dialect {}"
_STATEMENT_S = 30.0


#: The statements of a transaction, each a tuple with its parameters; it is sent the rows of each,
#: and returns the result. ``$1`` is a parameter, ``NOW_MS`` the database's time, and ``IN ($1)``
#: compares with the integers of a list.
Work = Generator[tuple[Any, ...], list[Row], T]


class Database(Protocol):
    """A connection."""

    dialect: Dialect

    async def open(self) -> None:
        """Connect."""

    async def transact(self, work: Work[T]) -> T:
        """Run statements in a transaction; if ``work`` raises, roll it back."""

    async def listen(self, added: Callable[[], None], lost: Callable[[], None]) -> None:
        """Call ``added`` after each transaction that added rows, if the database can notify, and
        ``lost`` when the connection is lost.
        """

    async def close(self) -> None:
        """Disconnect."""


def make_database(url: str) -> Database:
    """Return the database for a URL, ``postgresql://...``, or for an SQLite file."""
    dialect, address = database_address(url, OutboxError)
    return SqliteDatabase(address) if dialect == "sqlite" else PostgresDatabase(address)


@cache
def _translated(statement: str, dialect: str) -> str:
    statement = statement.replace("NOW_MS", NOW_MS[dialect])
    if dialect == "sqlite":
        statement = re.sub(r"IN \((\$\d+)\)", r"IN (SELECT value FROM json_each(\1))", statement)
        return statement.replace("$", "?")
    return re.sub(r"IN \((\$\d+)\)", r"= ANY(\1::bigint[])", statement)


def _not_connected() -> OutboxError:
    return OutboxError("the database is not connected")


class SqliteDatabase:
    """An SQLite file, which is used in a separate thread.

    Args:
        path: the file.
    """

    dialect: Dialect = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "aioprod-outbox")
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Connect."""
        await self._run(self._open)

    def _open(self) -> None:
        self._connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)

    async def transact(self, work: Work[T]) -> T:
        """See :class:`Database`."""
        return await self._run(lambda: self._transact(work))

    def _transact(self, work: Work[T]) -> T:
        """Run a transaction in the thread, not on the event loop, because it may wait for the lock:
        the application may write to the same file with ``sqlite3``.
        """
        connection = self._connection
        if connection is None:
            raise _not_connected()
        connection.execute("BEGIN IMMEDIATE")
        try:
            rows: list[Row] | None = None
            while True:
                try:
                    statement, *given = next(work) if rows is None else work.send(rows)
                except StopIteration as end:
                    connection.execute("COMMIT")
                    return cast("T", end.value)
                rows = []
                if not statement.startswith("LOCK TABLE"):  # BEGIN IMMEDIATE has locked it
                    values = [json.dumps(each) if type(each) is list else each for each in given]
                    text = _translated(statement, "sqlite")
                    rows = connection.execute(text, values).fetchall()
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            hint = _NO_TABLES.format("sqlite") if "no such" in str(error) else ""
            raise OutboxError(f"database {self._path}: {error}{hint}") from error

    async def listen(self, added: Callable[[], None], lost: Callable[[], None]) -> None:
        """Do nothing: SQLite does not notify other processes."""

    async def close(self) -> None:
        """Disconnect after the running transaction has ended: the transaction of a cancelled call
        must not change the owner after the next relay has done so.
        """
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)
        await asyncio.shield(closing)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class PostgresDatabase:
    """A connection of asyncpg.

    Args:
        url: the URL, including the password if there is one.
    """

    dialect: Dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Connect."""
        with asyncpg_for(OutboxError) as asyncpg:
            connection = await asyncpg.connect(
                self._url, timeout=_STATEMENT_S, command_timeout=_STATEMENT_S
            )
            self._connection = connection
            # Compiling the statement that chooses rows takes a second, for milliseconds of work.
            # After a backlog, the planner would read the free space of the table for few rows.
            await connection.execute("SET jit = off; SET enable_seqscan = off")

    async def transact(self, work: Work[T]) -> T:
        """See :class:`Database`."""
        import asyncpg

        connection = self._connection
        if connection is None:
            raise _not_connected()
        try:
            async with connection.transaction():
                rows: list[Row] | None = None
                while True:
                    try:
                        statement, *given = next(work) if rows is None else work.send(rows)
                    except StopIteration as end:
                        return cast("T", end.value)
                    text = _translated(statement, "postgresql")
                    # A record is used like a tuple.
                    rows = cast("list[Row]", await connection.fetch(text, *given))
        except errors_of_asyncpg() as error:
            missing = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)
            lacks_tables = isinstance(error, missing)
            hint = _NO_TABLES.format("postgresql") if lacks_tables else ""
            raise OutboxError(f"PostgreSQL: {type(error).__name__}: {error}{hint}") from error

    async def listen(self, added: Callable[[], None], lost: Callable[[], None]) -> None:
        """See :class:`Database`."""
        connection = self._connection
        if connection is None:
            raise _not_connected()
        with asyncpg_for(OutboxError):
            await connection.add_listener(CHANNEL, lambda *_: added())
        connection.add_termination_listener(lambda *_: lost())

    async def close(self) -> None:
        """Disconnect immediately."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

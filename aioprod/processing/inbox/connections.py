"""The connections of database libraries, as an inbox uses them."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from contextlib import AbstractAsyncContextManager
from inspect import isawaitable
from typing import Any, Final, Literal, TypeVar

from aioprod.processing.inbox.errors import InboxError
from aioprod.running_loop import start_task

T = TypeVar("T")

Row = tuple[Any, ...]

_LIBRARIES: Final = ("asyncpg", "psycopg", "sqlalchemy", "sqlite3", "aiosqlite")
_PARAMETER: Final = re.compile(r"\$(\d+)")
# The status of libpq for a connection outside a transaction; 4 is that of a lost connection.
_IDLE: Final = 0
_UNKNOWN: Final = 4
# SQLSTATE: connection exceptions, and operator interventions such as a shutdown.
_CLASSES_OF_THE_SERVER: Final = ("08", "57")
_SERIALIZATION_FAILURE: Final = "40001"
_DEADLOCK: Final = "40P01"
_IDLE_IN_TRANSACTION: Final = "25P03"
_TRANSIENT: Final = (_SERIALIZATION_FAILURE, _DEADLOCK, _IDLE_IN_TRANSACTION)


async def fetch(connection: Any, statement: str, *given: object) -> list[Row]:
    """Run a statement, in which ``$1`` is a parameter, and return its rows.

    Raises:
        InboxError: if the connection is of an unknown kind.
    """
    library = _library_of(connection)
    if library == "asyncpg":
        return [tuple(row) for row in await connection.fetch(statement, *given)]
    if library == "psycopg":
        return await _fetch_with_psycopg(connection, statement, given)
    if library == "sqlalchemy":
        from sqlalchemy import text  # type: ignore[import-not-found,unused-ignore]

        named = text(_PARAMETER.sub(r":p\1", statement))
        running = connection.execute(named, _by_name(given))
        if isawaitable(running) and not is_postgresql(connection):
            # The cursor of a cancelled statement would keep SQLite's lock until it is collected as
            # garbage, even if its connection is closed before.
            running = uninterrupted(start_task(_finished(running), name="aioprod-inbox-statement"))
        return [tuple(row) for row in await _finished(running)]
    numbered = _PARAMETER.sub(r"?\1", statement)
    if library == "aiosqlite":
        async with connection.execute(numbered, given) as cursor:
            return [tuple(row) for row in await cursor.fetchall()]
    return [tuple(row) for row in connection.execute(numbered, given)]


def begin(connection: Any) -> AbstractAsyncContextManager[Any]:
    """Return the context of a transaction, which is committed at its end.

    Raises:
        InboxError: if the connection is in a transaction, or is of another kind than those of
            asyncpg, psycopg and SQLAlchemy.
    """
    library = _library_of(connection)
    if library in ("sqlite3", "aiosqlite"):
        raise InboxError(
            f"connection of type {type(connection).__name__}: give the name of the SQLite file"
        )
    if _state_of(connection) == "in transaction":
        raise InboxError(
            "the connection is already in a transaction, which the inbox can't commit: give a "
            "function that returns one without a transaction, such as engine.connect instead of "
            "engine.begin"
        )
    begun: AbstractAsyncContextManager[Any] = (
        connection.begin() if library == "sqlalchemy" else connection.transaction()
    )
    return begun


async def connect_session(connection: Any) -> None:
    """Connect a session of SQLAlchemy, which would connect with its first statement: if that fails,
    the statement is not the reason.
    """
    if hasattr(connection, "sync_session"):
        await connection.connection()


def check_transaction(connection: Any) -> None:
    """Check that a statement would not be committed alone. A connection of SQLAlchemy begins a
    transaction with its first statement.

    Raises:
        InboxError: if it would, or the connection is of an unknown kind.
    """
    library = _library_of(connection)
    if library == "sqlalchemy" or not is_idle(connection):
        return
    cure = "use 'async with connection.transaction():'"
    if library in ("sqlite3", "aiosqlite"):
        commits_alone = connection.isolation_level is None
        cure = "execute BEGIN first"
    else:
        commits_alone = library == "asyncpg" or connection.autocommit
    if commits_alone:
        raise InboxError(f"the connection has no transaction: {cure}")


def is_idle(connection: Any) -> bool:
    """Return whether a connection is open, and in no transaction.

    Raises:
        InboxError: if the connection is of an unknown kind.
    """
    return _state_of(connection) == "idle"


def is_postgresql(connection: Any) -> bool:
    """Return whether a connection is one to PostgreSQL.

    Raises:
        InboxError: if the connection is of an unknown kind.
    """
    library = _library_of(connection)
    if library != "sqlalchemy":
        return library in ("asyncpg", "psycopg")
    bound = connection if hasattr(connection, "dialect") else connection.get_bind()
    return bool(bound.dialect.name == "postgresql")


def is_transient(error: BaseException) -> bool:
    """Return whether a transaction failed because of the database, not of its statements."""
    if getattr(error, "connection_invalidated", False):  # SQLAlchemy has lost the connection
        return True
    error = getattr(error, "orig", None) or error  # the library's error, inside SQLAlchemy's
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _CLASSES_OF_THE_SERVER or state in _TRANSIENT
    if isinstance(error, sqlite3.OperationalError):
        return "locked" in str(error)
    # Lost connections have no state. If a library is not imported, the error is not its own.
    psycopg, asyncpg = sys.modules.get("psycopg"), sys.modules.get("asyncpg")
    if psycopg is not None and isinstance(error, psycopg.OperationalError):
        return True
    if asyncpg is None:
        return False
    if isinstance(error, asyncpg.InternalClientError):  # the server has said that it ends it
        return "cannot switch to state" in str(error)
    return type(error) is asyncpg.InterfaceError and "connection is closed" in str(error)


def _state_of(connection: Any) -> Literal["idle", "in transaction", "closed"]:
    library = _library_of(connection)
    if library == "psycopg":
        status = connection.info.transaction_status
        if status == _UNKNOWN:
            return "closed"
        is_in_transaction = status != _IDLE
    elif library == "asyncpg":
        if connection.is_closed():
            return "closed"
        is_in_transaction = connection.is_in_transaction()
    elif library == "sqlalchemy":
        is_in_transaction = connection.in_transaction()
    else:
        is_in_transaction = connection.in_transaction
    return "in transaction" if is_in_transaction else "idle"


async def _fetch_with_psycopg(
    connection: Any, statement: str, given: tuple[object, ...]
) -> list[Row]:
    from psycopg import AsyncConnection, AsyncCursor, Cursor
    from psycopg.rows import tuple_row

    # Not connection.cursor(), which may have other parameters, and rows of another type.
    kind: Any = AsyncCursor if isinstance(connection, AsyncConnection) else Cursor
    cursor = kind(connection, row_factory=tuple_row)
    try:
        await _finished(cursor.execute(_PARAMETER.sub(r"%(p\1)s", statement), _by_name(given)))
        rows: list[Row] = await _finished(cursor.fetchall())
        return rows
    finally:
        await _finished(cursor.close())


def _by_name(given: tuple[object, ...]) -> dict[str, object]:
    return {f"p{number}": value for number, value in enumerate(given, 1)}


async def uninterrupted(work: asyncio.Future[T]) -> T:
    """Wait for the end of work that has a limit of time, even if this is cancelled, once or more:
    then raise the cancellation.
    """
    cancellation: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return work.result()
    if not work.cancelled():
        work.exception()  # the cancellation comes first
    try:
        raise cancellation
    finally:
        del cancellation  # a cycle: its traceback has this frame


async def _finished(done: Any) -> Any:
    """Return the result of a call, which an asynchronous library returns later."""
    return await done if isawaitable(done) else done


def _library_of(connection: object) -> str:
    # A subclass may be defined elsewhere, as SQLModel's session is.
    modules = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    for library in _LIBRARIES:
        if library in modules:
            return library
    raise InboxError(
        f"connection of type {type(connection).__name__}: must be a connection of asyncpg, "
        "psycopg, sqlite3 or aiosqlite, or a session or connection of SQLAlchemy"
    )

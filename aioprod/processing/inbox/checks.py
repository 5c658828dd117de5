"""Checks of a database before an inbox uses it."""

from __future__ import annotations

from uuid import uuid4

from aioprod.database.address import Dialect
from aioprod.processing.inbox.connections import fetch, is_postgresql, is_transient
from aioprod.processing.inbox.databases import Database
from aioprod.processing.inbox.errors import InboxError
from aioprod.processing.inbox.schema import TABLES

_PROBE = """
INSERT INTO aioprod_inbox (group_id, topic, partition, topic_id, position, epoch)
VALUES ($1, '', 0, '', -1, 0) RETURNING epoch
"""
_END_OF_PROBE = "DELETE FROM aioprod_inbox WHERE group_id = $1 RETURNING epoch"


async def check_database(database: Database) -> None:
    """Check that the tables are those of this code, and that transactions can be rolled back.

    Raises:
        InboxError: if they are not, or the database can't be used.
        Exception: an error of the database's library; the same call may succeed later.
    """
    try:
        error = await _error_of_tables(database)
        commits_alone = error is None and await _commits_each_statement(database)
    except InboxError:
        raise
    except Exception as failed:
        if is_transient(failed):
            raise
        raise InboxError(
            f"the database fails: {type(failed).__name__}: {failed}; are the inbox's tables there "
            "(aioprod.processing.inbox.ddl)?"
        ) from failed
    if error is not None:
        raise InboxError(error)
    if commits_alone:
        raise InboxError(
            "the connections commit each statement (isolation level AUTOCOMMIT): give the inbox an "
            "engine with another isolation level"
        )


async def _error_of_tables(database: Database) -> str | None:
    """Return what is wrong with the version of the tables, if anything."""
    async with database.transaction() as connection:
        dialect: Dialect = "postgresql" if is_postgresql(connection) else "sqlite"
        ((versioned,),) = await fetch(connection, f"SELECT {TABLES.is_versioned(dialect)}")
        version = 1
        if versioned:
            ((version,),) = await fetch(connection, f"SELECT version FROM {TABLES.view}")
        else:
            await fetch(connection, "SELECT 1 FROM aioprod_inbox LIMIT 1")  # fails without tables
        return TABLES.error_of(version, dialect)


async def _commits_each_statement(database: Database) -> bool:
    """Return whether a statement is kept that was rolled back, as with SQLAlchemy's isolation level
    ``AUTOCOMMIT``.
    """
    probe = f"probe-{uuid4()}"
    try:
        async with database.transaction() as connection:
            await fetch(connection, _PROBE, probe)
            raise _Undone
    except _Undone:
        pass
    async with database.transaction() as connection:
        return bool(await fetch(connection, _END_OF_PROBE, probe))


class _Undone(Exception):
    """A transaction is to be rolled back."""

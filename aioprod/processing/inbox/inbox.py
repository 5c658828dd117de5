"""Exactly once in the application's database: the effects of a record and the position after it are
committed in one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

from aioprod import TopicPartition
from aioprod.processing.inbox.checks import check_database
from aioprod.processing.inbox.connections import (
    Row,
    check_transaction,
    fetch,
    is_idle,
    is_postgresql,
    is_transient,
)
from aioprod.processing.inbox.databases import Connect, limited, make_database
from aioprod.processing.inbox.errors import InboxError
from aioprod.public_module import Uncopyable, set_module

_TAKE_OVER = """
INSERT INTO aioprod_inbox (group_id, topic, partition, topic_id, position, epoch)
VALUES ($1, $2, $3, $4, -1, 1)
ON CONFLICT (group_id, topic, partition) DO UPDATE SET
    epoch = aioprod_inbox.epoch + 1,
    position = CASE WHEN aioprod_inbox.topic_id = excluded.topic_id
        THEN aioprod_inbox.position ELSE -1 END,
    topic_id = excluded.topic_id
RETURNING position, epoch
"""
_WHERE = "WHERE group_id = $1 AND topic = $2 AND partition = $3"
_READ = f"SELECT position, epoch FROM aioprod_inbox {_WHERE}"
# The row is not locked before: a frozen process must not delay the next owner of the partition.
# Between this and the commit it is: PostgreSQL ends the session of one that takes too long.
_UPDATE = f"UPDATE aioprod_inbox SET position = $4 {_WHERE} AND epoch = $5 AND position = $6"
_ADVANCE = f"{_UPDATE} RETURNING position"
_ADVANCE_IN_POSTGRESQL = f"""
{_UPDATE} AND set_config('idle_in_transaction_session_timeout', '10s', true) <> ''
RETURNING position
"""
_FIRST = """
INSERT INTO aioprod_inbox_handled (scope, record_id) VALUES ($1, $2)
ON CONFLICT (scope, record_id) DO NOTHING RETURNING record_id
"""
_CONNECTION: ContextVar[Any] = ContextVar("aioprod_inbox_connection")


@set_module("aioprod.processing.inbox")
class Inbox(Uncopyable):
    """The database of a processor with ``guarantee="exactly_once_in_database"``. It belongs to one
    processor.

    Args:
        database: ``postgresql://...``, or a file of SQLite. Or a function that returns connections
            of the application: ``engine.connect`` or an ``async_sessionmaker`` of SQLAlchemy,
            ``pool.connection`` of psycopg 3, ``pool.acquire`` of asyncpg. The statements of
            :func:`ddl` create the tables.

    Raises:
        InboxError: if the database is of an unknown kind.
    """

    def __init__(self, database: str | Connect) -> None:
        self._database = make_database(database)
        self._is_open = False
        self._is_checked = False

    @property
    def connection(self) -> Any:
        """The connection, in the transaction of the record that is handled: of asyncpg, a
        ``sqlite3.Connection``, or the connection or session of the application. The processor
        commits it.

        Raises:
            InboxError: outside a call of the handler.
        """
        connection = _CONNECTION.get(None)
        if connection is None:
            raise InboxError("inbox.connection: is for the handler, during its call")
        return connection

    # -- for the processor -------------------------------------------------------------------------

    async def _open(self, connections: int) -> None:
        """Connect, and check the database, unless this is done.

        Raises:
            InboxError: if the database can't be used.
            Unavailable: if it failed, for example because it is locked.
        """
        if not self._is_open:
            await self._database.open(connections)
            self._is_open = True
        if not self._is_checked:
            try:
                await check_database(self._database)
            except InboxError:
                raise
            except Exception as error:
                raise Unavailable(error) from error
            self._is_checked = True

    async def _take_over(
        self, group_id: str, partition: TopicPartition, topic_id: str
    ) -> tuple[int, int]:
        """Return a partition's position, and the epoch of this assignment: no member with an older
        one can commit from here on.

        Raises:
            Unavailable: if the database failed.
        """
        with _unavailability():
            async with self._database.transaction() as connection:
                rows = await _fetch(connection, _TAKE_OVER, group_id, *partition, topic_id)
        position, epoch = rows[0]
        return position, epoch

    @asynccontextmanager
    async def _transaction(
        self, group_id: str, partition: TopicPartition, epoch: int
    ) -> AsyncIterator[Step]:
        """Begin a transaction, which commits only if no other member has taken the partition over.

        Raises:
            Fenced: if another one has taken it over; nothing is committed.
            Ended: if the handler has ended the transaction.
            Unavailable: if the database failed; whether it has committed is not known.
        """
        with _unavailability():
            async with self._database.transaction() as connection:
                rows = await _fetch(connection, _READ, group_id, *partition)
                if not rows or rows[0][1] != epoch:
                    raise Fenced
                read = rows[0][0]
                step = Step(read)
                token = _CONNECTION.set(connection)
                try:
                    yield step
                finally:
                    _CONNECTION.reset(token)
                if is_idle(connection):
                    raise Ended
                given = (group_id, *partition, step.position, epoch, read)
                advance = _ADVANCE_IN_POSTGRESQL if is_postgresql(connection) else _ADVANCE
                if step.position != read and not await _fetch(connection, advance, *given):
                    raise Fenced

    async def _close(self) -> None:
        self._is_open = self._is_checked = False
        await self._database.close()


class Step:
    """A transaction.

    Attributes:
        position: that of the partition; set it to commit another one.
    """

    def __init__(self, position: int) -> None:
        self.position = position


class Fenced(Exception):
    """Another member has the partition."""


class Ended(Exception):
    """The handler has ended the transaction, so its effects are not committed with the position."""


class Unavailable(Exception):
    """The database has failed: the same call may succeed later."""


@contextmanager
def _unavailability() -> Iterator[None]:
    """Raise Unavailable in place of an error of the database."""
    try:
        yield
    except InboxError as error:
        raise Unavailable(error) from error
    except Exception as error:
        if is_transient(error):
            raise Unavailable(error) from error
        raise


async def _fetch(connection: Any, statement: str, *given: object) -> list[Row]:
    async with limited():
        return await fetch(connection, statement, *given)


async def first_time(connection: Any, scope: str, record_id: str) -> bool:
    """Return whether this transaction is the first one with this id, and keep the id in the table
    ``aioprod_inbox_handled``. It makes a handler idempotent whose records may come twice.

    Args:
        connection: a connection of asyncpg, psycopg 3, sqlite3 or aiosqlite with an open
            transaction, or a session or connection of SQLAlchemy.
        scope: the owner of the ids, such as the group or the topic.
        record_id: the id of the record, such as that of a header.

    Raises:
        InboxError: if the connection has no transaction, or is of an unknown kind, or the id is not
            a text.
    """
    if not isinstance(record_id, str):
        # SQLite would store another type as it is, and not find it as a text.
        raise InboxError(f"record_id of type {type(record_id).__name__}: must be a str")
    check_transaction(connection)
    return bool(await fetch(connection, _FIRST, scope, record_id))

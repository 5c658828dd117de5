"""Writes rows in the transaction of the application."""

from __future__ import annotations

import json
import random
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from aioprod import ConfigError, ProducerRecord, SerializationError
from aioprod.arguments import shown_topic, topic_fault
from aioprod.config.checks import check_serializer
from aioprod.headers import check_headers
from aioprod.outbox.errors import OutboxError
from aioprod.outbox.schema import BUCKETS, COLUMNS
from aioprod.preparation import MOST_ATTEMPTS, NotPrepared
from aioprod.public_module import set_module
from aioprod.serializing import AnySerializer, WithHeaders, serialize
from aioprod.types import Headers

_NAMES = ", ".join(COLUMNS)
_NUMBERED = [f"${place}" for place in range(1, len(COLUMNS) + 1)]
_INSERT = f"INSERT INTO aioprod_outbox ({_NAMES}) VALUES "

Row = tuple[Any, ...]


@set_module("aioprod.outbox")
class Outbox:
    """Adds records to the table ``aioprod_outbox``, in the transaction of the application.

    Supported connections are those of asyncpg, psycopg 3, sqlite3 and aiosqlite, and sessions and
    connections of SQLAlchemy, with or without asyncio.

    Args:
        key_serializer, value_serializer: as in :class:`aioprod.Producer`.
        more_headers: a function that is called for each record and returns additional headers, such
            as ``aioprod.integrations.opentelemetry.trace_headers``, which links the record to the
            request that adds it.

    Raises:
        ConfigError: if a serializer is invalid.
    """

    def __init__(
        self,
        *,
        key_serializer: AnySerializer | None = None,
        value_serializer: AnySerializer | None = None,
        more_headers: Callable[[], Headers] | None = None,
    ) -> None:
        self._key = check_serializer("key_serializer", key_serializer)
        self._value = check_serializer("value_serializer", value_serializer)
        if more_headers is not None and not callable(more_headers):
            raise ConfigError(f"more_headers={more_headers!r}: must be a function")
        self._more_headers = more_headers

    async def add(
        self,
        connection: Any,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition_key: bytes | None = None,
    ) -> None:
        """Add a record. It is sent after the transaction is committed, and never if it is rolled
        back.

        Args:
            connection: a connection with an open transaction.
            topic, value, key, partition, timestamp_ms, headers, partition_key: as in
                :meth:`aioprod.Producer.send`.

        Raises:
            SerializationError: if key or value can't be serialized, or an argument has the wrong
                type; nothing is written.
            OutboxError: if the topic is invalid, the connection has no transaction, or is of an
                unknown kind.
        """
        pairs = check_headers(headers)
        record = ProducerRecord(topic, value, key, partition, timestamp_ms, pairs, partition_key)
        await self.add_many(connection, [record])

    def add_blocking(self, connection: Any, records: Iterable[ProducerRecord[Any, Any]]) -> None:
        """Add records as :meth:`add_many` does, in code without an event loop: to a connection of
        sqlite3 or psycopg, or SQLAlchemy's ``Session`` or ``Connection``.

        Raises:
            SerializationError: as in :meth:`add`.
            OutboxError: as in :meth:`add`; or if the connection is that of an asynchronous library,
                or a serializer has to ask a registry.
        """
        if _is_asynchronous(connection):
            raise OutboxError(
                f"add_blocking, connection of type {type(connection).__name__}: it is "
                "asynchronous; use 'await outbox.add(...)'"
            )
        adding = self.add_many(connection, records)
        try:
            adding.send(None)
        except StopIteration:
            return
        adding.close()
        raise OutboxError(
            "add_blocking: a serializer has to ask a registry; use 'await outbox.add(...)'"
        )

    async def add_many(self, connection: Any, records: Iterable[ProducerRecord[Any, Any]]) -> None:
        """Add many records in order, like :meth:`add`. If one is invalid, none is added.

        Raises:
            SerializationError, OutboxError: as in :meth:`add`.
        """
        rows = [await self._row(record) for record in records]
        if rows:
            await _insert(connection, rows)

    async def _row(self, record: ProducerRecord[Any, Any]) -> Row:
        topic, value, key, partition, timestamp_ms, headers, partition_key = record
        fault = topic_fault(topic)
        if fault is not None:
            raise OutboxError(f"topic {shown_topic(topic)}: {fault}")
        _check_place(partition, partition_key, timestamp_ms)
        headers = check_headers(headers)
        if self._more_headers is not None:
            headers = (*headers, *check_headers(self._more_headers()))
        stored_key, headers = await _stored(self._key, "key_serializer", topic, headers, key)
        stored, headers = await _stored(self._value, "value_serializer", topic, headers, value)
        listed = [
            [name, None if each is None else b64encode(each).decode()] for name, each in headers
        ]
        return (
            _bucket(topic, stored_key if partition_key is None else partition_key, partition),
            topic,
            partition,
            partition_key,
            stored_key,
            stored,
            json.dumps(listed) if listed else None,
            int(time.time() * 1000) if timestamp_ms is None else timestamp_ms,
        )


def _check_place(partition: object, partition_key: object, timestamp_ms: object) -> None:
    for name, number, most in (
        ("partition", partition, 2**31),
        ("timestamp_ms", timestamp_ms, 2**62),
    ):
        if number is not None and (type(number) is not int or not 0 <= number < most):
            raise SerializationError(f"{name}={number!r}: must be a number from 0")
    if partition_key is not None and not isinstance(partition_key, bytes):
        raise SerializationError(
            f"partition_key of type {type(partition_key).__name__}: must be bytes"
        )


def _bucket(topic: str, ordering: bytes | None, partition: int | None) -> int:
    """Return the bucket of a row: rows that must stay in order have the same bucket."""
    if ordering is None:
        if partition is None:
            return random.randrange(BUCKETS)
        ordering = b"%d" % partition
    return zlib.crc32(ordering, zlib.crc32(topic.encode())) % BUCKETS


async def _stored(
    serializer: AnySerializer | None, setting: str, topic: str, headers: Headers, data: Any
) -> tuple[bytes | None, Headers]:
    for _ in range(MOST_ATTEMPTS):
        try:
            stored = serialize(serializer, setting, topic, headers, data)
        except NotPrepared as needed:
            await needed.prepare()
            if needed.error is not None:
                raise needed.error from None
            continue
        if isinstance(stored, WithHeaders):
            return stored.data, (*headers, *stored.headers)
        return stored, headers
    raise SerializationError(f"{setting}: not prepared after {MOST_ATTEMPTS} attempts")


def _is_asynchronous(connection: object) -> bool:
    return any(
        each.__name__.lower().startswith("async")
        or each.__module__.startswith(("asyncpg", "aiosq"))
        for each in type(connection).__mro__
    )


async def _insert(connection: Any, rows: Sequence[Row]) -> None:
    # A subclass may be defined elsewhere, as SQLModel's session is.
    libraries = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    done: object = None
    if libraries & {"sqlite3", "aiosqlite"}:
        if connection.isolation_level is None and not connection.in_transaction:
            raise _no_transaction("execute BEGIN first")
        done = connection.executemany(_insert_with("?" * len(COLUMNS)), rows)
    elif "asyncpg" in libraries:
        if not connection.is_in_transaction():
            raise _no_transaction("use 'async with connection.transaction():'")
        done = connection.executemany(_insert_with(_NUMBERED), rows)
    elif "psycopg" in libraries:
        # It begins a transaction by itself, unless it commits each statement.
        if connection.autocommit and connection.info.transaction_status == 0:
            raise _no_transaction("use 'async with connection.transaction():'")
        cursor = connection.cursor()
        try:
            done = cursor.executemany(_insert_with(["%s"] * len(COLUMNS)), rows)
            if isawaitable(done):
                await done
        finally:
            done = cursor.close()
    elif "sqlalchemy" in libraries:
        from sqlalchemy import text  # type: ignore[import-not-found,unused-ignore]

        named = _insert_with([f":{name}" for name in COLUMNS])
        done = connection.execute(
            text(named), [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        )
    else:
        raise OutboxError(
            f"connection of type {type(connection).__name__}: must be a connection of asyncpg, "
            "psycopg, sqlite3 or aiosqlite, or a session or connection of SQLAlchemy"
        )
    if isawaitable(done):
        await done


def _insert_with(marks: Iterable[str]) -> str:
    return f"{_INSERT}({', '.join(marks)})"


def _no_transaction(cure: str) -> OutboxError:
    return OutboxError(
        f"the connection has no transaction, so the row would be committed alone: {cure}"
    )

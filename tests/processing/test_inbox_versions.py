"""The tables of the inbox in each version, changes from one to another, and processors that meet
other versions.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Literal

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aioprod import ConfigError, TopicPartition
from aioprod.processing.inbox import Inbox, InboxError, ddl
from aioprod.processing.inbox.schema import TABLES

#: Databases have tables of these versions, so their statements must never change.
DIGESTS = {
    1: "21e8f7f1d1b7124ae36c93d68cdb7b9a043a9f5dc47c9b701d8fca01a098435d",
    2: "8d31aa4bf20015b6c9bf9635a0268fc450049a4d85dd94f52ce1a037f89aa6b9",
}
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def empty(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


@pytest.fixture(params=["file", "engine"])
async def database(request: pytest.FixtureRequest, path: str) -> AsyncIterator[Any]:
    """The argument of an inbox."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    yield path if request.param == "file" else engine.connect
    await engine.dispose()


@asynccontextmanager
async def opened(database: Any) -> AsyncIterator[Inbox]:
    inbox = Inbox(database)
    try:
        await inbox._open(1)
        yield inbox
    finally:
        await inbox._close()


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_the_tables_of_a_version_never_change(dialect: Literal["postgresql", "sqlite"]) -> None:
    for version in range(1, TABLES.version + 1):
        text = ddl(dialect, to_version=version)
        assert hashlib.sha256(text.encode()).hexdigest() == DIGESTS[version], version


def objects(database: sqlite3.Connection) -> list[Any]:
    return database.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()


def test_changed_tables_are_the_same_as_new_ones(empty: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(ddl("sqlite"))
        expected = objects(new)
    for version in range(TABLES.version):
        empty.executescript(ddl("sqlite", to_version=version))
        empty.executescript(ddl("sqlite", from_version=version))
        assert objects(empty) == expected
        assert ddl("sqlite", from_version=TABLES.version) == ""
        empty.executescript(ddl("sqlite", from_version=TABLES.version, to_version=version))
        empty.executescript(ddl("sqlite", from_version=version, to_version=0))
        assert objects(empty) == []


async def test_positions_of_older_tables_are_kept(database: Any, empty: sqlite3.Connection) -> None:
    empty.executescript(ddl("sqlite", to_version=1))
    with empty:
        empty.execute("INSERT INTO aioprod_inbox VALUES ('g', 'orders', 0, 'id', 7, 3)")
    with pytest.raises(InboxError) as raised:
        async with opened(database):
            pass
    assert str(raised.value) == (
        "the tables of the inbox have version 1, but this aioprod uses version 2: change them with "
        "the statements of: aioprod.processing.inbox.ddl('sqlite', from_version=1)"
    )
    empty.executescript(ddl("sqlite", from_version=1))
    async with opened(database) as inbox:
        assert await inbox._take_over("g", ORDERS, "id") == (7, 4)


async def test_newer_tables_are_refused(database: Any, empty: sqlite3.Connection) -> None:
    empty.executescript(ddl("sqlite"))
    newer = TABLES.version + 1
    with empty:
        empty.execute("DROP VIEW aioprod_inbox_version")
        empty.execute(f"CREATE VIEW aioprod_inbox_version AS SELECT {newer} AS version")
    with pytest.raises(InboxError, match=rf"have version {newer}, .* install the newer aioprod"):
        async with opened(database):
            pass


async def test_a_database_without_tables_has_no_version(
    database: Any, empty: sqlite3.Connection
) -> None:
    with pytest.raises(InboxError, match=r"no such table: .* are the inbox's tables there"):
        async with opened(database):
            pass


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dialect": "mysql"}, "dialect='mysql'"),
        ({"from_version": 3}, "from_version=3: must be from 0 to 2"),
        ({"to_version": -1}, "to_version=-1: must be from 0"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ddl(**{"dialect": "postgresql", **arguments})

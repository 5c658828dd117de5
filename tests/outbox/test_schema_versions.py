"""The tables of each version, changes from one to another, and relays that meet other versions."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

import pytest

from aioprod import ConfigError
from aioprod.outbox import Outbox, OutboxAdmin, OutboxError, OutboxRelay, ddl
from aioprod.outbox.schema import VERSION
from aioprod.testing import EmbeddedCluster
from tests.outbox.test_relay import drain, relay_of, rows, values
from tests.waiting import until

TOPIC = "orders"
#: Databases have tables of these versions, so their statements must never change.
DIGESTS = {
    ("postgresql", 1): "677289fbe981b18d6595fd1c458231bb1b27656ab925a5cb078295472adcb76a",
    ("sqlite", 1): "3b3a1f005c7cdd9531eefded3e1feb07866bb612c2cb3a498c1bc2bad6962554",
    ("postgresql", 2): "7eb372770a634d2869be9bf32c9a7be774a229cb14c1688e7397d25252d05a4b",
    ("sqlite", 2): "1addad5a13319fe4ef6d7cb3dc2ccc52634c2fa320b88888a49758725309f6ac",
}


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_the_tables_of_a_version_never_change(dialect: Literal["postgresql", "sqlite"]) -> None:
    for version in range(1, VERSION + 1):
        text = ddl(dialect, to_version=version)
        assert hashlib.sha256(text.encode()).hexdigest() == DIGESTS[dialect, version], version


def objects(database: sqlite3.Connection) -> list[Any]:
    return database.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()


@pytest.fixture
def empty(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def test_changed_tables_are_the_same_as_new_ones(empty: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(":memory:")) as new:
        new.executescript(ddl("sqlite"))
        expected = objects(new)
    for version in range(VERSION):
        empty.executescript(ddl("sqlite", to_version=version))
        empty.executescript(ddl("sqlite", from_version=version))
        assert objects(empty) == expected
        assert ddl("sqlite", from_version=VERSION) == ""
        empty.executescript(ddl("sqlite", from_version=VERSION, to_version=version))
        empty.executescript(ddl("sqlite", from_version=version, to_version=0))
        assert objects(empty) == []


async def test_rows_of_older_tables_are_sent_after_the_change(
    broker: EmbeddedCluster, path: str, empty: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    empty.executescript(ddl("sqlite", to_version=1))
    with empty:
        await Outbox().add(empty, TOPIC, b"old")
    with pytest.raises(OutboxError) as raised:
        await relay_of(path, broker).run()
    assert str(raised.value) == (
        "the tables of the outbox have version 1, but this aioprod uses version 2: change them "
        "with the statements of: aioprod outbox ddl --dialect sqlite --from 1"
    )
    with pytest.raises(OutboxError, match="have version 1"):
        async with OutboxAdmin(path):
            pass
    empty.executescript(ddl("sqlite", from_version=1))
    await drain(relay_of(path, broker), empty)
    assert values(broker) == [b"old"]
    async with OutboxAdmin(path) as admin:
        assert (await admin.backlog()).rows == 0


async def test_a_running_relay_ends_when_the_tables_change(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    task = asyncio.create_task(relay_of(path, broker).run())
    with database:
        await Outbox().add(database, TOPIC, b"before")
    await until(lambda: not rows(database) or task.done())
    newer = VERSION + 1
    with database:
        database.execute("DROP VIEW aioprod_outbox_version")
        database.execute(f"CREATE VIEW aioprod_outbox_version AS SELECT {newer} AS version")
    with pytest.raises(OutboxError, match=rf"have version {newer}, .* install the newer aioprod"):
        async with asyncio.timeout(30):
            await task
    with pytest.raises(OutboxError, match=f"have version {newer}, "):
        await relay_of(path, broker).run()
    assert values(broker) == [b"before"]


async def test_a_database_without_tables_has_no_version(broker: EmbeddedCluster, path: str) -> None:
    with pytest.raises(OutboxError, match=r"no such table: .* create the tables with"):
        await OutboxRelay(path, broker.bootstrap_servers).run()
    with pytest.raises(OutboxError, match=r"no such table: .* create the tables with"):
        async with OutboxAdmin(path):
            pass


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"dialect": "mysql"}, "dialect='mysql'"),
        ({"from_version": VERSION + 1}, f"from_version={VERSION + 1}: must be from 0 to {VERSION}"),
        ({"to_version": -1}, "to_version=-1: must be from 0"),
        ({"from_version": "1"}, "from_version='1': must be a whole number"),
        ({"dialect": "sqlite", "debezium": True}, "needs PostgreSQL"),
        ({"from_version": 2, "to_version": 1, "debezium": True}, "needs PostgreSQL"),
        ({"to_version": 0, "debezium": True}, "needs PostgreSQL"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ddl(**{"dialect": "postgresql", **arguments})

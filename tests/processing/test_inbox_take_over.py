"""The database of an inbox fails while partitions are assigned, and comes back."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from aioprod import Consumer
from aioprod.processing import Processor, Record
from aioprod.processing.inbox import Inbox, InboxError, ddl
from aioprod.processing.inbox.connections import fetch
from aioprod.testing import EmbeddedCluster
from tests.processing.inbox_processor import fill, inbox_processor
from tests.processing.test_inbox import effects
from tests.waiting import until

Member = Processor[bytes | None, bytes | None]
Make = Callable[..., Member]
RETRIES = "the database fails, retrying to take over partitions"
PROTOCOLS: dict[str, Any] = {
    "eager": {"partition_assignment_strategy": ("range",), "heartbeat_interval_ms": 20},
    "cooperative": {
        "partition_assignment_strategy": ("cooperative-sticky",),
        "heartbeat_interval_ms": 20,
    },
    "KIP-848": {"group_protocol": "consumer"},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(ddl("sqlite"))
        connection.execute("CREATE TABLE effects (part integer, position integer, value text)")
        yield connection


@pytest.fixture(params=["file", "engine"])
async def given(
    request: pytest.FixtureRequest, path: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    """The argument of an inbox. A locked file is an error soon."""
    monkeypatch.setattr("aioprod.processing.inbox.databases._BUSY_S", 0.01)
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 0.01})
    yield path if request.param == "file" else engine.connect
    await engine.dispose()


@pytest.fixture
def make(broker: EmbeddedCluster, given: Any) -> Make:
    """Makes members of a group."""

    def make(protocol: str = "eager", inbox: Inbox | None = None) -> Member:
        inbox = inbox or Inbox(given)

        async def handle(record: Record[bytes | None, bytes | None]) -> None:
            values = (record.partition, record.offset, (record.value or b"").decode())
            insert = "INSERT INTO effects VALUES ($1, $2, $3) RETURNING value"
            await fetch(inbox.connection, insert, *values)

        return inbox_processor(broker, inbox, handle, consumer=PROTOCOLS[protocol])

    return make


def number_of_partitions(member: Member) -> int:
    """Return how many partitions a member has; -1 if it has not joined."""
    return int(member.metrics()["assigned-partitions"]) if member._runner.joined else -1


async def owner_and_standby(make: Make) -> tuple[Member, Member]:
    """Return two running members. The first one has the only partition."""
    members = [make(), make()]
    for member in members:
        await member.start()
    await until(lambda: sorted(map(number_of_partitions, members)) == [0, 1])
    owner, standby = sorted(members, key=number_of_partitions, reverse=True)
    return owner, standby


def epochs(database: sqlite3.Connection) -> dict[int, int]:
    return dict(database.execute("SELECT partition, epoch FROM aioprod_inbox").fetchall())


async def test_it_starts_with_a_locked_database(
    broker: EmbeddedCluster,
    database: sqlite3.Connection,
    make: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A member without partitions, too."""
    broker.create_topic("orders", 1)
    await fill(broker.bootstrap_servers, range(0, 10, 2))
    database.execute("BEGIN IMMEDIATE")
    owner, standby = await owner_and_standby(make)
    caplog.clear()
    await until(lambda: caplog.text.count(RETRIES) >= 4)
    database.execute("ROLLBACK")
    await until(lambda: effects(database) == list(range(0, 10, 2)))
    await owner.stop()
    await standby.stop()


async def test_a_partition_is_taken_over_when_the_database_is_back(
    broker: EmbeddedCluster,
    database: sqlite3.Connection,
    make: Make,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("orders", 1)
    await fill(broker.bootstrap_servers, range(0, 10, 2))
    owner, standby = await owner_and_standby(make)
    await until(lambda: len(effects(database)) == 5)
    # The group's offset does not count: without the position, records would come again.
    database.execute("BEGIN IMMEDIATE")
    caplog.clear()
    await owner.stop()
    await until(lambda: caplog.text.count(RETRIES) >= 3)
    assert number_of_partitions(standby) == 1
    await fill(broker.bootstrap_servers, range(10, 20, 2))
    database.execute("ROLLBACK")
    await until(lambda: len(effects(database)) == 10)
    await standby.stop()
    assert effects(database) == list(range(0, 20, 2))


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_partition_that_is_lost_meanwhile_is_not_taken_over(
    broker: EmbeddedCluster,
    database: sqlite3.Connection,
    make: Make,
    protocol: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its next owner would be fenced."""
    broker.create_topic("orders", 2)
    first, second = make(protocol), make(protocol)
    await first.start()
    await second.start()
    await until(lambda: number_of_partitions(first) == number_of_partitions(second) == 1)
    await until(lambda: len(epochs(database)) == 2)
    database.execute("BEGIN IMMEDIATE")
    before = epochs(database)
    caplog.clear()
    await first.stop()
    await until(lambda: number_of_partitions(second) == 2 and RETRIES in caplog.text)
    settings: Any = PROTOCOLS[protocol]
    async with Consumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="g", **settings
    ) as other:

        async def has_one() -> bool:
            await other.getmany(timeout_ms=10)
            return len(other.assignment()) == 1 and number_of_partitions(second) == 1

        await until(has_one)
        database.execute("ROLLBACK")
        (lost,) = other.assignment()
        kept = 1 - lost.partition
        await fill(broker.bootstrap_servers, range(6))
        await until(lambda: effects(database) == list(range(kept, 6, 2)))
        assert epochs(database)[lost.partition] == before[lost.partition]
        await second.stop()


async def test_an_inbox_serves_one_processor_after_the_other(
    broker: EmbeddedCluster, database: sqlite3.Connection, make: Make, given: Any
) -> None:
    broker.create_topic("orders", 1)
    inbox = Inbox(given)
    for number in (0, 2):
        await fill(broker.bootstrap_servers, range(number, number + 1))
        async with make(inbox=inbox):
            await until(lambda wanted=number: wanted in effects(database))  # type: ignore[misc]
    assert effects(database) == [0, 2]


async def test_a_member_without_partitions_checks_the_database(
    broker: EmbeddedCluster, tmp_path: Path
) -> None:
    """Otherwise it would meet a database that never worked when it takes over from another one."""
    broker.create_topic("orders", 1)
    given: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
    consumer: Any = PROTOCOLS["cooperative"]

    async def handle(record: Record[bytes | None, bytes | None]) -> None:
        raise AssertionError

    async with Consumer("orders", **given, **consumer) as owner:

        async def has_one() -> bool:
            await owner.getmany(timeout_ms=10)
            return len(owner.assignment()) == 1

        await until(has_one)
        empty = Inbox(str(tmp_path / "empty.db"))
        member = inbox_processor(broker, empty, handle, consumer=consumer)
        await member.start()

        async def has_ended() -> bool:
            return await has_one() and not member.state.healthy

        await until(has_ended)
        with pytest.raises(InboxError, match="no such table"):
            await member.stop()


async def test_it_ends_if_the_database_does_not_come_back(
    broker: EmbeddedCluster,
    database: sqlite3.Connection,
    make: Make,
) -> None:
    broker.create_topic("orders", 1)
    owner, standby = await owner_and_standby(make)
    await until(lambda: len(epochs(database)) == 1)
    database.execute("BEGIN IMMEDIATE")
    standby._runner._guarantee._failing_limit_s = 0.0  # type: ignore[attr-defined]
    await owner.stop()
    await until(lambda: not standby.state.healthy)
    with pytest.raises(InboxError, match=r"^the database fails: .*locked"):
        await standby.stop()

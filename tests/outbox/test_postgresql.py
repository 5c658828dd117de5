"""The outbox with a real PostgreSQL, which must be installed: Debian's package ``postgresql``."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from aioprod import ProducerRecord
from aioprod.outbox import Outbox, OutboxAdmin, OutboxError, OutboxRelay, ddl
from aioprod.outbox.databases import _translated, make_database
from aioprod.outbox.schema import BUCKETS, VERSION
from aioprod.outbox.steps import _OLDEST, one
from aioprod.testing import EmbeddedCluster
from tests.waiting import until

if TYPE_CHECKING:
    import asyncpg

pytestmark = pytest.mark.slow

TOPIC = "orders"


@pytest.fixture
def database(postgresql: asyncpg.Connection[Any]) -> asyncpg.Connection[Any]:
    return postgresql


async def drain(relay: OutboxRelay, database: asyncpg.Connection[Any]) -> None:
    async def done() -> bool:
        rows = await database.fetchval("SELECT count(*) FROM aioprod_outbox")
        return not rows or not relay.healthy

    async with asyncio.timeout(30), relay:
        await until(done)


def _sent_or_done(relay: OutboxRelay, task: asyncio.Task[None]) -> bool:
    return relay.records_sent >= 3 or task.done()


async def test_rows_of_asyncpg(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    outbox = Outbox()
    with pytest.raises(OutboxError, match="has no transaction"):
        await outbox.add(database, TOPIC, b"alone")
    for number in range(40):
        async with database.transaction():
            records = [ProducerRecord(TOPIC, b"%d" % number, b"k", headers=[("h", b"\xff")])] * 2
            await outbox.add_many(database, records)
    # Relays end in the middle; the next one goes on.
    for _ in range(15):
        relay = OutboxRelay(server, broker.bootstrap_servers, max_batch_records=3)
        task = asyncio.create_task(relay.run())
        await until(partial(_sent_or_done, relay, task), pause_s=0)
        task.cancel()
        await asyncio.wait([task])
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    sent = broker.records(TOPIC, committed_only=True)
    assert [record.value for record in sent] == [b"%d" % (place // 2) for place in range(80)]
    assert all(list(record.headers) == [("h", b"\xff")] for record in sent)


async def test_rows_of_sqlalchemy(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(server.replace("postgresql", "postgresql+asyncpg"))
    outbox = Outbox()
    async with AsyncSession(engine) as session, session.begin():
        await outbox.add(session, TOPIC, b"session", key=b"k")
    async with engine.begin() as connection:
        await outbox.add(connection, TOPIC, b"connection", key=b"k")
    async with AsyncSession(engine) as session:
        await outbox.add(session, TOPIC, b"never")
        await session.rollback()
    await engine.dispose()
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    values = [record.value for record in broker.records(TOPIC, committed_only=True)]
    assert values == [b"session", b"connection"]


async def test_rows_of_psycopg(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    import psycopg

    outbox = Outbox()
    async with await psycopg.AsyncConnection.connect(server) as connection:  # commits at the end
        headers = {"h": b"\xff"}
        await outbox.add(connection, TOPIC, b"\x00async", key=b"k", headers=headers, partition=0)
        await outbox.add(connection, TOPIC, None, key=b"k", timestamp_ms=2**40)
        async with connection.transaction():
            await outbox.add(connection, TOPIC, b"never", key=b"k")
            raise psycopg.Rollback
    async with await psycopg.AsyncConnection.connect(server, autocommit=True) as connection:
        with pytest.raises(OutboxError, match="has no transaction"):
            await outbox.add(connection, TOPIC, b"alone")
        async with connection.transaction():
            await outbox.add(connection, TOPIC, b"autocommit", key=b"k")
    with psycopg.connect(server) as blocking:
        outbox.add_blocking(blocking, [ProducerRecord(TOPIC, b"blocking", b"k")])
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    records = broker.records(TOPIC, committed_only=True)
    assert [each.value for each in records] == [b"\x00async", None, b"autocommit", b"blocking"]
    assert list(records[0].headers) == [("h", b"\xff")] and records[1].timestamp == 2**40


async def test_rows_of_sessions_that_block(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session, scoped_session, sessionmaker

    class OwnSession(Session):
        """SQLModel has such a subclass."""

    outbox = Outbox()
    engine = create_engine(server.replace("postgresql", "postgresql+psycopg"))
    with Session(engine) as session, session.begin():
        await outbox.add(session, TOPIC, b"session", key=b"k")
    with OwnSession(engine) as session, session.begin():
        outbox.add_blocking(session, [ProducerRecord(TOPIC, b"own", b"k")])
    scoped = scoped_session(sessionmaker(engine))
    outbox.add_blocking(scoped, [ProducerRecord(TOPIC, b"scoped", b"k")])
    scoped.commit()
    scoped.remove()
    with engine.begin() as connection:
        outbox.add_blocking(connection, [ProducerRecord(TOPIC, b"connection", b"k")] * 2)
    with Session(engine) as session:
        await outbox.add(session, TOPIC, b"never")
    engine.dispose()
    async with database.transaction():
        with pytest.raises(OutboxError, match="it is asynchronous; use 'await"):
            outbox.add_blocking(database, [ProducerRecord(TOPIC, b"never")])
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    values = [record.value for record in broker.records(TOPIC, committed_only=True)]
    assert values == [b"session", b"own", b"scoped", b"connection", b"connection"]


async def test_a_notification_wakes_the_relay(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    async with OutboxRelay(server, broker.bootstrap_servers, poll_interval_ms=600_000) as relay:
        await until(lambda: _waits(relay))
        for number in range(1, 4):
            async with database.transaction():
                await Outbox().add(database, TOPIC, b"%d" % number)
            await until(partial(_has_sent, relay, number), 10)
            await until(lambda: _waits(relay))


def _has_sent(relay: OutboxRelay, number: int) -> bool:
    return relay.records_sent == number


def _waits(relay: OutboxRelay) -> bool:
    """Return whether the shard of the relay has found no row."""
    shard, _ = relay._running.get(0, (None, None))
    return shard is not None and not shard._sent and bool(shard._wake._waiters)


async def test_a_relay_polls_until_it_listens_again(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    async def add() -> None:
        async with database.transaction():
            await Outbox().add(database, TOPIC, b"")

    async with OutboxRelay(server, broker.bootstrap_servers, poll_interval_ms=20) as relay:
        await until(lambda: _waits(relay))
        await add()
        await until(lambda: relay.records_sent == 1 and relay._waking._trusted)
        listening = relay._database
        pid = listening._connection.get_server_pid()  # type: ignore[attr-defined]
        assert await database.fetchval("SELECT pg_terminate_backend($1)", pid)
        await until(lambda: not relay._waking._trusted)
        await add()
        await until(lambda: relay.records_sent == 2)
        await until(lambda: relay._database is not listening and relay.healthy)
        number = 2
        while not relay._waking._trusted:  # the first rows may come before it listens
            await add()
            number += 1
            await until(partial(_has_sent, relay, number))
        # Tables without the trigger, as those of another program: polling finds the rows.
        await database.execute("DROP FUNCTION aioprod_outbox_notify CASCADE")
        await until(lambda: _waits(relay))
        await add()
        await until(partial(_has_sent, relay, number + 1))
        assert not relay._waking._trusted


async def test_rows_that_kafka_refuses(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    broker.create_topic(TOPIC, 1, {"max.message.bytes": "2000"})
    rows = [(b"k", b"1"), (b"k", b"x" * 3000), (b"k", b"3"), (b"other", b"4")]
    async with database.transaction():
        await Outbox().add_many(database, [ProducerRecord(TOPIC, v, k) for k, v in rows])
    async with (
        asyncio.timeout(60),
        OutboxRelay(server, broker.bootstrap_servers, shards=2),
        OutboxAdmin(server) as admin,
    ):
        await until(lambda: len(broker.records(TOPIC, committed_only=True)) == 2)
        await until(admin.refused)
        (row,) = await admin.refused()
        assert (row.key, row.stops) == (b"k", "key") and "RecordTooLargeError" in row.reason

        async def is_sent() -> bool:
            return (await admin.backlog()).rows == 2

        await until(is_sent)
        backlog = await admin.backlog()
        assert (backlog.rows, backlog.refused, len(backlog.shards)) == (2, 1, 2)
        assert await admin.retry([row.id + 1]) == []
        assert await admin.discard([row.id, row.id + 1]) == [row.id]
        await until(lambda: len(broker.records(TOPIC, committed_only=True)) == 3)
    values = [each.value for each in broker.records(TOPIC, committed_only=True)]
    assert {*values} == {b"1", b"3", b"4"} and values.index(b"1") < values.index(b"3")


async def test_a_step_reads_no_more_rows_than_it_takes(
    server: str, database: asyncpg.Connection[Any]
) -> None:
    """The planner estimates well, also before the first ANALYZE, and does not compile. It also uses
    the index if only few rows are left of many.
    """
    records = [ProducerRecord(TOPIC, b"x" * 100, b"%d" % (each % 50)) for each in range(20_000)]
    async with database.transaction():
        await Outbox().add_many(database, records)
    for shards in (1, 8):
        buckets = ",".join(map(str, range(0, BUCKETS, shards)))
        statement = _translated(_OLDEST, "postgresql").replace("$1", "100").replace("$2", "9999999")
        statement = statement.replace("$3", f"'{{{buckets}}}'")
        for analyzed in (False, True):
            if analyzed:
                await database.execute("ANALYZE")
            plan = "\n".join(row[0] for row in await database.fetch(f"EXPLAIN {statement}"))
            assert "Index Scan using aioprod_outbox_pkey" in plan and "Sort" not in plan, plan
    opened = make_database(server)
    await opened.open()
    assert await opened.transact(one("SHOW jit")) == [("off",)]
    await database.execute("DELETE FROM aioprod_outbox WHERE id <= 19900")
    await database.execute("ANALYZE")
    plan = "\n".join(row[0] for row in await opened.transact(one(f"EXPLAIN {statement}")))
    assert "Index Scan using aioprod_outbox_pkey" in plan and "Sort" not in plan, plan
    await opened.close()


async def test_a_row_of_a_late_transaction_is_not_skipped(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    import asyncpg

    outbox = Outbox()
    late = await asyncpg.connect(server)
    transaction = late.transaction()
    await transaction.start()
    await outbox.add(late, TOPIC, b"late")  # has the lower id
    async with database.transaction():
        await outbox.add(database, TOPIC, b"early")
    await drain_one(server, broker, b"early")
    await transaction.commit()
    await late.close()
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    values = [record.value for record in broker.records(TOPIC, committed_only=True)]
    assert values == [b"early", b"late"]


async def drain_one(server: str, broker: EmbeddedCluster, value: bytes) -> None:
    async with asyncio.timeout(30), OutboxRelay(server, broker.bootstrap_servers) as relay:
        await until(lambda: relay.records_sent)
    assert [record.value for record in broker.records(TOPIC, committed_only=True)] == [value]


async def objects(database: asyncpg.Connection[Any]) -> list[Any]:
    columns = await database.fetch(
        "SELECT table_name, column_name, data_type, is_nullable, column_default "
        "FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    others = await database.fetch(
        "SELECT proname AS name, prosrc AS text FROM pg_proc WHERE proname LIKE 'aioprod%' "
        "UNION ALL SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger "
        "UNION ALL SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1"
    )
    return [tuple(each) for each in (*columns, *others)]


async def test_versions_of_the_tables(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    expected = await objects(database)
    assert expected
    await database.execute(ddl("postgresql", from_version=VERSION, to_version=1))
    async with database.transaction():
        await Outbox().add(database, TOPIC, b"old")
    with pytest.raises(OutboxError, match=r"have version 1, .* ddl --dialect postgresql --from 1"):
        await OutboxRelay(server, broker.bootstrap_servers).run()
    await database.execute(ddl("postgresql", from_version=1))
    assert await objects(database) == expected
    await drain_one(server, broker, b"old")
    await database.execute(ddl("postgresql", from_version=VERSION, to_version=0))
    assert await objects(database) == []


async def test_a_running_relay_ends_when_the_tables_change(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    relay = OutboxRelay(server, broker.bootstrap_servers, lease_ms=300)
    task = asyncio.create_task(relay.run())
    await until(lambda: relay.ready or task.done())
    await database.execute(
        f"CREATE OR REPLACE VIEW aioprod_outbox_version AS SELECT {VERSION + 1} AS version"
    )
    with pytest.raises(OutboxError, match=f"have version {VERSION + 1}, "):
        async with asyncio.timeout(30):
            await task


async def test_columns_for_debezium(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    await database.execute(ddl("postgresql", from_version=VERSION, debezium=True))
    headers = [("eventType", "bezahlt €".encode()), ("eventType", b"second"), ("h", b"\xff")]
    async with database.transaction():
        await Outbox().add(database, TOPIC, b"\x00\xff", key=b"\xfe", headers=headers)
        await Outbox().add(database, TOPIC, None, headers=[("eventType", None)])
        await Outbox().add(database, TOPIC, b"", key=b"k", headers=[("not eventType", b"x")])
    found = await database.fetch(
        "SELECT aggregatetype, aggregateid, type, payload FROM aioprod_outbox ORDER BY id"
    )
    assert [tuple(each) for each in found] == [
        (TOPIC, b"\xfe", "bezahlt €", b"\x00\xff"),
        (TOPIC, None, None, None),
        (TOPIC, b"k", None, b""),
    ]
    await drain(OutboxRelay(server, broker.bootstrap_servers), database)
    sent = broker.records(TOPIC, committed_only=True)
    assert {(each.key, each.value) for each in sent} == {
        (b"\xfe", b"\x00\xff"), (None, None), (b"k", b"")
    }  # fmt: skip


async def test_a_database_without_the_tables(
    server: str, database: asyncpg.Connection[Any], broker: EmbeddedCluster
) -> None:
    await database.execute(ddl("postgresql", from_version=VERSION, to_version=0))
    with pytest.raises(OutboxError, match=r"does not exist; create the tables with .* postgresql"):
        await OutboxRelay(server, broker.bootstrap_servers).run()


async def test_no_server() -> None:
    with pytest.raises(OutboxError, match="PostgreSQL: ConnectionRefusedError"):
        await OutboxRelay("postgresql://test@127.0.0.1:1/none").run()

"""The relay with SQLite: each committed row exactly once, whatever ends the relay and where."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any, cast

import aiosqlite
import pytest

from aioprod import ConfigError, ErrorCode, Producer, ProducerRecord, SerializationError
from aioprod.cluster.retry import retry
from aioprod.outbox import Outbox, OutboxError, OutboxRelay, ddl
from aioprod.outbox.databases import SqliteDatabase, make_database
from aioprod.outbox.shard import Shard
from aioprod.outbox.steps import Claim, Step, Steps, TakenOver
from aioprod.preparation import NotPrepared
from aioprod.producer.transactions import calls
from aioprod.protocol.api_keys import ApiKey
from aioprod.serialization import JsonSerializer
from aioprod.testing import EmbeddedCluster, fail
from aioprod.types import Headers
from tests.waiting import until

TOPIC = "orders"
_STEPS = ("start", "begin_transaction", "send", "send_offsets_to_transaction",
          "commit_transaction", "abort_transaction")  # fmt: skip
LEASE_MS = 100


class Killed(Exception):
    pass


def relay_of(path: str, broker: EmbeddedCluster, **settings: Any) -> OutboxRelay:
    settings = {"poll_interval_ms": 5, "lease_ms": LEASE_MS, **settings}
    return OutboxRelay(path, broker.bootstrap_servers, **settings)


async def nothing() -> None:
    pass


def change_shards(relay: OutboxRelay, change: Callable[[Shard], None]) -> None:
    """Call ``change`` with each shard before it runs."""
    begin = relay._begin

    def changed(claim: Claim) -> None:
        begin(claim)
        change(relay._running[claim.shard][0])

    relay._begin = changed  # type: ignore[method-assign]


def values(broker: EmbeddedCluster) -> list[bytes | None]:
    return [record.value for record in broker.records(TOPIC, committed_only=True)]


def rows(database: sqlite3.Connection) -> int:
    number: int = database.execute("SELECT count(*) FROM aioprod_outbox").fetchone()[0]
    return number


async def add(database: sqlite3.Connection, numbers: range) -> None:
    records = [ProducerRecord(TOPIC, b"%d" % number, b"%d" % (number % 3)) for number in numbers]
    with database:
        await Outbox().add_many(database, records)


async def drain(relay: OutboxRelay, database: sqlite3.Connection) -> None:
    async with asyncio.timeout(30), relay:
        await until(lambda: not rows(database) or not relay.healthy)


def kill_at(relay: OutboxRelay, place: int) -> tuple[Callable[[], bool], list[Producer]]:
    """End the relay after its n-th step without any cleanup in Kafka, as kill -9 does."""
    numbers = count()
    killed = False
    producers: list[Producer] = []

    def wrap(owner: Any, name: str) -> None:
        call = getattr(owner, name)

        async def wrapped(*given: Any) -> Any:
            nonlocal killed
            mine = next(numbers)
            result = await call(*given)
            if mine == place:
                killed = True
                raise Killed
            return result

        setattr(owner, name, wrapped)

    def change(shard: Shard) -> None:
        producers.append(shard._producer)
        wrap(shard._steps, "take")
        for name in _STEPS:
            wrap(shard._producer, name)
        shard._close_producer = nothing  # type: ignore[method-assign]

    wrap(relay._steps, "take_over")
    relay._connect = partial(_connected, relay)  # type: ignore[method-assign]
    relay._leave = nothing  # type: ignore[method-assign]
    change_shards(relay, change)
    return lambda: killed, producers


async def _connected(relay: OutboxRelay) -> None:
    await relay._database.open()
    await relay._steps.set_up()


async def test_a_relay_that_dies_at_any_step_repeats_and_loses_nothing(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    sent = 0
    for place in count():
        await add(database, range(sent, sent + 4))
        sent += 4
        relay = relay_of(path, broker, max_batch_records=2)
        was_killed, producers = kill_at(relay, place)
        try:
            await drain(relay, database)
        except Killed:
            await drain(relay_of(path, broker, max_batch_records=3), database)
        for producer in producers:
            await producer.close(0)
        assert values(broker) == [b"%d" % number for number in range(sent)], place
        if not was_killed():
            break
    assert place > 10  # steps of two batches


async def test_a_cancelled_relay_repeats_and_loses_nothing(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await add(database, range(60))
    for turns in range(0, 120, 3):
        relay = relay_of(path, broker, max_batch_records=1)
        task = asyncio.create_task(relay.run())
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0005 * turns)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await drain(relay_of(path, broker), database)
    assert values(broker) == [b"%d" % number for number in range(60)]


class SlowToBegin:
    """A connection whose transactions begin when ``may_begin`` is set."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.called, self.may_begin = threading.Event(), threading.Event()

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql.startswith("BEGIN"):
            self.called.set()
            assert self.may_begin.wait(30)
        return self._connection.execute(sql, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


async def test_a_cancelled_take_over_has_ended_when_the_store_is_closed(
    path: str, database: sqlite3.Connection
) -> None:
    former, later = SqliteDatabase(path), SqliteDatabase(path)
    await former.open()
    await Steps(former, "r", 1).set_up()
    slow = SlowToBegin(former._connection)
    former._connection = cast("sqlite3.Connection", slow)
    taking = asyncio.create_task(Steps(former, "r", 1).take_over(0, "former", 0))
    await asyncio.to_thread(slow.called.wait, 30)
    taking.cancel()
    asyncio.get_running_loop().call_later(0.05, slow.may_begin.set)
    await former.close()
    await later.open()
    await Steps(later, "r", 1).take_over(0, "later", 0)
    await later.close()
    slow.may_begin.set()
    former._thread.shutdown(wait=True)
    assert database.execute("SELECT owner FROM aioprod_outbox_relay").fetchone() == ("later",)


async def test_a_relay_that_lost_its_lease_sends_nothing(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await add(database, range(3))
    first = relay_of(path, broker)
    paused, going_on = asyncio.Event(), asyncio.Event()

    def pause_before_commit(shard: Shard) -> None:
        commit = shard._producer.commit_transaction

        async def commit_later() -> None:
            paused.set()
            await going_on.wait()
            await commit()

        shard._producer.commit_transaction = commit_later  # type: ignore[method-assign]

    async def paused_beat() -> None:
        if paused.is_set():
            await going_on.wait()
        await beat()

    beat, first._beat = first._beat, paused_beat  # type: ignore[method-assign]
    change_shards(first, pause_before_commit)
    await first.start()
    async with asyncio.timeout(10):
        await paused.wait()
    second = relay_of(path, broker)
    await drain(second, database)
    assert second.records_sent == 3
    going_on.set()
    await add(database, range(3, 5))
    await until(lambda: not rows(database))
    await first.stop()
    assert first.records_sent == 2
    assert values(broker) == [b"%d" % number for number in range(5)]


async def test_the_owner_alone_takes_steps(path: str, database: sqlite3.Connection) -> None:
    opened = make_database(path)
    await opened.open()
    steps = Steps(opened, "r", 1)
    await steps.set_up()
    former = await steps.take_over(0, "former", 0)
    later = await steps.take_over(0, "later", 10_000)
    assert former and later and await steps.take_over(0, "third", 0) is None
    await add(database, range(1))
    with pytest.raises(TakenOver):
        await steps.take(former, Step(1, (), (), 10, 1000))
    assert len(await steps.take(later, Step(1, (), (), 10, 1000))) == 1
    await opened.close()


async def test_only_the_rows_of_the_batch_are_deleted(
    path: str, database: sqlite3.Connection
) -> None:
    """With PostgreSQL, a row may be committed after rows with higher ids."""
    opened = make_database(path)
    await opened.open()
    steps = Steps(opened, "r", 1)
    await steps.set_up()
    claim = await steps.take_over(0, "one", 10_000)
    assert claim is not None
    await add(database, range(4))
    with database:
        database.execute("UPDATE aioprod_outbox SET id = 7 WHERE id = 2")
    batch = [row[0] for row in await steps.take(claim, Step(1, (), (), 3, 1000))]
    with database:
        database.execute("UPDATE aioprod_outbox SET id = 2 WHERE id = 7")
    after = [row[0] for row in await steps.take(claim, Step(2, batch, (), 3, 1000))]
    assert (batch, after) == ([1, 3, 4], [2])
    assert await steps.take(claim, Step(3, after, (), 3, 1000)) == [] and not rows(database)
    await opened.close()


async def test_a_database_that_lost_commits_is_refused(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await add(database, range(3))
    await drain(relay_of(path, broker, max_batch_records=1), database)
    with database:
        database.execute("UPDATE aioprod_outbox_relay SET batch = 1, ids = ''")
    with pytest.raises(OutboxError, match="the database knows batch 1 only"):
        await relay_of(path, broker).run()


async def test_the_end_of_a_relay_in_the_background_is_logged(
    path: str, broker: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    relay = relay_of(path, broker)  # its database has no tables
    await relay.start()
    await until(lambda: not relay.healthy)
    assert "outbox relay ended, no rows are sent any more: database" in caplog.text
    with pytest.raises(OutboxError, match="no such table"):
        await relay.stop()


async def test_positions_of_former_tables_do_not_count(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await add(database, range(3))
    await drain(relay_of(path, broker, max_batch_records=1), database)
    with database:
        database.execute("DELETE FROM aioprod_outbox_relay")
    await add(database, range(3, 5))
    await drain(relay_of(path, broker), database)
    assert values(broker) == [b"%d" % number for number in range(5)]


async def test_a_record_arrives_as_it_was_added(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 4)
    headers = [("a", b"\xff\x00"), ("a", None), ("b", b"")]
    with database:
        await Outbox(value_serializer=JsonSerializer()).add(
            database, TOPIC, {"x": 1}, key=b"\x00k", partition=3, timestamp_ms=5, headers=headers
        )
        await Outbox().add(database, TOPIC, None, key=b"k", partition=3)
    await drain(relay_of(path, broker), database)
    first, second = broker.records(TOPIC, 3, committed_only=True)
    assert (first.key, first.value, first.timestamp) == (b"\x00k", b'{"x":1}', 5)
    assert list(first.headers) == headers
    assert second.value is None


async def test_what_can_not_be_sent_fails_the_call(database: sqlite3.Connection) -> None:
    with pytest.raises(SerializationError), database:
        await Outbox().add(database, TOPIC, "text")
    with pytest.raises(OutboxError, match="topic 'no topic': must be"), database:
        await Outbox().add(database, "no topic", b"")
    with pytest.raises(OutboxError, match="connection of type int"):
        await Outbox().add(1, TOPIC, b"")
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as alone:
        with pytest.raises(OutboxError, match="execute BEGIN first"):
            await Outbox().add(alone, TOPIC, b"")
    with database:
        with pytest.raises(SerializationError):
            await Outbox().add_many(
                database, [ProducerRecord(TOPIC, b"1"), ProducerRecord(TOPIC, "2")]
            )
        for name, wrong in (
            ("partition", -1), ("partition", "1"), ("partition_key", "k"), ("timestamp_ms", 1.5),
            ("headers", {"h": "text"}), ("headers", [("h",)]), ("key", "text"),
        ):  # fmt: skip
            with pytest.raises(SerializationError):
                await Outbox().add(database, TOPIC, b"", **{name: wrong})  # type: ignore[arg-type]
            with pytest.raises(SerializationError):
                record = ProducerRecord(TOPIC)._replace(**{name: wrong})  # type: ignore[arg-type]
                Outbox().add_blocking(database, [record])
    assert rows(database) == 0


async def test_a_serializer_that_asks_a_registry_needs_an_event_loop(
    database: sqlite3.Connection,
) -> None:
    class Asking:
        asked = False

        def __call__(self, topic: str, headers: Headers, data: Any) -> bytes:
            if not self.asked:
                raise NotPrepared(self._ask)
            return bytes(data)

        async def _ask(self) -> None:
            await asyncio.sleep(0)
            self.asked = True

    outbox = Outbox(value_serializer=Asking())
    with pytest.raises(OutboxError, match="has to ask a registry; use 'await"), database:
        outbox.add_blocking(database, [ProducerRecord(TOPIC, b"1")])
    with database:
        await outbox.add(database, TOPIC, b"2")
        outbox.add_blocking(database, [ProducerRecord(TOPIC, b"3")])
    assert database.execute("SELECT value FROM aioprod_outbox").fetchall() == [(b"2",), (b"3",)]


@pytest.mark.parametrize(("settings", "first_ms"), [({}, 5), ({"retry_backoff_ms": 60}, 60)])
async def test_it_waits_only_milliseconds_for_the_end_of_the_last_transaction(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    first_ms: int,
) -> None:
    pauses_ms: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses_ms.append(seconds * 1000)

    monkeypatch.setattr(calls, "retry", partial(retry, sleep=sleep))
    busy = fail(ErrorCode.CONCURRENT_TRANSACTIONS)
    broker.on(ApiKey.TXN_OFFSET_COMMIT, busy, times=3)
    broker.create_topic(TOPIC, 1)
    await add(database, range(4))
    await drain(relay_of(path, broker, **settings), database)
    assert values(broker) == [b"0", b"1", b"2", b"3"]
    # The backoff doubles, and varies by 20 %.
    for number, pause_ms in enumerate(pauses_ms):
        assert pause_ms == pytest.approx(first_ms * 2**number, rel=0.21)
    assert len(pauses_ms) == 3


async def test_a_rolled_back_row_is_not_sent(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    await add(database, range(1))
    with pytest.raises(Killed), database:
        await Outbox().add(database, TOPIC, b"never")
        raise Killed
    await drain(relay_of(path, broker), database)
    assert values(broker) == [b"0"]


async def test_rows_of_aiosqlite(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    async with aiosqlite.connect(path) as connection:
        await Outbox().add(connection, TOPIC, b"committed")
        await connection.commit()
        await Outbox().add(connection, TOPIC, b"rolled back")
        await connection.rollback()
    async with aiosqlite.connect(path, isolation_level=None) as connection:
        with pytest.raises(OutboxError, match="execute BEGIN first"):
            await Outbox().add(connection, TOPIC, b"alone")
    await drain(relay_of(path, broker), database)
    assert values(broker) == [b"committed"]


async def test_a_batch_ends_at_its_bytes(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic(TOPIC, 1)
    with database:
        await Outbox().add_many(database, [ProducerRecord(TOPIC, b"x" * 600)] * 4)
    relay = relay_of(path, broker, max_batch_bytes=1_000)
    await drain(relay, database)
    assert len(values(broker)) == 4
    # Two of two rows, and the end.
    assert database.execute("SELECT batch FROM aioprod_outbox_relay").fetchone() == (3,)


async def test_wrong_arguments(path: str) -> None:
    for arguments in ({"poll_interval_ms": 0}, {"max_batch_records": 0}, {"name": 1}):
        with pytest.raises(ConfigError, match=next(iter(arguments))):
            OutboxRelay(path, **arguments)  # type: ignore[arg-type]
    with pytest.raises(OutboxError, match=r"must be postgresql://\.\.\. or a file"):
        OutboxRelay("mysql://host/db")
    with pytest.raises(ConfigError, match="dialect"):
        ddl("oracle")  # type: ignore[arg-type]
    with pytest.raises(OutboxError, match="no such table"):
        await _take_over(path)


async def _take_over(path: str) -> None:
    opened = make_database(path)
    await opened.open()
    try:
        await Steps(opened, "a", 1).take_over(0, "b", 0)
    finally:
        await opened.close()

"""A record's effects and the position after it are in the database, both or neither."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from aioprod import Admin, ConfigError, Producer, ProducerRecord, TopicPartition
from aioprod.outbox import Outbox
from aioprod.outbox import ddl as outbox_ddl
from aioprod.processing import BatchProcessor, ProcessingError, Processor, Record, RetryPolicy
from aioprod.processing.inbox import Inbox, InboxError, ddl, first_time
from aioprod.testing import EmbeddedCluster, ThreadedCluster
from tests.processing.inbox_processor import fill
from tests.waiting import until

Raw = Record[bytes | None, bytes | None]
ORDERS = [TopicPartition("orders", number) for number in range(2)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(ddl("sqlite") + outbox_ddl("sqlite"))
        connection.execute("CREATE TABLE effects (part integer, position integer, value text)")
        connection.commit()
        yield connection


def effects(database: sqlite3.Connection) -> list[int]:
    rows = database.execute("SELECT value FROM effects").fetchall()
    return sorted(int(value) for (value,) in rows)


def write(inbox: Inbox, record: Raw) -> None:
    values = (record.partition, record.offset, (record.value or b"").decode())
    inbox.connection.execute("INSERT INTO effects VALUES (?, ?, ?)", values)


def processor(path: str, broker: EmbeddedCluster, handle: Any = None, **more: Any) -> Any:
    inbox = Inbox(path)

    async def simple(record: Raw) -> None:
        write(inbox, record)

    kind = more.pop("kind", Processor)
    return kind(
        simple if handle is None else lambda given: handle(inbox, given),
        "orders",
        **{
            "bootstrap_servers": broker.bootstrap_servers,
            "group_id": "g",
            "order": "partition",
            "guarantee": "exactly_once_in_database",
            "inbox": inbox,
            **more,
        },
    )


async def run_until_done(running: Any, database: sqlite3.Connection, number: int) -> None:
    async with asyncio.timeout(30), running:
        await until(lambda: len(effects(database)) >= number)


async def test_positions_are_those_of_the_database(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(20))
    await run_until_done(processor(path, broker), database, 20)
    rows = database.execute("SELECT partition, position FROM aioprod_inbox ORDER BY 1").fetchall()
    assert rows == [(0, 10), (1, 10)]
    async with Admin(broker.bootstrap_servers) as admin:
        # The group's offsets do not count: neither lower nor higher ones.
        offsets = {ORDERS[0]: 3, ORDERS[1]: 14}
        await fill(broker.bootstrap_servers, range(20, 30))
        (await admin.alter_consumer_group_offsets("g", offsets)).check()
    await run_until_done(processor(path, broker), database, 30)
    assert effects(database) == list(range(30))


async def test_records_of_an_aborted_transaction_are_left_out(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    """An outbox's relay sends them again."""
    broker.create_topic("orders", 2)
    async with Producer(broker.bootstrap_servers, transactional_id="relay") as producer:
        for number in range(3):
            with suppress(ConnectionError):
                async with producer.transaction():
                    await producer.send_and_wait("orders", b"%d" % number, partition=0)
                    if number == 1:
                        raise ConnectionError
    await run_until_done(processor(path, broker), database, 2)
    assert effects(database) == [0, 2]
    with pytest.raises(ConfigError, match="isolation_level"):
        processor(path, broker, consumer={"isolation_level": "read_uncommitted"})


async def test_a_failed_call_leaves_nothing_and_a_dead_letter_moves_on(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    broker.create_topic("orders.dead", 1)
    calls: Counter[bytes | None] = Counter()

    async def handle(inbox: Inbox, record: Raw) -> None:
        calls[record.value] += 1
        write(inbox, record)
        if record.value == b"3" or (record.value == b"2" and calls[b"2"] == 1):
            raise ValueError("broken")

    await fill(broker.bootstrap_servers, range(4))
    given: dict[str, Any] = {
        "dead_letter_topic": "orders.dead",
        "retry": RetryPolicy(attempts=2, backoff_ms=1),
    }
    async with asyncio.timeout(30), processor(path, broker, handle, **given):
        await until(lambda: broker.records("orders.dead") and len(effects(database)) == 3)
        await until(
            lambda: database.execute(
                "SELECT position FROM aioprod_inbox ORDER BY partition"
            ).fetchall() == [(2,), (2,)]
        )  # fmt: skip
    assert effects(database) == [0, 1, 2] and (calls[b"2"], calls[b"3"]) == (2, 2)
    # The dead letter was the last record: it is not handled again.
    await fill(broker.bootstrap_servers, range(4, 6))
    await run_until_done(processor(path, broker, handle, **given), database, 5)
    assert calls[b"3"] == 2 and len(broker.records("orders.dead")) == 1


@pytest.mark.parametrize("when", ["between calls", "during a call"])
async def test_a_member_that_lost_its_partition_can_not_commit(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    when: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(1))

    async def handle(inbox: Inbox, record: Raw) -> None:
        if record.value == b"2" and when == "during a call":
            # As another member does; SQLite allows it only in this transaction.
            inbox.connection.execute("UPDATE aioprod_inbox SET epoch = epoch + 1")
        write(inbox, record)

    member = processor(path, broker, handle, drain_timeout_ms=100)
    async with asyncio.timeout(30), member:
        await until(lambda: effects(database) == [0])
        if when == "between calls":
            with database:
                database.execute("UPDATE aioprod_inbox SET epoch = epoch + 1")
        await fill(broker.bootstrap_servers, range(2, 3))
        await until(lambda: "another member has taken over orders-0" in caplog.text)
        assert effects(database) == [0]
    await run_until_done(processor(path, broker), database, 2)
    assert effects(database) == [0, 2]


async def test_a_batch_is_one_transaction(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    sizes = []

    async def handle(inbox: Inbox, records: Sequence[Raw]) -> None:
        sizes.append(len(records))
        assert len({record.partition for record in records}) == 1
        for record in records:
            write(inbox, record)
            if record.value == b"7" and len(sizes) < 3:
                raise ValueError("once")

    await fill(broker.bootstrap_servers, range(40))
    retry = RetryPolicy(backoff_ms=1)
    running = processor(path, broker, handle, kind=BatchProcessor, retry=retry)
    await run_until_done(running, database, 40)
    assert effects(database) == list(range(40)) and max(sizes) > 1


async def test_a_topic_that_was_created_again_begins_again(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(10))
    await run_until_done(processor(path, broker), database, 10)
    async with Admin(broker.bootstrap_servers) as admin:
        await admin.delete_topics("orders")
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(10, 14))
    await run_until_done(processor(path, broker), database, 14)
    assert effects(database) == list(range(14))


async def test_a_topic_that_lost_records_is_refused(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(10))
    await run_until_done(processor(path, broker), database, 10)
    with database:
        database.execute("UPDATE aioprod_inbox SET position = 9 WHERE partition = 1")
    with pytest.raises(InboxError, match=r"orders-1 ends at offset 5, and .* position is 9"):
        await processor(path, broker).run()


async def test_cancelled_anywhere_each_record_is_handled_once(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)
    await fill(broker.bootstrap_servers, range(400))
    fast = {"session_timeout_ms": 6_000}
    for turn in range(6):
        running = asyncio.create_task(processor(path, broker, consumer=fast).run())
        done = len(effects(database))
        async with asyncio.timeout(30):
            await until(partial(_has_more_effects, database, done))
        await asyncio.sleep(0.003 * turn)
        for _ in range(2):  # the second one ends it at once
            running.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([running])
    await run_until_done(processor(path, broker), database, 400)
    assert effects(database) == list(range(400))


def _has_more_effects(database: sqlite3.Connection, than: int) -> bool:
    return len(effects(database)) > than


async def test_a_locked_database_is_retried(
    broker: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("aioprod.processing.inbox.databases._BUSY_S", 0.05)
    broker.create_topic("orders", 2)
    async with asyncio.timeout(30), processor(path, broker, retry=RetryPolicy(attempts=1)):
        await until(lambda: len(database.execute("SELECT * FROM aioprod_inbox").fetchall()) == 2)
        database.execute("BEGIN IMMEDIATE")
        await fill(broker.bootstrap_servers, range(4))
        await until(lambda: "the database fails, retrying" in caplog.text)
        database.execute("ROLLBACK")
        await until(lambda: len(effects(database)) == 4)
    assert effects(database) == list(range(4))


async def test_outputs_go_through_the_outbox(
    broker: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    broker.create_topic("orders", 2)

    async def returns(inbox: Inbox, record: Raw) -> ProducerRecord:
        return ProducerRecord("out", record.value)

    async def adds(inbox: Inbox, record: Raw) -> None:
        write(inbox, record)
        await Outbox().add(inbox.connection, "out", record.value)

    await fill(broker.bootstrap_servers, range(1))
    with pytest.raises(ProcessingError) as stopped:
        await processor(path, broker, returns, retry=RetryPolicy(attempts=1)).run()
    assert "must return None with an inbox" in str(stopped.value.__cause__)
    await run_until_done(processor(path, broker, adds), database, 1)
    assert database.execute("SELECT value FROM aioprod_outbox").fetchall() == [(b"0",)]


def test_an_inbox_serves_one_event_loop_after_the_other(
    path: str, database: sqlite3.Connection
) -> None:
    inbox = Inbox(path)

    async def take_over() -> int:
        _, epoch = await inbox._take_over("g", TopicPartition("orders", 0), "id")
        return epoch

    async def epochs() -> list[int]:
        await inbox._open(1)
        found = list(await asyncio.gather(take_over(), take_over()))
        await inbox._close()
        return found

    assert asyncio.run(epochs()) + asyncio.run(epochs()) == [1, 2, 3, 4]


async def test_without_tables(broker: EmbeddedCluster, path: str) -> None:
    broker.create_topic("orders", 2)
    with pytest.raises(InboxError, match=r"no such table: aioprod_inbox; are the inbox's tables"):
        await processor(path, broker).run()


def test_settings_that_contradict_each_other(path: str) -> None:
    given: dict[str, Any] = {"group_id": "g", "guarantee": "exactly_once_in_database"}

    async def handle(record: Raw) -> None:
        pass

    with pytest.raises(ConfigError, match="needs an inbox"):
        Processor(handle, "orders", order="partition", **given)
    with pytest.raises(ConfigError, match="needs an inbox"):
        Processor(handle, "orders", group_id="g", inbox=Inbox(path))
    with pytest.raises(ConfigError, match="order='key' with guarantee="):
        Processor(handle, "orders", inbox=Inbox(path), **given)
    loose = RetryPolicy(keep_order=False)
    with pytest.raises(ConfigError, match="keep_order=False"):
        Processor(handle, "orders", order="partition", inbox=Inbox(path), retry=loose, **given)
    with pytest.raises(InboxError, match=r"database mysql://...: must be"):
        Inbox("mysql://shop")
    with pytest.raises(InboxError, match=r"inbox.connection: is for the handler"):
        _ = Inbox(path).connection


async def test_the_first_time_of_an_id(path: str, database: sqlite3.Connection) -> None:
    with database:
        assert await first_time(database, "mails", "1")
        assert not await first_time(database, "mails", "1")
        assert await first_time(database, "others", "1")
    assert await first_time(database, "mails", "2")
    database.rollback()
    async with aiosqlite.connect(path) as connection:
        assert await first_time(connection, "mails", "2")
        assert not await first_time(connection, "mails", "1")
        await connection.commit()
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as alone:
        with pytest.raises(InboxError, match="execute BEGIN first"):
            await first_time(alone, "mails", "1")
    with pytest.raises(InboxError, match="connection of type int"):
        await first_time(1, "mails", "1")


PROGRAM = """
import asyncio, sys
from aioprod.processing import Processor
from aioprod.processing.inbox import Inbox

inbox = Inbox(sys.argv[2])

async def handle(record):
    values = (record.partition, record.offset, record.value.decode())
    inbox.connection.execute("INSERT INTO effects VALUES (?, ?, ?)", values)
    await asyncio.sleep(0.001)

processor = Processor(
    handle, "orders", bootstrap_servers=sys.argv[1], group_id="g", order="partition",
    guarantee="exactly_once_in_database", inbox=inbox,
    consumer={"session_timeout_ms": 6000, "group_instance_id": "one"},
)
asyncio.run(processor.run())
"""


def test_killed_in_the_middle(
    threaded_broker: ThreadedCluster, path: str, database: sqlite3.Connection
) -> None:
    threaded_broker.create_topic("orders", 2)
    number = 300
    asyncio.run(fill(threaded_broker.bootstrap_servers, range(number)))
    done = 0
    for wanted in (1, number // 2, number):
        command = [sys.executable, "-c", PROGRAM, threaded_broker.bootstrap_servers, path]
        process = subprocess.Popen(command)
        try:
            asyncio.run(_until_more(database, max(done + 1, wanted), process))
        finally:
            process.kill()
            process.wait()
        done = len(effects(database))
    assert effects(database) == list(range(number))


async def _until_more(
    database: sqlite3.Connection, wanted: int, process: subprocess.Popen[bytes]
) -> None:
    async with asyncio.timeout(60):
        while len(effects(database)) < wanted:
            assert process.poll() is None
            await asyncio.sleep(0.01)

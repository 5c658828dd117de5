"""Rows that Kafka refuses: they stop their key, or are set aside, and all others are sent."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from aioprod import (
    AbortableTransactionError,
    Admin,
    BrokerError,
    ConfigError,
    ErrorCode,
    ProducerRecord,
)
from aioprod.admin import ConfigResource
from aioprod.outbox import Outbox, OutboxAdmin, OutboxRelay
from aioprod.outbox import refusals as refusals_module
from aioprod.outbox.refusals import refusals
from aioprod.outbox.schema import COLUMNS
from aioprod.testing import ApiKey, EmbeddedCluster, fail
from tests.outbox.test_relay import Killed, kill_at, relay_of, rows
from tests.waiting import until

TOPIC = "orders"
FUTURE_MS = 2**42
LARGE = b"x" * 3_000


@pytest.fixture
async def strict() -> AsyncIterator[EmbeddedCluster]:
    """A broker that does not create topics, with one of two partitions."""
    async with EmbeddedCluster(auto_create_topics=False) as running:
        running.create_topic(TOPIC, 2, {"max.message.bytes": "2000"})
        yield running


def record(key: bytes, value: bytes, **more: Any) -> ProducerRecord[bytes, bytes]:
    return ProducerRecord(more.pop("topic", TOPIC), value, key, **more)


async def add(database: sqlite3.Connection, *records: ProducerRecord[bytes, bytes]) -> None:
    with database:
        await Outbox().add_many(database, records)


@asynccontextmanager
async def running(relay: OutboxRelay, sent: int) -> AsyncIterator[None]:
    async with asyncio.timeout(30), relay:
        await until(lambda: relay.records_sent >= sent or not relay.healthy)
        yield
    assert relay.records_sent == sent


def by_key(broker: EmbeddedCluster, topic: str = TOPIC) -> dict[bytes | None, list[bytes | None]]:
    found: dict[bytes | None, list[bytes | None]] = {}
    for each in broker.records(topic, committed_only=True):
        found.setdefault(each.key, []).append(each.value)
    return found


def refused(database: sqlite3.Connection) -> list[tuple[int, str]]:
    return database.execute("SELECT id, stops FROM aioprod_outbox_refused ORDER BY id").fetchall()


POISON: dict[str, dict[str, Any]] = {
    "too large": {"value": LARGE},
    "timestamp": {"timestamp_ms": FUTURE_MS},  # the broker refuses the batch
    "partition": {"partition": 7},
}


@pytest.mark.parametrize("poison", POISON)
async def test_a_refused_row_stops_only_its_key(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection, poison: str
) -> None:
    bad = {"key": b"bad", "value": b"2", **POISON[poison]}
    good = [record(b"k%d" % (number % 5), b"%d" % number) for number in range(20)]
    await add(
        database, record(b"bad", b"1"), *good[:10], record(**bad), record(b"bad", b"3"), *good[10:]
    )
    async with running(relay_of(path, strict), 21):
        await until(lambda: refused(database))
    assert by_key(strict) == {
        b"bad": [b"1"],
        **{b"k%d" % key: [b"%d" % (key + 5 * turn) for turn in range(4)] for key in range(5)},
    }
    async with OutboxAdmin(path) as admin:
        (row,) = await admin.refused()
        assert (row.id, row.topic, row.key, row.stops) == (12, TOPIC, b"bad", "key")
        assert row.since_ms > 0 and row.retry_ms is None and "Error: " in row.reason
        backlog = await admin.backlog()
        assert (backlog.rows, backlog.refused) == (2, 1) and backlog.oldest_age_ms > 0
        assert await admin.discard([11, 13]) == []  # neither is refused
        assert await admin.discard([12]) == [12]
        assert await admin.refused() == []
    async with running(relay_of(path, strict), 1):
        pass
    assert by_key(strict)[b"bad"] == [b"1", b"3"]
    assert rows(database) == 0


async def test_a_row_that_is_retried_is_sent_before_those_that_wait(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    await add(database, *(record(b"k", value) for value in (b"1", LARGE, b"3", b"4")))
    relay = relay_of(path, strict)
    async with (
        asyncio.timeout(30),
        relay,
        OutboxAdmin(path) as admin,
        Admin(strict.bootstrap_servers) as kafka,
    ):
        await until(lambda: relay.records_sent == 1)
        await until(lambda: refused(database) == [(2, "key")])
        assert await admin.retry([1, 2]) == [2]
        await until(lambda: refused(database) == [(2, "key")])  # Kafka refuses it again
        topic = ConfigResource.topic(TOPIC)
        await kafka.incremental_alter_configs({topic: {"max.message.bytes": 9000}})
        assert await admin.retry() == [2]
        await until(lambda: relay.records_sent == 4)
    assert by_key(strict) == {b"k": [b"1", LARGE, b"3", b"4"]}


async def test_a_refused_row_is_set_aside(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    await add(database, record(b"k", b"1"), record(b"k", LARGE), record(b"k", b"3"))
    async with running(relay_of(path, strict, on_refused="set_aside"), 2):
        await until(lambda: refused(database) == [(2, "row")])
    assert by_key(strict) == {b"k": [b"1", b"3"]}
    strict.create_topic("other", 1)
    with database:
        database.execute("UPDATE aioprod_outbox SET topic = 'other', value = X'00'")
    async with OutboxAdmin(path) as admin:
        assert await admin.retry() == [2]
    async with running(relay_of(path, strict), 1):
        pass
    assert rows(database) == 0 and refused(database) == []


async def test_a_topic_that_does_not_exist_stops_its_rows_until_it_is_created(
    strict: EmbeddedCluster,
    path: str,
    database: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusals_module, "RETRY_TOPIC_MS", 50)
    monkeypatch.setattr("aioprod.outbox.shard._TOPIC_LIMIT_S", 0.05)
    await add(
        database,
        *(
            record(b"k", b"%d" % number, topic=("missing", TOPIC)[number % 2])
            for number in range(8)
        ),
    )
    relay = relay_of(path, strict)
    async with asyncio.timeout(30), relay:
        await until(lambda: by_key(strict) == {b"k": [b"1", b"3", b"5", b"7"]})
        await until(lambda: refused(database) == [(1, "topic")])
        strict.create_topic("missing", 1)
        await until(lambda: relay.records_sent == 8)
    assert by_key(strict, "missing") == {b"k": [b"0", b"2", b"4", b"6"]}
    assert refused(database) == [] and rows(database) == 0


async def test_malformed_rows_and_topics_of_other_programs(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    await add(database, *(record(b"%d" % number, b"v") for number in range(6)))
    with database:
        for number, headers in enumerate(("{", "5", '[["a"]]', '[["a", "%"]]', "[[1, null]]"), 1):
            database.execute(
                "UPDATE aioprod_outbox SET headers = ? WHERE id = ?", (headers, number)
            )
        database.execute(
            "INSERT INTO aioprod_outbox (topic, timestamp_ms) VALUES ('no topic', 0), ('', 1)"
        )
    async with running(relay_of(path, strict), 1):
        await until(lambda: len(refused(database)) == 7)
    assert by_key(strict) == {b"5": [b"v"]}
    assert {stops for _, stops in refused(database)} == {"key", "topic"}


def row(number: int, topic: str) -> tuple[Any, ...]:
    return number, *({"topic": topic}.get(name) for name in COLUMNS)


def test_the_error_of_a_transaction_does_not_name_its_record() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    batch = [row(1, TOPIC), row(2, "secret"), row(3, TOPIC)]
    others = AbortableTransactionError(code, "secret-0: a record was not written")
    found = refusals(batch, {0: others, 1: BrokerError(code), 2: others}, "stop_key")
    assert found is not None and [(each.id, each.stops) for each in found] == [(2, "topic")]
    # No record has an error of its own: fewer rows in a transaction show which it is.
    assert refusals(batch, {0: others, 1: others}, "stop_key") is None
    alone = refusals([row(2, "secret")], {0: others}, "stop_key")
    assert alone is not None and [(each.topic, each.stops) for each in alone] == [
        ("secret", "topic")
    ]


async def test_a_topic_that_is_not_authorized_stops_its_rows(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    strict.create_topic("secret", 1)
    strict.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic="secret"))
    await add(database, *(record(b"k", b"v", topic=("secret", TOPIC)[n % 2]) for n in range(6)))
    async with running(relay_of(path, strict), 3):
        await until(lambda: refused(database) == [(1, "topic")])
    async with OutboxAdmin(path) as admin:
        (row,) = await admin.refused()
    assert "TOPIC_AUTHORIZATION_FAILED" in row.reason and row.retry_ms is not None


async def test_a_relay_that_dies_while_rows_are_refused_repeats_and_loses_nothing(
    strict: EmbeddedCluster, path: str, database: sqlite3.Connection
) -> None:
    expected: list[bytes] = []
    kills = 0
    # The batch is aborted at 10, its first half at 17.
    for place in (10, 11, 12, 15, 17, 18, 21):
        bad = record(b"k", b"", timestamp_ms=FUTURE_MS)  # which of a batch is unknown at first
        good = [b"%d" % (3 * place + number) for number in range(3)]
        expected += good
        await add(database, record(b"k", good[0]), bad, *(record(b"k", each) for each in good[1:]))
        relay = relay_of(path, strict, on_refused="set_aside")
        was_killed, producers = kill_at(relay, place)
        try:
            async with asyncio.timeout(30), relay:
                await until(partial(_only_refused, database, relay))
        except Killed:
            relay = relay_of(path, strict, on_refused="set_aside")
            async with asyncio.timeout(30), relay:
                await until(partial(_only_refused, database, relay))
        for producer in producers:
            await producer.close(0)
        assert by_key(strict) == {b"k": expected}, place
        async with OutboxAdmin(path) as admin:
            (refused_row,) = await admin.refused()
            assert await admin.discard([refused_row.id]) == [refused_row.id]
        kills += was_killed()
    assert kills > 4


def _only_refused(database: sqlite3.Connection, relay: OutboxRelay) -> bool:
    return rows(database) == len(refused(database)) == 1 or not relay.healthy


async def test_wrong_ids(path: str, database: sqlite3.Connection) -> None:
    async with OutboxAdmin(path) as admin:
        for wrong in ([0], ["1"], [True], [2**63]):
            with pytest.raises(ConfigError, match="must be the id of a row"):
                await admin.discard(wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="limit"):
            await admin.refused(0)

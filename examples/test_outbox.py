"""Tests of outbox.py with aioprod's pytest fixtures: a topic, a consumer, and a broker in the test
process that fails on demand.

pip install aioprod pytest pytest-asyncio
pytest test_outbox.py
pytest test_outbox.py --kafka=real  # on a real broker, without the test that makes it fail
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import outbox
import pytest

from aioprod import ErrorCode
from aioprod.outbox import OutboxAdmin, OutboxRelay
from aioprod.testing import ApiKey, EmbeddedCluster, fail
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "orders.db")


@pytest.fixture
def database(path: str) -> Iterator[sqlite3.Connection]:
    with closing(outbox.connect(path)) as connection:
        yield connection


@pytest.mark.asyncio
async def test_events_arrive_in_order(
    path: str,
    database: sqlite3.Connection,
    consumer: TopicConsumer,
    kafka_broker: EmbeddedCluster,
    kafka_topic: str,
) -> None:
    for item in ("tea", "milk", "sugar"):
        await outbox.place_order(database, item, kafka_topic)
    async with OutboxRelay(path, kafka_broker.bootstrap_servers, name=kafka_topic):
        records = [await consumer.getone() for _ in range(3)]
    assert [(record.key, record.value) for record in records] == [
        (b"1", b"tea"),
        (b"2", b"milk"),
        (b"3", b"sugar"),
    ]
    assert database.execute("SELECT count(*) FROM aioprod_outbox").fetchone() == (0,)


@pytest.mark.asyncio
async def test_an_event_that_kafka_refuses_is_kept(
    path: str,
    database: sqlite3.Connection,
    consumer: TopicConsumer,
    kafka_broker: EmbeddedCluster,
    kafka_topic: str,
) -> None:
    await outbox.place_order(database, "tea", kafka_topic)
    kafka_broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
    servers = kafka_broker.bootstrap_servers
    async with OutboxRelay(path, servers, name=kafka_topic), OutboxAdmin(path) as admin:
        async with asyncio.timeout(30):
            while not (refused := await admin.refused()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "INVALID_RECORD" in refused[0].reason
        assert kafka_broker.records(kafka_topic, committed_only=True) == []
        await admin.retry()
        assert (await consumer.getone()).value == b"tea"
    assert len(kafka_broker.records(kafka_topic, committed_only=True)) == 1


@pytest.mark.asyncio
async def test_an_order_that_fails_leaves_no_event(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        await outbox.place_order(database, None)  # type: ignore[arg-type]
    assert database.execute("SELECT count(*) FROM aioprod_outbox").fetchone() == (0,)

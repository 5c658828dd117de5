"""Tests of outbox.py with the pytest fixtures of aioprod: a topic, a consumer, and a broker in the
test's process that fails on demand.

pip install aioprod pytest pytest-asyncio
pytest test_outbox.py
pytest test_outbox.py --kafka=real  # on a real broker, without the test that makes it fail
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import outbox
import pytest

from aioprod import ErrorCode, Producer
from aioprod.testing import ApiKey, EmbeddedCluster, fail
from aioprod.testing.pytest_plugin.topic_consumer import TopicConsumer


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(outbox.connect(str(tmp_path / "orders.db"))) as connection:
        yield connection


@pytest.fixture
def kafka_producer_settings() -> dict[str, Any]:
    """Settings of the fixture `producer`: a transactional id that no other test uses."""
    return {"transactional_id": f"outbox-{uuid.uuid4()}"}


@pytest.mark.asyncio
async def test_events_arrive_in_order(
    database: sqlite3.Connection, producer: Producer, consumer: TopicConsumer, kafka_topic: str
) -> None:
    for item in ("tea", "milk", "sugar"):
        outbox.place_order(database, item)
    assert await outbox.relay_batch(database, producer, kafka_topic) == 3
    records = [await consumer.getone() for _ in range(3)]
    assert [(record.key, record.value) for record in records] == [
        (b"1", b"tea"),
        (b"2", b"milk"),
        (b"3", b"sugar"),
    ]
    assert await outbox.relay_batch(database, producer, kafka_topic) == 0


@pytest.mark.asyncio
async def test_events_are_kept_until_kafka_has_them(
    database: sqlite3.Connection,
    producer: Producer,
    kafka_broker: EmbeddedCluster,
    kafka_topic: str,
) -> None:
    outbox.place_order(database, "tea")
    kafka_broker.on(ApiKey.PRODUCE, fail(ErrorCode.INVALID_RECORD), times=1)
    assert await outbox.relay_batch(database, producer, kafka_topic) == 0
    assert kafka_broker.records(kafka_topic, committed_only=True) == []
    assert await outbox.relay_batch(database, producer, kafka_topic) == 1
    records = kafka_broker.records(kafka_topic, committed_only=True)
    assert [record.value for record in records] == [b"tea"]


def test_an_order_that_fails_leaves_no_event(database: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        outbox.place_order(database, None)  # type: ignore[arg-type]
    assert database.execute("SELECT count(*) FROM outbox").fetchone() == (0,)

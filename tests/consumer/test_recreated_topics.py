"""A topic that is deleted and created again: no record of the new one is skipped or read twice,
however its partitions are read; ``auto_offset_reset`` decides where they begin, or the call raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aioprod import (
    Consumer,
    InvalidOffsetError,
    KafkaError,
    RebalanceListener,
    TopicPartition,
    TopicRecreatedError,
)
from aioprod.testing import EmbeddedCluster
from tests.consumer.recreated import (
    NEW,
    Got,
    create_again,
    places,
    topic_of,
)

WAYS = {
    "assigned": {},
    "assigned, with a group": {"group_id": "readers"},
    "subscribed": {},
    "classic group": {"group_id": "readers", "group_protocol": "classic"},
    "KIP-848 group": {"group_id": "readers", "group_protocol": "consumer"},
}
STRATEGIES = ("earliest", "latest", "none")
PARTITIONS = 2
COUNTS = {"as many partitions": 2, "fewer": 1, "more": 3}


class Seen(RebalanceListener):
    """Begins with the first record, and notes for which partitions it was called."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        if not self.calls:
            for tp in partitions:
                self.consumer.seek(tp, 0)
        self.calls.append(("assigned", [tp.partition for tp in partitions]))

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", [tp.partition for tp in partitions]))

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.calls.append(("lost", [tp.partition for tp in partitions]))


async def collect(consumer: Consumer, got: Got) -> None:
    """Read on until the task is cancelled. A partition without a position begins with its first
    record.
    """
    while True:
        try:
            for record in await consumer.getmany(timeout_ms=500):
                got.add(record.partition, record.value)
        except InvalidOffsetError as error:
            got.errors.append(error)
            consumer.seek(error.topic_partition, 0)
        except KafkaError as error:
            got.errors.append(error)


@asynccontextmanager
async def reader(
    bootstrap: str, topic: str, way: str, got: Got, **settings: Any
) -> AsyncIterator[tuple[Consumer, Seen]]:
    """A consumer whose records are collected, from the first one on."""
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        allow_auto_create_topics=False,
        **{"metadata_max_age_ms": 2_000, "auto_commit_interval_ms": 200, **WAYS[way], **settings},
    )
    listener = Seen(consumer)
    if way.startswith("assigned"):
        consumer.assign(places(topic, range(PARTITIONS)))
        for tp in consumer.assignment():
            consumer.seek(tp, 0)
    else:
        consumer.subscribe([topic], listener=listener)
    async with consumer:
        task = asyncio.create_task(collect(consumer, got))
        try:
            yield consumer, listener
        finally:
            task.cancel()
            await asyncio.wait([task])


async def read_across(
    bootstrap: str, topic: str, way: str, strategy: str, count: int
) -> tuple[Got, Seen]:
    """Read a topic that is created again with ``count`` partitions."""
    got = Got()
    read = min(count, PARTITIONS) if way.startswith("assigned") else count
    async with topic_of(bootstrap, topic, PARTITIONS) as admin:
        async with reader(bootstrap, topic, way, got, auto_offset_reset=strategy) as (_, listener):
            await got.until(lambda got: got.has_old(PARTITIONS))
            await create_again(admin, bootstrap, topic, count)
            await got.until(lambda got: got.is_done(read))
        got.check(read, from_the_first=strategy != "latest")
        if "group" in way:
            partitions = places(topic, range(read))
            committed = await admin.list_consumer_group_offsets("readers", partitions)
            assert {tp: at and at.offset for tp, at in committed.items()} == dict.fromkeys(
                partitions, NEW
            )
    return got, listener


@pytest.mark.virtual_time
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", WAYS)
async def test_no_record_of_the_new_topic_is_skipped(
    broker: EmbeddedCluster, way: str, strategy: str, count: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    got, listener = await read_across(
        broker.bootstrap_servers, "orders", way, strategy, COUNTS[count]
    )
    present = broker.topics["orders"].topic_id
    invalid = [error for error in got.errors if isinstance(error, InvalidOffsetError)]
    assert bool(invalid) == (strategy == "none")
    if count == "as many partitions":  # else groups rebalance before the call raises
        assert all(
            isinstance(error, TopicRecreatedError) and error.topic_id == present
            for error in invalid
        )
    (told,) = [line for line in caplog.messages if "was deleted and created again (topic" in line]
    assert str(present) in told
    assert "0 at offset 5, 1 at offset 5" in told
    if strategy != "none" and count == "as many partitions":  # else some groups rebalance, too
        assert f"orders-0 continues at offset {got.new[0][0]} of the new topic" in caplog.messages
    if not way.startswith("assigned"):
        assert listener.calls[0] == ("assigned", [0, 1])
        assert listener.calls[1:3] == [("lost", [0, 1]), ("assigned", [0, 1])]

"""Spark's driver and tasks use an imitated service. This needs PySpark, but no Java."""

from __future__ import annotations

import asyncio

from aioprod import Producer, TopicPartition
from aioprod.cluster.client import ClusterClient
from aioprod.consumer.partition_reader import FetchSettings, PartitionReader
from aioprod.spark import planning
from aioprod.spark.exactly_once import driver
from aioprod.spark.exactly_once.ids import Sink
from aioprod.spark.exactly_once.reports import TaskAttempt, TaskReport
from aioprod.spark.filters import EVERYTHING
from aioprod.spark.group_positions import GroupPositions
from aioprod.spark.sink_options import parse_sink_options
from aioprod.spark.source_options import parse_source_options
from aioprod.types import PreparedTransaction
from tests.services.clients import COUNT, FIRST, TOPIC, Place, send_by, values
from tests.waiting import until


def _options(place: Place, **options: str) -> dict[str, str]:
    dotted = {name.replace("_", "."): str(value) for name, value in place.settings.items()}
    given = {"bootstrap.servers": place.servers, **dotted}
    return {**{f"kafka.{name}": value for name, value in given.items()}, **options}


async def is_read_by_spark(place: Place) -> None:
    """Read a batch as Spark's driver and tasks do."""
    await place.send(FIRST)
    source = parse_source_options(_options(place, subscribe=TOPIC), streaming=False)
    seen: list[tuple[int, int]] = []
    async with ClusterClient(place.servers, **place.settings) as client:
        ranges = await planning.plan_batch(client, source, EVERYTHING)
        await asyncio.sleep(place.pause_s)
        for each in ranges:
            tp = TopicPartition(each.topic, each.partition)
            reader = PartitionReader(client, tp, each.start, each.end, FetchSettings())
            async for fetched in reader:
                seen += [(tp.partition, number) for number in range(fetched.start, fetched.end)]
        positions = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
        await GroupPositions("spark").commit(client, positions)
    assert len(seen) == len(set(seen)) == COUNT
    assert sum(place.cluster.committed_offsets("spark").values()) == COUNT


async def is_written_by_spark_exactly_once(place: Place) -> None:
    """Write a batch as a task of Spark and then the driver do."""
    options = _options(place, topic=TOPIC, delivery="exactly-once")
    sink = parse_sink_options(options)
    attempt = TaskAttempt(Sink("p", "query"), "0123abcd", 1, 0, 0)
    task = Producer(**{**sink.producer, "transactional_id": attempt.transactional_id})
    async with task:
        await task.begin_transaction()
        await send_by(task, FIRST)
        prepared = await task.prepare_transaction()
        assert isinstance(prepared, PreparedTransaction)
    await asyncio.sleep(min(place.pause_s, 10))
    report = TaskReport(attempt, prepared, rows=COUNT, topics=frozenset({TOPIC}))
    await driver.commit_batch(sink, [report], 1)
    await until(lambda: place.stored() == values(FIRST), 10)

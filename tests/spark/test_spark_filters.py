"""Filters that are pushed down to batch reads: what is read, and that the rows are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from aioprod import Producer, TopicPartition
from aioprod.spark.filters import EVERYTHING, in_pushdown_process, push
from aioprod.spark.readers import FilteringReader, KafkaReader
from aioprod.testing import EmbeddedCluster, ThreadedCluster

TOPIC = ("topic",)
PARTITION = ("partition",)
OFFSET = ("offset",)
TIMESTAMP = ("timestamp",)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def chosen(*filters: Filter, size: int = 10) -> dict[tuple[str, int], range]:
    """The ranges that are read of two topics of three partitions; all filters must be answered."""
    wanted, remaining = push(filters)
    assert remaining == []
    places = [TopicPartition(topic, number) for topic in "ab" for number in range(3)]
    start, end = wanted.narrow(dict.fromkeys(places, 2), dict.fromkeys(places, size), {})
    return {
        (tp.topic, tp.partition): range(start[tp], end[tp]) for tp in start if start[tp] < end[tp]
    }


def test_without_filters_everything_is_read() -> None:
    assert push([]) == (EVERYTHING, [])
    assert chosen() == {(topic, number): range(2, 10) for topic in "ab" for number in range(3)}


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(PARTITION, 1)], {1}),
        ([In(PARTITION, (0, 2, 9))], {0, 2}),
        ([In(PARTITION, (0, 2)), In(PARTITION, (1, 2))], {2}),
        ([GreaterThan(PARTITION, 0)], {1, 2}),
        ([GreaterThanOrEqual(PARTITION, 1), LessThan(PARTITION, 2)], {1}),
        ([LessThanOrEqual(PARTITION, 0)], {0}),
        ([EqualTo(PARTITION, 0), EqualTo(PARTITION, 1)], set()),
        ([EqualTo(PARTITION, -1)], set()),
        ([IsNotNull(PARTITION)], {0, 1, 2}),
    ],
)
def test_partitions_are_chosen(filters: list[Filter], expected: set[int]) -> None:
    assert {number for _, number in chosen(*filters)} == expected


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(OFFSET, 5)], range(5, 6)),
        ([GreaterThan(OFFSET, 5)], range(6, 10)),
        ([GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 7)], range(5, 7)),
        ([LessThanOrEqual(OFFSET, 7)], range(2, 8)),
        ([GreaterThan(OFFSET, 0)], range(2, 10)),
        ([LessThan(OFFSET, 99)], range(2, 10)),
        ([LessThan(OFFSET, 2)], None),
        ([GreaterThanOrEqual(OFFSET, 10)], None),
        ([GreaterThan(OFFSET, 6), LessThan(OFFSET, 5)], None),
        ([LessThan(OFFSET, -3)], None),
    ],
)
def test_offsets_are_chosen(filters: list[Filter], expected: range | None) -> None:
    found = chosen(*filters)
    assert (found["a", 0] if expected is not None else None) == expected
    assert len(found) == (6 if expected is not None else 0)


def test_topics_are_chosen() -> None:
    assert {topic for topic, _ in chosen(EqualTo(TOPIC, "a"))} == {"a"}
    assert {topic for topic, _ in chosen(In(TOPIC, ("b", "c")))} == {"b"}
    assert chosen(EqualTo(TOPIC, "a"), EqualTo(TOPIC, "b")) == {}


@pytest.mark.parametrize(
    "left",
    [
        EqualTo(("key",), b"k"),
        EqualTo(("value", "partition"), 1),
        IsNull(PARTITION),
        Not(EqualTo(PARTITION, 1)),
        EqualNullSafe(PARTITION, 1),
        GreaterThan(TOPIC, "a"),
        EqualTo(PARTITION, 1.5),
        EqualTo(PARTITION, None),
        In(PARTITION, (1, None)),
        In(OFFSET, (1, 2)),
        LessThan(TIMESTAMP, NOON),
        GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None)),
    ],
)
def test_other_filters_are_left_to_spark(left: Filter) -> None:
    wanted, remaining = push([left, EqualTo(OFFSET, 3)])
    assert remaining == [left] and remaining[0] is left
    assert wanted == push([EqualTo(OFFSET, 3)])[0]


def test_a_time_chooses_where_to_begin_and_is_left_to_spark_too() -> None:
    later = NOON + timedelta(microseconds=1_999)
    filters: list[Filter] = [GreaterThanOrEqual(TIMESTAMP, NOON), GreaterThan(TIMESTAMP, later)]
    wanted, remaining = push([IsNotNull(TIMESTAMP), *filters])
    assert (wanted.since_ms, remaining) == (NOON_MS + 1, filters)
    elsewhere = NOON.astimezone(timezone(timedelta(hours=-5)))
    assert push([EqualTo(TIMESTAMP, elsewhere)])[0].since_ms == NOON_MS
    place, other = TopicPartition("a", 0), TopicPartition("a", 1)
    start, end = wanted.narrow({place: 0, other: 0}, {place: 9, other: 9}, {place: 4, other: -1})
    assert (start, end) == ({place: 4, other: 9}, {place: 9, other: 9})


NUMBERS = st.integers(-2, 8)
KINDS = {
    EqualTo: int.__eq__,
    GreaterThan: int.__gt__,
    GreaterThanOrEqual: int.__ge__,
    LessThan: int.__lt__,
    LessThanOrEqual: int.__le__,
}
CONDITIONS = st.tuples(st.sampled_from([*KINDS]), st.sampled_from([PARTITION, OFFSET]), NUMBERS)


@given(st.lists(CONDITIONS, max_size=5))
def test_exactly_the_records_that_pass_are_read(conditions: list[tuple[Any, Any, int]]) -> None:
    read = {
        (partition, offset)
        for (_, partition), offsets in chosen(
            *(kind(path, to) for kind, path, to in conditions)
        ).items()
        for offset in offsets
    }
    assert read == {
        (partition, offset)
        for partition in range(3)
        for offset in range(2, 10)
        if all(
            KINDS[kind](partition if path == PARTITION else offset, to)
            for kind, path, to in conditions
        )
    }


def test_only_sparks_process_for_this_gets_a_reader_that_takes_filters() -> None:
    """Spark refuses such readers everywhere else, unless pushing down is turned on."""
    assert not in_pushdown_process()
    assert KafkaReader.pushFilters is DataSourceReader.pushFilters
    assert FilteringReader.pushFilters is not DataSourceReader.pushFilters


# -- in Spark --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled() -> Iterator[ThreadedCluster]:
    """Three partitions of 20 records, a minute apart; every fifth is an hour older."""

    async def send(servers: str) -> None:
        async with Producer(servers) as producer:
            for number in range(20):
                at = NOON_MS + number * 60_000 - (3_600_000 if number % 5 == 4 else 0)
                for partition in range(3):
                    await producer.send(
                        "events", b"%d" % number, partition=partition, timestamp_ms=at
                    )

    with EmbeddedCluster.in_thread(num_partitions=3) as running:
        asyncio.run(send(running.bootstrap_servers))
        yield running


@pytest.fixture
def events(session: SparkSession, filled: ThreadedCluster) -> Iterator[DataFrame]:
    name = "spark.sql.python.filterPushdown.enabled"
    session.conf.set(name, "true")
    reader = session.read.format("aioprod").option("subscribe", "events")
    try:
        yield reader.option("kafka.bootstrap.servers", filled.bootstrap_servers).load()
    finally:
        session.conf.unset(name)


# Condition, tasks, records that the source returns, rows.
CASES = [
    ("partition = 1", 1, 20, 20),
    ("partition IN (0, 2)", 2, 40, 40),
    ("offset BETWEEN 5 AND 7", 3, 9, 9),
    ("partition > 0 AND offset < 3", 2, 6, 6),
    ("topic = 'events'", 3, 60, 60),
    ("topic = 'others'", 1, 0, 0),
    ("partition = 0 AND value = X'37'", 1, 20, 1),
    ("timestamp >= TIMESTAMP'2026-01-31T12:10:00Z'", 3, 30, 24),
    ("timestamp > TIMESTAMP'2026-01-31T14:00:00Z'", 1, 0, 0),
    ("timestamp < TIMESTAMP'2026-01-31T12:10:00Z'", 3, 60, 36),
    ("timestamp >= TIMESTAMP'2026-01-31T12:10:00Z' AND partition = 2", 1, 10, 8),
    ("partition = 0 OR offset = 1", 3, 60, 22),
    ("true", 3, 60, 60),
]


@pytest.mark.parametrize(("condition", "tasks", "read", "rows"), CASES)
def test_spark_reads_only_what_the_filters_leave(
    events: DataFrame, condition: str, tasks: int, read: int, rows: int
) -> None:
    filtered = events.where(condition)
    assert filtered.rdd.getNumPartitions() == tasks
    assert filtered.count() == rows
    assert scanned(filtered) == read


def scanned(frame: DataFrame) -> int:
    """The rows that the source returned in a run of this frame."""
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.collectToPython()
    leaves = plan.collectLeaves()
    return sum(
        int(leaves.apply(place).metrics().apply("numOutputRows").value())
        for place in range(leaves.size())
    )


def test_by_default_spark_filters_itself(session: SparkSession, filled: ThreadedCluster) -> None:
    reader = session.read.format("aioprod").option("subscribe", "events")
    frame = reader.option("kafka.bootstrap.servers", filled.bootstrap_servers).load()
    filtered = frame.where("partition = 1 AND offset < 5")
    assert filtered.rdd.getNumPartitions() == 3
    assert filtered.count() == 5

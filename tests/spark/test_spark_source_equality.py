"""The same options give the same rows, tasks and micro-batches as Spark's own Kafka source, on a
real broker.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .source_topics import send

FORMATS = ("aioprod", "kafka")
# Real times: a broker deletes what is older than a week.
BASE = int(time.time() * 1000) - 3_600_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def topic(kafka: str, create_topic: Callable[[str, str, int], None]) -> str:
    """100 records in partition 0 and 10 in partition 1, one a second, with nulls, headers and
    batches of every codec.
    """
    name = f"equal-{uuid.uuid4().hex[:8]}"
    create_topic(kafka, name, 2)
    for codec, first in (("none", 0), ("lz4", 40), ("zstd", 80)):
        numbers = range(first, min(first + 40, 110))
        send(
            kafka,
            name,
            codec,
            key=[None if n % 4 == 0 else b"k%d" % n for n in numbers],
            value=[None if n % 5 == 0 else b"v" * n for n in numbers],
            headers=pa.array(
                [[{"key": "h", "value": None if n % 2 else b"%d" % n}] * (n % 3) for n in numbers],
                HEADERS,
            ),
            timestamp=[BASE + 1_000 * n for n in numbers],
            partition=[int(n >= 100) for n in numbers],
        )
    return name


def load(session: SparkSession, source: str, servers: str, topic: str, **options: str) -> DataFrame:
    given = {"kafka.bootstrap.servers": servers} | options
    if not options.keys() & {"assign", "subscribePattern"}:
        given["subscribe"] = topic
    return session.read.format(source).options(**given).load()


def per_partition(topic: str, first: int, second: int) -> str:
    return json.dumps({topic: {"0": first, "1": second}})


def cases(topic: str) -> list[dict[str, str]]:
    return [
        {"includeHeaders": "true", "minPartitions": "3"},
        {
            "includeHeaders": "true",
            "assign": json.dumps({topic: [1]}),
            "maxRecordsPerPartition": "4",
        },
        {
            "subscribePattern": topic + ".*",
            "startingOffsets": per_partition(topic, 37, -2),
            "endingOffsets": per_partition(topic, -1, 3),
        },
        {
            "startingTimestamp": str(BASE + 35_500),
            "startingOffsetsByTimestamp": per_partition(topic, BASE, BASE),
            "endingTimestamp": str(BASE + 104_000),
            "endingOffsets": per_partition(topic, 9, 9),
        },
        # Spark's connector does not have this option.
        {"includeHeaders": "true", "minRecordsPerPartition": "1000"},
        {"startingTimestamp": str(BASE + 105_000), "startingOffsetsByTimestampStrategy": "latest"},
        {
            "startingOffsetsByTimestamp": per_partition(topic, BASE + 10_000, BASE + 109_000),
            "startingOffsets": "earliest",
            "endingOffsetsByTimestamp": per_partition(topic, BASE + 12_000, BASE + 999_000),
        },
    ]


def test_every_option_of_a_batch_gives_the_same_rows(
    session: SparkSession, kafka: str, topic: str
) -> None:
    def rows(source: str) -> list[dict[str, Any]]:
        headers = "array<struct<key: string, value: binary>>"
        frames = []
        for number, options in enumerate(cases(topic)):
            frame = load(session, source, kafka, topic, **options).withColumn("case", F.lit(number))
            frames.append(
                frame
                if "includeHeaders" in options
                else frame.withColumn("headers", F.lit(None).cast(headers))
            )
        found = [
            row.asDict(recursive=True) for row in reduce(DataFrame.unionByName, frames).collect()
        ]
        return sorted(found, key=lambda row: (row["case"], row["partition"], row["offset"]))

    ours, sparks = map(rows, FORMATS)
    assert {row["case"] for row in sparks} == set(range(len(cases(topic))))
    assert ours == sparks


@pytest.mark.parametrize(
    "options",
    [
        {"minPartitions": "7"},
        {"maxRecordsPerPartition": "30"},
        {"minPartitions": "9", "maxRecordsPerPartition": "30"},
    ],
    ids=lambda options: "-".join(options),
)
def test_a_read_has_as_many_tasks(
    session: SparkSession, kafka: str, topic: str, options: dict[str, str]
) -> None:
    # Spark splits only offsets that it knows.
    known = {
        "startingOffsets": per_partition(topic, 0, 0),
        "endingOffsets": per_partition(topic, 100, 10),
    }
    ours, sparks = (
        load(session, source, kafka, topic, **known, **options).rdd.getNumPartitions()
        for source in FORMATS
    )
    assert ours == sparks > 2


def test_small_partitions_share_a_task(session: SparkSession, kafka: str, topic: str) -> None:
    def tasks(minimum: int) -> int:
        given = {"minRecordsPerPartition": str(minimum)}
        return load(session, "aioprod", kafka, topic, **given).rdd.getNumPartitions()

    assert (tasks(1), tasks(1_000)) == (2, 1)


def plain(position: str) -> dict[str, Any]:
    """A position without the ids of topics, which only this source keeps."""
    found: dict[str, Any] = json.loads(position)
    return {name: partitions for name, partitions in found.items() if partitions}


def test_each_source_continues_the_checkpoint_of_the_other(
    session: SparkSession, kafka: str, topic: str, tmp_path: Path
) -> None:
    given = {"kafka.bootstrap.servers": kafka, "subscribe": topic, "startingOffsets": "earliest"}

    def read(source: str, **options: str) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        query = (
            session.readStream.format(source)
            .options(**given, **options)
            .load()
            .select("partition", "offset")
            .writeStream.foreachBatch(
                lambda frame, number: found.extend(tuple(row) for row in frame.collect())
            )
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        return sorted(found)

    assert len(read("kafka")) == 110
    for number, source in enumerate(("aioprod", "kafka", "aioprod", "aioprod", "kafka")):
        send(kafka, topic, value=[b"x"], partition=[1])
        assert read(source) == [(1, 10 + number)], source
    last = sorted(tmp_path.glob("offsets/*"), key=lambda path: path.name)
    kept = [path.read_text().splitlines()[-1] for path in last if path.name.isdigit()]
    assert [f"{topic}#" in line for line in kept] == [False, True, False, True, True, False]


def test_micro_batches_end_where_sparks_do_and_a_group_knows_of_all(
    session: SparkSession, kafka: str, topic: str, tmp_path: Path
) -> None:
    """Also the last one, of which Spark shows its source only when it asks for what follows."""
    group = f"{topic}-watched"
    ends = {}
    for source in FORMATS:
        given = {
            "kafka.bootstrap.servers": kafka,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "45",
        }
        if source == "aioprod":
            given["kafka.group.id"] = group
        stream = session.readStream.format(source).options(**given).load()
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        progress = [item for item in query.recentProgress if item["numInputRows"]]
        assert {json.dumps(plain(item["sources"][0]["latestOffset"])) for item in progress} == {
            per_partition(topic, 100, 10)
        }
        ends[source] = [
            (item["numInputRows"], plain(item["sources"][0]["endOffset"])) for item in progress
        ]
    assert ends["aioprod"] == ends["kafka"]
    assert [rows for rows, _ in ends["aioprod"]] == [44, 44, 22]
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    try:
        assert [
            place.offset
            for place in consumer.committed([Place(topic, 0), Place(topic, 1)], timeout=10)
        ] == [100, 10]
    finally:
        consumer.close()

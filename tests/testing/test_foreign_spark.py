"""Spark's Kafka connector, and the Java clients in it (producer, consumer, admin client), work with
the embedded broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from aioprod.error_codes import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, drop_after, fail

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 500
PAIRS = sorted((b"key %d" % number, b"value %d" % number) for number in range(COUNT))


@pytest.fixture
def threaded() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=3) as broker:
        yield broker


def write(spark: SparkSession, broker: ThreadedCluster, **options: str) -> None:
    rows = spark.range(COUNT, numPartitions=2).selectExpr(
        "concat('key ', id) as key", "concat('value ', id) as value"
    )
    sink = (
        rows.write.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "t")
    )
    sink.options(**options).save()


def read(spark: SparkSession, broker: ThreadedCluster, **options: str) -> DataFrame:
    source = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "t")
    )
    return source.options(**options).load()


def stored(broker: ThreadedCluster) -> list[tuple[bytes | None, bytes | None]]:
    return sorted(((record.key, record.value) for record in broker.records("t")), key=repr)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_sink_and_source(spark: SparkSession, threaded: ThreadedCluster, codec: str) -> None:
    write(spark, threaded, **{"kafka.compression.type": codec})
    assert stored(threaded) == sorted(PAIRS, key=repr)
    rows = read(spark, threaded).collect()
    assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == PAIRS
    offsets = {(row.partition, row.offset) for row in rows}
    assert offsets == {
        (index, record.offset) for index in range(3) for record in threaded.records("t", index)
    }


def test_the_java_producer_meets_lost_answers_and_refusals(
    spark: SparkSession, threaded: ThreadedCluster
) -> None:
    threaded.on(ApiKey.PRODUCE, drop_after(), times=2)
    threaded.on(ApiKey.PRODUCE, fail(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=2)
    write(spark, threaded, **{"kafka.batch.size": "2000"})
    assert stored(threaded) == sorted(PAIRS, key=repr)


def test_source_of_committed_records(spark: SparkSession, threaded: ThreadedCluster) -> None:
    threaded.create_topic("t", 3)
    producer = Producer({"bootstrap.servers": threaded.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions(10)
    for number in range(4):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("t", b"%d" % number, partition=partition)
        producer.flush(10)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(10)
    for level, expected in (
        ("read_committed", [b"0", b"2"]),
        ("read_uncommitted", [b"0", b"1", b"2", b"3"]),
    ):
        rows = read(spark, threaded, **{"kafka.isolation.level": level}).collect()
        assert sorted(bytes(row.value) for row in rows) == sorted(expected * 3)


def test_source_by_timestamp(spark: SparkSession, threaded: ThreadedCluster) -> None:
    write(spark, threaded)
    first = min(record.timestamp for record in threaded.records("t"))
    assert read(spark, threaded, startingTimestamp=str(first)).count() == COUNT
    assert (
        read(spark, threaded, startingTimestamp=str(first), endingTimestamp=str(first)).count() == 0
    )


def test_stream_of_what_is_there_now(
    spark: SparkSession, threaded: ThreadedCluster, tmp_path: Path
) -> None:
    write(spark, threaded)
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", threaded.bootstrap_servers)
        .option("subscribe", "t")
    )
    rows = stream.option("startingOffsets", "earliest").load().selectExpr("value")
    query = (
        rows.writeStream.format("memory")
        .queryName("from_embedded")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
        assert spark.table("from_embedded").count() == COUNT
    finally:
        query.stop()

"""The data source under a real Spark session, with Spark's own Kafka connector."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aioprod import ErrorCode
from aioprod.protocol.api_keys import ApiKey
from aioprod.testing import EmbeddedCluster, ThreadedCluster, fail


@pytest.fixture
def broker() -> Iterator[ThreadedCluster]:
    with EmbeddedCluster.in_thread(num_partitions=3) as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def bootstrap_any(request: pytest.FixtureRequest, broker: ThreadedCluster) -> str:
    if request.param == "embedded":
        return broker.bootstrap_servers
    servers: str = request.getfixturevalue("kafka")
    return servers


def rows(session: SparkSession, count: int) -> DataFrame:
    """Numbered rows of all the columns that a sink knows."""
    headers = F.array(
        F.struct(F.lit("n").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))
    )
    return session.range(count).select(
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("k"), F.col("id") % 7)).alias("key"),
        F.when(F.col("id") % 11 > 0, F.concat(F.lit("v"), "id")).alias("value"),
        F.when(F.col("id") % 2 == 0, (F.col("id") % 3).cast("int")).alias("partition"),
        F.when(F.col("id") % 3 > 0, headers).alias("headers"),
    )


def write(frame: DataFrame, servers: str, topic: str, source_format: str = "aioprod") -> None:
    frame.write.format(source_format).option("kafka.bootstrap.servers", servers).option(
        "topic", topic
    ).mode("append").save()


def load(
    session: SparkSession, servers: str, topic: str, source_format: str = "aioprod", **options: str
) -> DataFrame:
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "includeHeaders": "true",
    } | options
    return session.read.format(source_format).options(**given).load()


def plain(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()),
        key=lambda row: (row["partition"], row["offset"]),
    )


def test_written_rows_are_read_back_and_sparks_own_source_sees_the_same(
    session: SparkSession, bootstrap_any: str, create_topic: Callable[[str, str, int], None]
) -> None:
    topic = f"t-{uuid.uuid4()}"
    create_topic(bootstrap_any, topic, 3)
    # Records before ours: the other sink's, so that both kinds are in the topic.
    write(rows(session, 40), bootstrap_any, topic, "kafka")
    write(rows(session, 500), bootstrap_any, topic)
    ours, theirs = (
        load(session, bootstrap_any, topic, source_format) for source_format in ("aioprod", "kafka")
    )
    assert ours.schema == theirs.schema
    found = plain(ours)
    assert found == plain(theirs)
    assert len(found) == 540
    sent = {row["value"]: row.asDict(recursive=True) for row in rows(session, 500).collect()}
    for row in found:
        if row["value"] is None:
            continue
        expected = sent[row["value"].decode()]
        assert row["key"] == (expected["key"].encode() if expected["key"] is not None else None)
        assert row["headers"] == expected["headers"]
        assert expected["partition"] in (None, row["partition"])
    assert [row["offset"] for row in found if row["partition"] == 0] == list(
        range(sum(row["partition"] == 0 for row in found))
    )


def test_keys_go_to_the_same_partitions_as_with_sparks_own_sink(
    session: SparkSession, broker: ThreadedCluster
) -> None:
    frame = session.range(200).select(
        F.concat(F.lit("key-"), "id").alias("key"), F.lit("x").alias("value")
    )
    for topic, sink in (("ours", "aioprod"), ("theirs", "kafka")):
        broker.create_topic(topic, 5)
        write(frame, broker.bootstrap_servers, topic, sink)
    ours, theirs = (
        [{record.key for record in broker.records(topic, partition)} for partition in range(5)]
        for topic in ("ours", "theirs")
    )
    assert ours == theirs
    assert sum(map(len, ours)) == 200


def test_an_empty_topic_gives_no_rows(session: SparkSession, broker: ThreadedCluster) -> None:
    broker.create_topic("empty", 2)
    assert load(session, broker.bootstrap_servers, "empty").count() == 0


def stream(
    session: SparkSession,
    servers: str,
    source: str,
    target: str,
    checkpoint: Path,
    formats: tuple[str, str] = ("aioprod", "aioprod"),
    limit_s: int = 60,
    **options: str,
) -> list[int]:
    """Copy a topic until there is no more; returns the rows of each micro-batch.

    Args:
        formats: formats of the source and of the sink.
        limit_s: the longest time that the query may take.
    """
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": source,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    } | options
    records = session.readStream.format(formats[0]).options(**given).load()
    copied = records.select("key", "value", "headers", "partition")
    writer = (
        copied.writeStream.format(formats[1])
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(limit_s), "the query did not end"
    finally:
        query.stop()
    return [
        progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]
    ]


def test_a_stream_copies_every_record_once_in_limited_batches_and_resumes(
    session: SparkSession, broker: ThreadedCluster, tmp_path: Path
) -> None:
    write(rows(session, 300), broker.bootstrap_servers, "in")
    batches = stream(
        session, broker.bootstrap_servers, "in", "out", tmp_path / "cp", maxOffsetsPerTrigger="120"
    )
    assert sum(batches) == 300
    assert len(batches) >= 3 and max(batches) <= 123
    write(rows(session, 50), broker.bootstrap_servers, "in")
    assert stream(session, broker.bootstrap_servers, "in", "out", tmp_path / "cp") == [50]
    for partition in range(3):
        copied, original = (
            [(r.key, r.value, r.headers) for r in broker.records(topic, partition)]
            for topic in ("out", "in")
        )
        assert copied == original
    assert len(broker.records("out")) == 350


@pytest.mark.timeout(900)
def test_a_checkpoint_continues_under_the_other_format_and_back(
    session: SparkSession, broker: ThreadedCluster, tmp_path: Path
) -> None:
    """docs/switching.md: switch in one line, back in one line."""
    servers, copies = broker.bootstrap_servers, []
    for run, used in enumerate(("kafka", "aioprod", "kafka", "aioprod")):
        numbered = session.range(run * 300, run * 300 + 300).selectExpr(
            "CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value"
        )
        write(numbered, servers, "in", used)
        copies += stream(session, servers, "in", "out", tmp_path / "cp", (used, used), 240)
    assert sum(copies) == 1_200
    copied = [int(record.value or b"") for record in broker.records("out")]
    assert sorted(copied) == list(range(1_200))


def test_a_task_that_cannot_write_fails_the_job_and_says_why(
    session: SparkSession, broker: ThreadedCluster, tmp_path: Path
) -> None:
    write(rows(session, 10), broker.bootstrap_servers, "in")
    broker.on(ApiKey.PRODUCE, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(
        PySparkException,
        match=r"SinkError: a row was not acknowledged: .*TOPIC_AUTHORIZATION_FAILED",
    ):
        write(rows(session, 10), broker.bootstrap_servers, "in")
    with pytest.raises(
        StreamingQueryException,
        match=r"SinkError: a row was not acknowledged: .*TOPIC_AUTHORIZATION_FAILED",
    ):
        stream(session, broker.bootstrap_servers, "in", "out", tmp_path / "cp")


def test_a_task_that_cannot_read_fails_the_job_and_says_why(
    session: SparkSession, broker: ThreadedCluster
) -> None:
    write(rows(session, 10), broker.bootstrap_servers, "in")
    broker.on(ApiKey.FETCH, fail(ErrorCode.TOPIC_AUTHORIZATION_FAILED), times=None)
    with pytest.raises(
        PySparkException,
        match="BrokerError: fetch from in-0 at offset 0: TOPIC_AUTHORIZATION_FAILED",
    ):
        session.read.format("aioprod").options(
            **{"kafka.bootstrap.servers": broker.bootstrap_servers, "assign": '{"in":[0]}'}
        ).load().count()


def test_mistakes_are_reported_before_anything_is_sent(
    session: SparkSession, broker: ThreadedCluster
) -> None:
    frame = session.range(3).select(F.lit("x").alias("value"))
    with pytest.raises(
        PySparkException, match=r"unknown option startingoffset; did you mean startingOffsets\?"
    ):
        load(session, broker.bootstrap_servers, "in", startingOffset="earliest").count()
    with pytest.raises(PySparkException, match="Kafka topics can only be appended to"):
        frame.write.format("aioprod").option(
            "kafka.bootstrap.servers", broker.bootstrap_servers
        ).option("topic", "t").mode("overwrite").save()
    with pytest.raises(
        PySparkException, match="the column value must be string or binary, it is bigint"
    ):
        write(session.range(3).select(F.col("id").alias("value")), broker.bootstrap_servers, "t")
    assert "t" not in broker.topics

"""Exactly once in Spark itself: a replayed micro-batch, a write that fails in the middle, the same
write twice.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from aioprod.testing import ThreadedCluster


def write_rows(broker: ThreadedCluster, frame: DataFrame, **options: str) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "out"} | options
    frame.write.format("aioprod").mode("append").options(**given).save()


def committed(broker: ThreadedCluster) -> Counter[bytes | None]:
    return Counter(record.value for record in broker.records("out", committed_only=True))


@pytest.fixture
def broker(threaded_broker: ThreadedCluster) -> ThreadedCluster:
    threaded_broker.create_topic("in", 2)
    threaded_broker.create_topic("out", 3)
    return threaded_broker


def run_stream(
    session: SparkSession, broker: ThreadedCluster, checkpoint: Path, tasks: int
) -> None:
    """All that is there, in micro-batches of ten rows; ``tasks`` write each."""
    source = (
        session.readStream.format("aioprod")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "in")
    )
    rows = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "10")
        .load()
        .select("value")
        .repartition(tasks)
    )
    sink = (
        rows.writeStream.format("aioprod")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("topic", "out")
    )
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_a_replayed_micro_batch_is_written_once(
    session: SparkSession, broker: ThreadedCluster, tmp_path: Path
) -> None:
    write_rows(broker, session.range(20).selectExpr("CAST(id AS STRING) AS value"), topic="in")
    run_stream(session, broker, tmp_path / "checkpoint", tasks=2)
    expected = Counter(str(number).encode() for number in range(20))
    assert committed(broker) == expected
    # As after a crash between the sink's commit and Spark's own note of it.
    newest = max(
        (path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    run_stream(session, broker, tmp_path / "checkpoint", tasks=3)
    assert committed(broker) == expected
    shutil.rmtree(tmp_path / "checkpoint")


def test_a_write_that_fails_leaves_nothing_visible(
    session: SparkSession, broker: ThreadedCluster
) -> None:
    frame = session.range(100, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(IF(id = 99, 77, id % 3) AS INT) AS partition"
    )
    with pytest.raises(Exception, match="row 49 of this task, for topic out"):
        write_rows(broker, frame, **{"kafka.max.block.ms": "300"})
    assert committed(broker) == Counter()
    assert [
        name for name, each in broker.transactions.items() if each.state.value == "Ongoing"
    ] == []


def test_the_same_write_again_is_written_once(
    session: SparkSession, broker: ThreadedCluster
) -> None:
    frame = session.range(10).selectExpr("CAST(id AS STRING) AS value")
    for tasks in (2, 3):
        write_rows(broker, frame.repartition(tasks), txnAppId="nightly", txnVersion="1")
    assert committed(broker) == Counter(str(number).encode() for number in range(10))
    with pytest.raises(Exception, match="batch 1 was written before, with 10 rows"):
        write_rows(broker, frame.limit(3), txnAppId="nightly", txnVersion="1")
    write_rows(broker, frame.limit(3), txnAppId="nightly", txnVersion="2")
    assert sum(committed(broker).values()) == 13

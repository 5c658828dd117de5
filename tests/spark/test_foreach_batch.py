"""Output mode update: `write_updates`, and what Spark says of the modes that it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from aioprod.errors import ConfigError
from aioprod.spark import write_updates
from aioprod.spark.pipeline import failure_reason
from aioprod.testing import ThreadedCluster

from .source_topics import send

TOPIC = "counts"


def counts(session: SparkSession, broker: ThreadedCluster) -> DataFrame:
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "words"}
    words = session.readStream.format("aioprod").options(**source, startingOffsets="earliest")
    return words.load().groupBy("value").count().selectExpr("value AS key", "'' || count AS value")


def sink_options(broker: ThreadedCluster, checkpoint: Path) -> dict[str, str]:
    servers = broker.bootstrap_servers
    named = {"topic": TOPIC, "checkpointLocation": str(checkpoint)}
    return {"kafka.bootstrap.servers": servers, **named}


def run(frame: DataFrame, options: dict[str, str]) -> None:
    query = write_updates(frame, options).trigger(availableNow=True).start()
    assert query.awaitTermination(120)


def test_each_micro_batch_writes_what_it_changed_once(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    threaded_broker.create_topic("words")
    frame, options = counts(session, threaded_broker), sink_options(threaded_broker, tmp_path)

    def written() -> list[tuple[bytes | None, bytes | None]]:
        records = threaded_broker.records(TOPIC, committed_only=True)
        return sorted((record.key, record.value) for record in records)

    send(threaded_broker.bootstrap_servers, "words", value=[b"a", b"a", b"b"])
    run(frame, options)
    assert written() == [(b"a", b"2"), (b"b", b"1")]
    send(threaded_broker.bootstrap_servers, "words", value=[b"b"])
    run(frame, options)
    assert written() == (changed := [(b"a", b"2"), (b"b", b"1"), (b"b", b"2")])
    # The driver died before Spark noted the end of the last micro-batch.
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink()
    run(frame, options)
    assert written() == changed


def test_what_cannot_work_is_reported_before_the_query_starts(
    session: SparkSession, threaded_broker: ThreadedCluster, tmp_path: Path
) -> None:
    send(threaded_broker.bootstrap_servers, "words", value=[b"a"])
    frame, options = counts(session, threaded_broker), sink_options(threaded_broker, tmp_path)
    with pytest.raises(ConfigError, match="did you mean"):
        write_updates(frame, options | {"tpoic": "x"})
    with pytest.raises(ConfigError, match="the column value"):
        write_updates(frame.select("key"), options)
    with pytest.raises(ConfigError, match=r"with frame\.write"):
        write_updates(session.range(1).selectExpr("'a' AS value"), options)
    # Spark refuses these itself, without calling the sink.
    writer = frame.writeStream.format("aioprod").outputMode("update").options(**options)
    with pytest.raises(StreamingQueryException) as refused:
        writer.start().awaitTermination(120)
    assert "aioprod.spark.write_updates" in failure_reason(str(refused.value))
    unset = session.range(1).selectExpr("'a' AS value").write.format("aioprod")
    del options["checkpointLocation"]
    with pytest.raises(AnalysisException, match='use either the "Append"'):
        unset.options(**options).save()

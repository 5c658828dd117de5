"""Writes and reads in every way that Spark has, on the PySpark that runs it, without `register`;
prints what was seen as JSON.

With the argument ``remote`` through Spark Connect.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aioprod.spark import configure, spark_session_builder
from aioprod.testing import EmbeddedCluster, ThreadedCluster

ROWS = 25_000
MORE_ROWS = 5_000
STREAM_TIMEOUT_S = 120


def rows(session: SparkSession, start: int, end: int) -> DataFrame:
    """Numbered rows with every column that the sink knows, nulls among them, and one that it does
    not know.
    """
    number = F.col("id").cast("string")
    headers = F.array(F.struct(F.lit("n").alias("key"), number.cast("binary").alias("value")))
    return session.range(start, end, 1, 2).select(
        F.when(F.col("id") % 5 > 0, F.concat(F.lit("k"), number)).alias("key"),
        F.concat(F.lit("v"), number).cast("binary").alias("value"),
        F.when(F.col("id") % 3 > 0, headers).alias("headers"),
        F.current_timestamp().alias("seen"),
    )


def write(frame: DataFrame, servers: str, topic: str) -> None:
    frame.write.format("aioprod").option("kafka.bootstrap.servers", servers).option(
        "topic", topic
    ).mode("append").save()


def stream(session: SparkSession, servers: str, checkpoint: str, **options: str) -> list[int]:
    """Copy the topic ``in`` to ``out`` until there is no more; returns the rows of each
    micro-batch.
    """
    given = {
        "kafka.bootstrap.servers": servers,
        "subscribe": "in",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        **options,
    }
    records = session.readStream.format("aioprod").options(**given).load()
    writer = (
        records.select("key", "value", "headers", "timestamp")
        .writeStream.format("aioprod")
        .option("topic", "out")
    )
    started = (
        writer.options(**{"kafka.bootstrap.servers": servers, "checkpointLocation": checkpoint})
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not started.awaitTermination(STREAM_TIMEOUT_S):
            raise TimeoutError("the query did not end")
        return [
            progress["numInputRows"]
            for progress in started.recentProgress
            if progress["numInputRows"]
        ]
    finally:
        started.stop()


def typed(session: SparkSession, servers: str, broker: ThreadedCluster) -> list[list[str]]:
    """Write JSON, read it as columns, and return these as text."""
    broker.create_topic("typed", 1)
    at = F.expr("timestamp'2024-05-01 10:00:00' + make_interval(0, 0, 0, 0, 0, 0, id)")
    values = session.range(2).select(
        F.to_json(F.struct("id", F.lit("1.50").alias("amount"), at.alias("at"))).alias("value")
    )
    write(values, servers, "typed")
    columns = (
        session.read.format("aioprod")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": "typed"})
        .options(
            **{
                "value.format": "json",
                "value.schema": "id BIGINT, amount DECIMAL(9,2), at TIMESTAMP",
            }
        )
        .load()
    )
    texts = [F.col(f"value.{name}").cast("string") for name in ("id", "amount", "at")]
    return sorted([list(row) for row in columns.select(*texts).collect()])


def contents(broker: ThreadedCluster, topic: str) -> list[tuple[object, ...]]:
    found = [(record.key, record.value, tuple(record.headers)) for record in broker.records(topic)]
    return sorted(found, key=lambda item: str(item[1]))


def new_session(directory: str, *, remote: bool) -> SparkSession:
    if remote:
        configure()
        return SparkSession.builder.remote("local[2]").getOrCreate()
    settings = {
        "spark.driver.memory": "1g",
        "spark.local.dir": f"{directory}/local",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    builder = spark_session_builder("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, EmbeddedCluster.in_thread() as broker:
        broker.create_topic("in", 3)
        broker.create_topic("out", 3)
        session = new_session(directory, remote="remote" in sys.argv)
        servers, checkpoint = broker.bootstrap_servers, str(Path(directory, "checkpoint"))
        write(rows(session, 0, ROWS), servers, "in")
        loaded = (
            session.read.format("aioprod")
            .options(
                **{"kafka.bootstrap.servers": servers, "subscribe": "in", "includeHeaders": "true"}
            )
            .load()
        )
        measured: dict[str, object] = {
            "version": pyspark.__version__,
            "read": loaded.count(),
            "headers": loaded.where("headers IS NOT NULL").count(),
        }
        first = stream(session, servers, checkpoint)
        write(rows(session, ROWS, ROWS + MORE_ROWS), servers, "in")
        second = stream(session, servers, checkpoint)
        try:
            limited: list[int] | str = stream(
                session, servers, f"{checkpoint}-limited", maxOffsetsPerTrigger="20000"
            )
        except PySparkException as error:  # before 4.2 there are no limits
            limited = next(
                line for line in str(error).splitlines() if "maxOffsetsPerTrigger" in line
            )
        measured |= {"first": first, "second": second, "limited": limited}
        measured["typed"] = typed(session, servers, broker)
        measured["copied"] = len(broker.records("out"))
        measured["same"] = set(contents(broker, "out")) == set(contents(broker, "in"))
        session.stop()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

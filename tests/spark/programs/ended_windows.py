"""Counts events by minute with ``availableNow``, as a first run does, without and with Spark's
wrapper for sources; prints the minutes that were written as JSON.
"""

from __future__ import annotations

import json
import tempfile

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from aioprod.spark import spark_session_builder
from aioprod.testing import EmbeddedCluster

STREAM_TIMEOUT_S = 200
WRAPPER = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
TIMES = ("10:00:10", "11:00:00")  # the watermark passes the first minute


def minutes(session: SparkSession, servers: str, directory: str) -> list[str]:
    """Return the minutes that a first run has written."""
    source = {"kafka.bootstrap.servers": servers, "subscribe": "in", "startingOffsets": "earliest"}
    at = F.to_timestamp(F.concat(F.lit("2026-01-31 "), F.col("value").cast("string")))
    counts = (
        session.readStream.format("aioprod")
        .options(**source)
        .load()
        .select(at.alias("at"))
        .withWatermark("at", "10 minutes")
        .groupBy(F.window("at", "1 minute"))
        .count()
        .select(F.date_format("window.start", "HH:mm").alias("minute"))
    )
    writer = counts.writeStream.format("parquet").option("path", f"{directory}/out")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    query = writer.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            raise TimeoutError("the query did not end")
    finally:
        query.stop()
    return [row.minute for row in session.read.parquet(f"{directory}/out").collect()]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, EmbeddedCluster.in_thread() as broker:
        broker.create_topic("in", 1)
        session = spark_session_builder("local[2]").getOrCreate()
        values = session.createDataFrame([(time,) for time in TIMES], "value STRING")
        sink = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "in"}
        values.write.format("aioprod").options(**sink).mode("append").save()
        measured: dict[str, object] = {"version": pyspark.__version__}
        for wrapper in ("false", "true"):
            session.conf.set(WRAPPER, wrapper)
            measured[wrapper] = minutes(session, broker.bootstrap_servers, f"{directory}/{wrapper}")
        session.stop()
    print(json.dumps(measured))


if __name__ == "__main__":
    main()

"""The query of the scenario ``foreachBatch``: ``df.write`` writes each micro-batch, with a pair of
``txnAppId`` and ``txnVersion`` of its own.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from .crash_spec import Spec
from .crash_stacks import answer_questions, answer_stacks

SHUFFLE_PARTITIONS = 2
SETTINGS = {
    "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_POLL_S = 0.2


def stop_file(spec: Spec) -> Path:
    """The run stops when this file is there."""
    return spec.path.with_suffix(".stop")


def start_writing(spark: SparkSession, spec: Spec, rows: DataFrame) -> StreamingQuery:
    """Start the query, and answer questions about it."""

    def write(frame: DataFrame, batch: int) -> None:
        (
            frame.write.format("aioprod_watched")
            .mode("append")
            .option("kafka.bootstrap.servers", spec.servers)
            .options(**spec.sink_options)
            .option("txnAppId", spec.source)
            .option("txnVersion", batch)
            .save()
        )

    answer_stacks()
    threading.Thread(target=answer_questions, args=[spark, spec], daemon=True).start()
    checkpoint = f"{spec.directory}/checkpoint"
    return rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def until_stopped(spec: Spec, query: StreamingQuery) -> None:
    """Wait until the run shall stop.

    Raises:
        StreamingQueryException: the query failed.
    """
    while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]
        if stop_file(spec).exists():
            query.stop()
            return

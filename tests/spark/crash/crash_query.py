"""The query that is killed: numbered rows from a topic, a shuffle, rows to two topics. ``python -m
tests.spark.crash.crash_query SPEC`` runs it once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aioprod.spark import spark_session_builder

from .crash_foreach import SETTINGS as FOREACH_SETTINGS
from .crash_foreach import start_writing, until_stopped
from .crash_source import WatchedDataSource
from .crash_spec import Spec, load_spec, result_path

_QUERY_LIMIT_S = 360
_SETTINGS = {
    "spark.driver.memory": "640m",
    "spark.executor.memory": "512m",
    # So that the number of tasks behind a shuffle follows the number of cores, also for a few rows.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": "1b",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
}


def source_rows(spark: SparkSession, spec: Spec) -> DataFrame:
    """The source topic's values, shuffled by value, or with ``foreachBatch`` in turn."""
    options = {
        "kafka.bootstrap.servers": spec.servers,
        "subscribe": spec.source,
        "startingOffsets": "earliest",
    }
    options["maxOffsetsPerTrigger"] = str(spec.rows_per_batch)
    if spec.min_partitions is not None:
        options["minPartitions"] = str(spec.min_partitions)
    rows: DataFrame = (
        spark.readStream.format("aioprod_watched")
        .options(**options)
        .load()
        .select(F.col("value").cast("string").alias("n"))
    )
    if spec.scenario == "foreachBatch":
        assert spec.repartition is not None
        return rows.repartition(spec.repartition)
    return (
        rows.repartition("n")
        if spec.repartition is None
        else rows.repartition(spec.repartition, "n")
    )


def target_rows(rows: DataFrame, targets: list[str]) -> DataFrame:
    """Row n as key ``n`` and value ``row n`` for one of the target topics."""
    topic = F.element_at(F.array(*map(F.lit, targets)), (F.col("n").cast("int") % len(targets)) + 1)
    return rows.select(
        F.col("n").alias("key"), F.concat(F.lit("row "), "n").alias("value"), topic.alias("topic")
    )


def run(spec: Spec) -> None:
    """Copy what there is, and end; with ``foreachBatch`` end when asked to.

    Raises:
        StreamingQueryException: the query failed.
    """
    builder = spark_session_builder(spec.master, app_name="aioprod-crash", shuffle_partitions=8)
    foreach = spec.scenario == "foreachBatch"
    usual = {**_SETTINGS, **(FOREACH_SETTINGS if foreach else {})}
    for name, value in {**usual, **spec.settings}.items():
        builder = builder.config(name, value)
    spark = (
        builder.config("spark.local.dir", f"{spec.directory}/local")
        .config("spark.sql.warehouse.dir", f"{spec.directory}/sql")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN" if foreach else "ERROR")
    spec.path.with_suffix(".jvm").write_text(str(spark.sparkContext._gateway.proc.pid))  # type: ignore[union-attr]
    spark.dataSource.register(WatchedDataSource)
    rows = target_rows(source_rows(spark, spec), spec.targets)
    if foreach:
        until_stopped(spec, start_writing(spark, spec, rows))
        return
    writer = rows.writeStream.format("aioprod_watched")
    writer = writer.option("kafka.bootstrap.servers", spec.servers).options(**spec.sink_options)
    query = (
        writer.option("checkpointLocation", f"{spec.directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_QUERY_LIMIT_S), "the query did not end"


def main() -> None:
    spec = load_spec(sys.argv[1])
    threading.Thread(target=_end_with_parent, args=[spec], daemon=True).start()
    error = None
    try:
        run(spec)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    result_path(spec).write_text(json.dumps({"error": error}))
    # This closes the JVM's standard input, which ends it faster than an orderly stop.
    os._exit(0)


def _end_with_parent(spec: Spec) -> None:
    # Until the watching process has ended, which would otherwise remove the directory.
    sys.stdin.buffer.read()
    shutil.rmtree(spec.directory, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()

"""The totals as an Iceberg table, exactly once."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

OUTPUT = "lake.my_pipeline.totals"
OUTPUT_HELP = "the table of totals, in the catalog `lake`"


def session_settings() -> dict[str, str]:
    """Return Spark's settings for the sink: a catalog `lake` with its tables in a directory or
    address (hdfs://, s3a://). Iceberg 1.12 is for Spark 4.1.
    """
    return {
        "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": os.environ.get("ICEBERG_WAREHOUSE", "lake"),
        # Otherwise Spark 4.1 ends a run without `--follow` after one micro-batch, and the minutes
        # that have ended are only written by the next run with new records.
        "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
    }


def write_stream(totals: DataFrame, client: Mapping[str, str], output: str) -> DataStreamWriter:
    """Return the writer of a stream; create the table if it does not exist. Iceberg stores the
    query's id and the number of the micro-batch in the table's commit.
    """
    columns = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in totals.schema)
    totals.sparkSession.sql(f"CREATE TABLE IF NOT EXISTS {output} ({columns}) USING iceberg")
    return totals.writeStream.format("iceberg").option("path", output)


def write_span(totals: DataFrame, client: Mapping[str, str], output: str, span: str) -> None:
    """Write a span of time that was read again to a separate table. A second write replaces the
    first one.
    """
    totals.writeTo(span_output(output, span)).using("iceberg").createOrReplace()


def span_output(output: str, span: str) -> str:
    """Return the table of a span of time."""
    return f"{output}_backfill.`{span}`"


def read(spark: SparkSession, output: str) -> DataFrame:
    """Read the totals."""
    spark.sql(f"REFRESH TABLE {output}")  # a query writes in a session of its own
    return spark.table(output)

"""The totals as a Delta table, exactly once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

OUTPUT = "totals"
OUTPUT_HELP = "the directory or address (hdfs://, s3a://) of the table of totals"


def session_settings() -> dict[str, str]:
    """Return Spark's settings for the sink. Delta 4.4 is for Spark 4.2."""
    return {
        "spark.jars.packages": "io.delta:delta-spark_2.13:4.4.0",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def write_stream(totals: DataFrame, client: Mapping[str, str], output: str) -> DataStreamWriter:
    """Return the writer of a stream. Delta stores the query's id and the number of the micro-batch
    in the table's commit.
    """
    return totals.writeStream.format("delta").option("path", output)


def write_span(totals: DataFrame, client: Mapping[str, str], output: str, span: str) -> None:
    """Write a span of time that was read again to a separate table. A second write replaces the
    first one.
    """
    totals.write.format("delta").mode("overwrite").save(span_output(output, span))


def span_output(output: str, span: str) -> str:
    """Return the directory of a span of time."""
    return f"{output}-backfill/{span}"


def read(spark: SparkSession, output: str) -> DataFrame:
    """Read the totals."""
    return spark.read.format("delta").load(output)

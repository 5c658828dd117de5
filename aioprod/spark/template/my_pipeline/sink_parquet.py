"""The totals as Parquet files in a directory, exactly once: read them with Spark, which ignores the
files of micro-batches that did not end.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

OUTPUT = "totals"
OUTPUT_HELP = "the directory or address (hdfs://, s3a://) of the totals' files"


def session_settings() -> dict[str, str]:
    """Return Spark's settings for the sink."""
    return {}


def write_stream(totals: DataFrame, client: Mapping[str, str], output: str) -> DataStreamWriter:
    """Return the writer of a stream."""
    return totals.writeStream.format("parquet").option("path", output)


def write_span(totals: DataFrame, client: Mapping[str, str], output: str, span: str) -> None:
    """Write a span of time that was read again to a separate directory. A second write replaces
    the first one.
    """
    totals.write.mode("overwrite").parquet(span_output(output, span))


def span_output(output: str, span: str) -> str:
    """Return the directory of a span of time."""
    return f"{output}-backfill/{span}"


def read(spark: SparkSession, output: str) -> DataFrame:
    """Read the totals."""
    return spark.read.parquet(output)

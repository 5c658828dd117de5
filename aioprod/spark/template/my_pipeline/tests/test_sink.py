"""The records of the topic of totals."""

from __future__ import annotations

from pyspark.sql import SparkSession

from my_pipeline import sink


def test_each_minute_has_its_own_key(spark: SparkSession) -> None:
    """So a compacted topic keeps it."""
    minutes = spark.sql(
        "SELECT 'tea' AS item, make_timestamp(2026, 1, 31, 10, id, 0) AS minute, id AS sales, "
        "CAST(4.5 AS DECIMAL(9,2)) AS total FROM range(2)"
    )
    keys = [row.key for row in sink.to_records(minutes).collect()]
    assert sorted(keys) == ["tea 2026-01-31T10:00", "tea 2026-01-31T10:01"]

"""The totals that the job has written."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from aioprod.testing import ThreadedCluster
from my_pipeline import sink_iceberg


def new_output(directory: Path) -> str:
    """Return the output of a test."""
    return f"lake.{directory.name}.totals"


def written(
    spark: SparkSession, broker: ThreadedCluster, output: str, span: str | None = None
) -> list[dict[str, Any]]:
    """Return the totals by minute and item; with a span, those of its backfill."""
    place = output if span is None else sink_iceberg.span_output(output, span)
    rows = sink_iceberg.read(spark, place).orderBy("minute", "item").collect()
    return [
        {
            **row.asDict(),
            "minute": f"{row.minute.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.000Z",
            "total": float(row.total),
        }
        for row in rows
    ]

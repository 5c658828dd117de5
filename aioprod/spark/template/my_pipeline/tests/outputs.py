"""The totals that the job has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from aioprod.testing import ThreadedCluster


def new_output(directory: Path) -> str:
    """Return the output of a test."""
    return "sales.totals"


def written(
    spark: SparkSession, broker: ThreadedCluster, output: str, span: str | None = None
) -> list[dict[str, Any]]:
    """Return the totals by minute and item; with a span, those of its backfill."""
    topic = output if span is None else f"{output}.backfill"
    records = broker.records(topic, committed_only=True)
    rows = [json.loads(record.value or b"") for record in records]
    return sorted(rows, key=lambda row: (row["minute"], row["item"]))

"""The events: the requirements for records of the topic."""

from __future__ import annotations

import os

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# The columns are those of the newest schema in the registry when the job starts. It has these.
REQUIRED = ("id", "item", "price", "at")

# An event in the far future would move the watermark there and make all others late.
FUTURE = "INTERVAL 1 DAY"


def value_options() -> dict[str, str]:
    """Return the source's options for the values. Values that can't be read are null."""
    return {
        "value.format": "avro",
        "mode": "permissive",
        "schema.registry.url": os.environ.get("SCHEMA_REGISTRY_URL", "http://localhost:8081"),
    }


def reason() -> Column:
    """Return the reason why a record is not an event; null if it is one.

    The record has the columns of the source: `value` (decoded), `rawValue`, `timestamp`.
    """
    event = F.col("value")
    why = F.when(F.col("rawValue").isNull(), "no value")
    why = why.when(event.isNull(), "not of the schema")
    for name in REQUIRED:
        why = why.when(event[name].isNull(), f"{name} missing")
    return why.when(event["at"] > F.col("timestamp") + F.expr(FUTURE), "at is in the future")


def events(records: DataFrame) -> DataFrame:
    """Return the events of the records."""
    return records.where(reason().isNull()).select("value.*")

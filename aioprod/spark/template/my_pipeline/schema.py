"""The events: the requirements for records of the topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# Spark's DDL. Fields that are not listed are ignored, so producers may add some. A field that is
# added here is null in older events. `_corrupt_record` contains values that can't be read.
EVENT = "id STRING, item STRING, price DECIMAL(9,2), at TIMESTAMP, _corrupt_record STRING"
REQUIRED = ("id", "item", "price", "at")

# An event in the far future would move the watermark there and make all others late.
FUTURE = "INTERVAL 1 DAY"


def value_options() -> dict[str, str]:
    """Return the source's options for the values."""
    return {"value.format": "json", "value.schema": EVENT}


def reason() -> Column:
    """Return the reason why a record is not an event; null if it is one.

    The record has the columns of the source: `value` (decoded by `EVENT`), `rawValue`, `timestamp`.
    """
    event = F.col("value")
    why = F.when(F.col("rawValue").isNull(), "no value")
    why = why.when(event.isNull() | event["_corrupt_record"].isNotNull(), "not of the schema")
    for name in REQUIRED:
        why = why.when(event[name].isNull(), f"{name} missing")
    return why.when(event["at"] > F.col("timestamp") + F.expr(FUTURE), "at is in the future")


def events(records: DataFrame) -> DataFrame:
    """Return the events of the records."""
    return records.where(reason().isNull()).select("value.*")

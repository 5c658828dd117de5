"""The events: rows that were inserted into a table of a database, as Debezium reports them in JSON
without schemas (``value.converter.schemas.enable=false``). Updates and deletes are ignored.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# Spark's DDL. Columns that are not listed are ignored, so the table may get more. A column that is
# added here is null in older events. `_corrupt_record` contains values that can't be read.
# `price` needs decimal.handling.mode=string or double, `at` is a TIMESTAMP WITH TIME ZONE.
ROW = "id STRING, item STRING, price DECIMAL(9,2), at TIMESTAMP"
EVENT = f"op STRING, after STRUCT<{ROW}>, _corrupt_record STRING"
REQUIRED = ("id", "item", "price", "at")

# c: inserted, r: was in the table before the first change (a snapshot).
INSERTED = ("c", "r")

# An event in the far future would move the watermark there and make all others late.
FUTURE = "INTERVAL 1 DAY"


def value_options() -> dict[str, str]:
    """Return the source's options for the values."""
    return {"value.format": "json", "value.schema": EVENT}


def reason() -> Column:
    """Return the reason why a record is not a change of the table; null if it is one.

    The record has the columns of the source: `value` (decoded by `EVENT`), `rawValue`, `timestamp`.
    A record without a value follows each delete.
    """
    change, row = F.col("value"), F.col("value.after")
    inserted = change["op"].isin(*INSERTED)
    why = F.when(F.col("rawValue").isNull(), F.lit(None))
    why = why.when(change.isNull() | change["_corrupt_record"].isNotNull(), "not of the schema")
    why = why.when(change["op"].isNull(), "op missing")
    for name in REQUIRED:
        why = why.when(inserted & row[name].isNull(), f"{name} missing")
    late = row["at"] > F.col("timestamp") + F.expr(FUTURE)
    return why.when(inserted & late, "at is in the future")


def events(records: DataFrame) -> DataFrame:
    """Return the inserted rows of the records."""
    changes = records.where(reason().isNull())
    return changes.where(F.col("value.op").isin(*INSERTED)).select("value.after.*")

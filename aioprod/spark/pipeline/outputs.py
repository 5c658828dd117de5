"""The dead letters of an application."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aioprod import dead_letter_headers


def dead_letters(records: DataFrame, reason: Column, value: str = "value") -> DataFrame:
    """Return the records that have a reason, ready to be written: key, value and headers unchanged,
    and five more headers.

    ``dead-letter.reason`` contains the reason; ``dead-letter.topic``, ``.partition`` and
    ``.offset`` the origin of the record; ``.timestamp`` its timestamp in ms since 1970.

    Args:
        records: rows of a source with the option ``includeHeaders``.
        reason: the reason why a record is invalid, as text; null if it is valid.
        value: the column with the undecoded value.
    """
    notes: Mapping[str, Column] = {
        "reason": reason,
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.unix_millis("timestamp"),
    }
    added = F.array(*(_header(name, note) for name, note in notes.items()))
    given = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return records.where(reason.isNotNull()).select(
        "key", F.col(value).alias("value"), F.concat(given, added).alias("headers")
    )


def _header(name: str, value: Column) -> Column:
    key = F.lit(dead_letter_headers.SPARK + name).alias("key")
    return F.struct(key, value.cast("string").cast("binary").alias("value"))

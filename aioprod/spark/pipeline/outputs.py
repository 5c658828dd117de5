"""The dead letters of an application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aioprod import dead_letter_headers
from aioprod.spark.progress import DEAD_LETTERS

# Spark's observations are aggregates of constant size. Reasons are divided into groups by a hash;
# a micro-batch has samples of two reasons of a group, the first and the last by their text. With
# this salt, no group has more than two reasons of the demo or of a new project.
_GROUPS: Final = 8
_SALT: Final = 4
_SAMPLE_LENGTH: Final = 200


def dead_letters(
    records: DataFrame, reason: Column, value: str = "value", *, observed: bool = False
) -> DataFrame:
    """Return the records that have a reason, ready to be written: key, value and headers unchanged,
    and five more headers.

    ``dead-letter.reason`` contains the reason; ``dead-letter.topic``, ``.partition`` and
    ``.offset`` the origin of the record; ``.timestamp`` its timestamp in ms since 1970.

    Args:
        records: rows of a source with the option ``includeHeaders``.
        reason: the reason why a record is invalid, as text; null if it is valid.
        value: the column with the undecoded value.
        observed: count the dead letters, with samples, for `QueryProgress` and the page. A sample
            has the reason, the origin and the first 200 characters of the value.
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
    rejected = records.where(reason.isNotNull())
    if observed:
        rejected = rejected.observe(
            DEAD_LETTERS, F.count(F.lit(1)).alias("rows"), _samples(reason, value)
        )
    return rejected.select(
        "key", F.col(value).alias("value"), F.concat(given, added).alias("headers")
    )


def _samples(reason: Column, value: str) -> Column:
    """Return the newest dead letters of the first and of the last reason of each group."""
    time, group = F.unix_millis("timestamp"), F.pmod(F.hash(F.lit(_SALT), reason), F.lit(_GROUPS))
    text = F.substring(F.make_valid_utf8(F.col(value).cast("string")), 1, _SAMPLE_LENGTH)
    more = ("topic", "partition", "offset", time.alias("timestamp"), text.alias("value"))
    samples = []
    for newest, order in ((F.min, -time), (F.max, time)):
        sample = F.struct(reason.alias("reason"), order.alias("order"), *more)
        found = (newest(F.when(group == number, sample)) for number in range(_GROUPS))
        samples += [F.to_json(each.dropFields("order")) for each in found]
    return F.array(*samples).alias("samples")


def _header(name: str, value: Column) -> Column:
    key = F.lit(dead_letter_headers.SPARK + name).alias("key")
    return F.struct(key, value.cast("string").cast("binary").alias("value"))

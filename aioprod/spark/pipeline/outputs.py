"""Writes of an application: dead letters, and micro-batches of ``foreachBatch``."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def dead_letters(records: DataFrame, reason: Column, value: str = "value") -> DataFrame:
    """Return the records with a reason, ready to be written: key, value and headers unchanged, and
    five more headers.

    ``dead-letter.reason`` says what is wrong; ``dead-letter.topic``, ``.partition`` and ``.offset``
    where the record is; ``.timestamp`` its timestamp in ms since 1970.

    Args:
        records: rows of a source with the option ``includeHeaders``.
        reason: why a record is wrong, in words; null if it is not.
        value: the column with the undecoded value.
    """
    notes: Mapping[str, Column] = {
        "reason": reason,
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.unix_millis("timestamp"),
    }
    added = F.array(*(_header(f"dead-letter.{name}", note) for name, note in notes.items()))
    given = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return records.where(reason.isNotNull()).select(
        "key", F.col(value).alias("value"), F.concat(given, added).alias("headers")
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def write_once(
    rows: DataFrame, batch: DataFrame, batch_id: int, options: Mapping[str, str]
) -> None:
    """Write rows of a micro-batch in ``foreachBatch`` to Kafka. A micro-batch that Spark repeats is
    not written again.

    Args:
        rows: the rows to write, which follow from the micro-batch.
        batch, batch_id: the arguments of the function that ``foreachBatch`` calls.
        options: the sink's options.
    """
    once = {"txnAppId": query_id(batch), "txnVersion": str(batch_id)}
    rows.write.format("aioprod").options(**options, **once).mode("append").save()


def query_id(batch: DataFrame) -> str:
    """Return the id of the query that calls ``foreachBatch`` with this micro-batch."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    assert found is not None, "Spark sets it in foreachBatch"
    return found

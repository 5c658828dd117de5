"""The totals as records of a Kafka topic, exactly once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

OUTPUT = "my-pipeline.totals"
OUTPUT_HELP = "the topic of the totals"


def session_settings() -> dict[str, str]:
    """Return Spark's settings for the sink."""
    return {}


def to_records(totals: DataFrame) -> DataFrame:
    """Return the totals as JSON, keyed by item and minute: a compacted topic keeps each minute."""
    key = F.concat_ws(" ", "item", F.date_format("minute", "yyyy-MM-dd'T'HH:mm"))
    value = F.struct("item", "minute", "sales", "total")
    return totals.select(key.alias("key"), F.to_json(value, {"timeZone": "UTC"}).alias("value"))


def write_stream(totals: DataFrame, client: Mapping[str, str], output: str) -> DataStreamWriter:
    """Return the writer of a stream."""
    records = to_records(totals).writeStream.format("aioprod")
    return records.options(**client).option("topic", output)


def write_span(totals: DataFrame, client: Mapping[str, str], output: str, span: str) -> None:
    """Write a span of time that was read again to a separate topic. A second write of the same span
    writes nothing, because it has the same id.
    """
    topic = f"{output}.backfill"
    once = {"txnAppId": f"{topic}-{span}", "txnVersion": "0"}
    writer = to_records(totals).write.format("aioprod").mode("append")
    writer.options(**client, **once, topic=topic).save()

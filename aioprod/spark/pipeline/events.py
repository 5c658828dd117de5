"""What comes in: records of a topic, parsed once, by a schema; and the reason in words for each
that is no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

if TYPE_CHECKING:
    from aioprod.spark.pipeline.options import PipelineOptions

# Only what is used: the parser skips the other fields. The delay may be written as 2 or 2.0; null
# is a cancelled flight.
EVENT_SCHEMA = StructType(
    [
        StructField("carrier", StringType()),
        StructField("origin", StringType()),
        StructField("dest", StringType()),
        StructField("dep_delay", DoubleType()),
        StructField("time_hour", TimestampType()),
    ]
)
REQUIRED = ("carrier", "time_hour", "origin", "dest")

# A departure is told of after it happened. One event from the year 9999 would move the watermark
# there, and every other event would be late.
_FUTURE_LIMIT = "INTERVAL 1 DAY"
# As text any JSON value passes; these can be of a wrong type.
_KINDS = {"dep_delay": "a number", "time_hour": "a time"}
_CORRUPT = "_corrupt_record"
_PARSE_SCHEMA = StructType([*EVENT_SCHEMA.fields, StructField(_CORRUPT, StringType())])
# No timestampFormat: Spark's own parser of ISO 8601 takes half the time of one with a pattern.
_PARSE_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "timeZone": "UTC",
    "allowNonNumericNumbers": "false",
}


def read_records(
    spark: SparkSession, options: PipelineOptions, *, streaming: bool = True, headers: bool = False
) -> DataFrame:
    """The topic's committed records from the beginning, with the columns of Spark's Kafka
    source.
    """
    reader = spark.readStream if streaming else spark.read
    settings = {
        **options.client,
        "subscribe": options.topic,
        "startingOffsets": "earliest",
        "includeHeaders": str(headers).lower(),
    }
    # What a producer has aborted is no event.
    settings["kafka.isolation.level"] = "read_committed"
    if options.max_offsets_per_trigger is not None and streaming:
        settings["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    return reader.format(options.source_format).options(**settings).load()


def judge_records(records: DataFrame) -> DataFrame:
    """The records with two more columns: ``event``, what their JSON says, and ``reason``, why they
    are no event, null where they are one.
    """
    event = F.from_json(F.col("value").cast("string"), _PARSE_SCHEMA, _PARSE_OPTIONS)
    # Filters don't pass a generator. Without it Spark would move those on the event below the
    # parser, by parsing every record twice.
    return records.select("*", F.explode(F.array(event)).alias("event")).withColumn(
        "reason", _reason()
    )


def parse_events(records: DataFrame) -> DataFrame:
    """The events of departed flights, one column for each field; cancelled flights (no delay) and
    records that are no event are left out.
    """
    judged = judge_records(records).where(
        F.col("reason").isNull() & F.col("event.dep_delay").isNotNull()
    )
    return judged.select(*(F.col(f"event.{name}") for name in EVENT_SCHEMA.names))


def dead_letters(records: DataFrame) -> DataFrame:
    """The records that are no event, to be written: key, value and headers as they came, and five
    headers more.

    ``dead-letter.reason`` says in words what is wrong; ``dead-letter.topic``, ``.partition`` and
    ``.offset`` where the record is, ``.timestamp`` its time in ms since 1970. ``records`` need the
    column ``headers`` (option ``includeHeaders``).
    """
    notes: Mapping[str, Column] = {
        "reason": F.col("reason"),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.unix_millis("timestamp"),
    }
    added = F.array(*(_header(f"dead-letter.{name}", value) for name, value in notes.items()))
    given = F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>"))
    return (
        judge_records(records)
        .where(F.col("reason").isNotNull())
        .select("key", "value", F.concat(given, added).alias("headers"))
    )


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def _reason() -> Column:
    event, delay = F.col("event"), F.col("event.dep_delay")
    reason = F.when(F.col("value").isNull(), "no value").when(
        event.isNull() | event[_CORRUPT].isNotNull(), _damage()
    )
    for name in REQUIRED:
        reason = reason.when(event[name].isNull(), f"{name} missing")
    reason = reason.when(
        event["time_hour"] > F.col("timestamp") + F.expr(_FUTURE_LIMIT),
        "time_hour is in the future",
    )
    return reason.when(F.abs(delay) == float("inf"), "dep_delay is not a number")  # 1e999


def _damage() -> Column:
    """What is wrong with a value that the parser did not get through: looked at again, for it only
    says that something is.
    """
    document = F.try_parse_json(F.col("value").cast("string"))
    wrong = [F.when(document.isNull(), "not JSON")]
    for name, kind in _KINDS.items():
        given = F.try_variant_get(document, f"$.{name}", "variant")
        unused = F.col(f"event.{name}").isNull()
        wrong.append(
            F.when(unused & given.isNotNull() & ~F.is_variant_null(given), f"{name} is not {kind}")
        )
    return F.coalesce(*wrong, F.lit("not a JSON object"))

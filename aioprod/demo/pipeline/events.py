"""Parses the records of a topic once, by a schema, and gives the reason in words for each one that
is not an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

from aioprod.spark.pipeline.outputs import dead_letters as with_origin

if TYPE_CHECKING:
    from aioprod.demo.pipeline.options import PipelineOptions

# Only the fields used: the parser skips others. The delay may be written as 2 or 2.0; null is a
# cancelled flight.
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

# Departures are reported after they happened. One event from the year 9999 would move the
# watermark there, and all other events would be late.
_FUTURE_LIMIT = "INTERVAL 1 DAY"
# Any JSON value can be read as text; these fields can have a wrong type.
_KINDS = {"dep_delay": "a number", "time_hour": "a time"}
_CORRUPT = "_corrupt_record"
_PARSE_SCHEMA = StructType([*EVENT_SCHEMA.fields, StructField(_CORRUPT, StringType())])
# No timestampFormat: Spark's own parser of ISO 8601 takes half the time of a pattern.
_PARSE_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "timeZone": "UTC",
    "allowNonNumericNumbers": "false",
}


def read_records(
    spark: SparkSession, options: PipelineOptions, *, streaming: bool = True, headers: bool = False
) -> DataFrame:
    """Read the topic's committed records from the beginning, with the columns of Spark's Kafka
    source. This library's source also decodes them: column ``event``.
    """
    reader = spark.readStream if streaming else spark.read
    settings = {
        **options.client,
        "subscribe": options.topic,
        "startingOffsets": "earliest",
        "includeHeaders": str(headers).lower(),
    }
    # Skips records of aborted transactions.
    settings["kafka.isolation.level"] = "read_committed"
    if options.max_offsets_per_trigger is not None and streaming:
        settings["maxOffsetsPerTrigger"] = str(options.max_offsets_per_trigger)
    decodes = options.source_format == "aioprod"
    if decodes:
        settings |= {
            **_PARSE_OPTIONS,
            "value.format": "json",
            "value.schema": _PARSE_SCHEMA.simpleString(),
            "includeRawValue": "true",
        }
    records = reader.format(options.source_format).options(**settings).load()
    return (
        records.withColumnsRenamed({"value": "event", "rawValue": "value"}) if decodes else records
    )


def judge_records(records: DataFrame) -> DataFrame:
    """Add two columns: ``event``, the parsed JSON, and ``reason``, why the record is not an event;
    null if it is one.
    """
    if "event" not in records.columns:
        event = F.from_json(F.col("value").cast("string"), _PARSE_SCHEMA, _PARSE_OPTIONS)
        # Spark does not push filters through a generator. Without it filters on the event would
        # move below the parser, and every record would be parsed twice.
        records = records.select("*", F.explode(F.array(event)).alias("event"))
    return records.withColumn("reason", _reason())


def parse_events(records: DataFrame) -> DataFrame:
    """Return the events of departed flights, one column for each field, without cancelled flights
    (no delay) and records that are not events.
    """
    judged = judge_records(records).where(
        F.col("reason").isNull() & F.col("event.dep_delay").isNotNull()
    )
    return judged.select(*(F.col(f"event.{name}") for name in EVENT_SCHEMA.names))


def dead_letters(records: DataFrame) -> DataFrame:
    """Return the records that are not events, ready to be written and counted, see
    `aioprod.spark.pipeline.dead_letters`. ``records`` need the column ``headers`` (option
    ``includeHeaders``).
    """
    return with_origin(judge_records(records), F.col("reason"), observed=True)


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
    """Return what is wrong with a value that the parser refused: the parser does not say."""
    document = F.try_parse_json(F.col("value").cast("string"))
    wrong = [F.when(document.isNull(), "not JSON")]
    for name, kind in _KINDS.items():
        given = F.try_variant_get(document, f"$.{name}", "variant")
        unused = F.col(f"event.{name}").isNull()
        wrong.append(
            F.when(unused & given.isNotNull() & ~F.is_variant_null(given), f"{name} is not {kind}")
        )
    return F.coalesce(*wrong, F.lit("not a JSON object"))

"""The samples of dead letters that a micro-batch reports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from aioprod.spark.pipeline.outputs import _samples

pytestmark = pytest.mark.spark

FIELDS = ("id missing", "item missing", "price missing", "at missing")
REASONS = {
    "json": ("no value", "not of the schema", *FIELDS, "at is in the future"),
    "debezium": ("not of the schema", "op missing", *FIELDS, "at is in the future"),
    "demo": (
        *("no value", "not JSON", "not a JSON object"),
        *("carrier missing", "time_hour missing", "origin missing", "dest missing"),
        *("dep_delay is not a number", "time_hour is not a time", "time_hour is in the future"),
    ),
}
NEWEST_MS = 1_800_000_000_000


def samples(spark: SparkSession, reasons: tuple[str, ...]) -> list[dict[str, Any]]:
    """The samples of two dead letters for each reason, the newer one first."""
    number = F.floor(F.col("id") / 2).cast("int")
    frame = spark.range(2 * len(reasons)).select(
        F.element_at(F.array(*map(F.lit, reasons)), number + 1).alias("reason"),
        F.lit("t").alias("topic"),
        F.lit(0).alias("partition"),
        number.cast("long").alias("offset"),
        F.timestamp_millis(F.lit(NEWEST_MS) - 60_000 * (F.col("id") % 2)).alias("timestamp"),
        F.lit(b"\xff").alias("value"),
    )
    (found,) = frame.agg(_samples(F.col("reason"), "value")).collect()
    return [json.loads(each) for each in found["samples"] if each is not None]


@pytest.mark.parametrize("kind", REASONS)
def test_each_reason_of_the_demo_and_of_new_projects_has_one(
    session: SparkSession, kind: str
) -> None:
    assert {each["reason"] for each in samples(session, REASONS[kind])} == {*REASONS[kind]}


def test_a_sample_is_the_newest_dead_letter_of_its_reason(session: SparkSession) -> None:
    for each in samples(session, REASONS["json"]):
        assert each == {
            "reason": each["reason"],
            "topic": "t",
            "partition": 0,
            "offset": REASONS["json"].index(each["reason"]),
            "timestamp": NEWEST_MS,
            "value": "\ufffd",
        }

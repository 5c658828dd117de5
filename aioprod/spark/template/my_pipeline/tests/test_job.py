"""The whole job, with aioprod's embedded broker and a Spark session for all tests."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aioprod.spark import QueryProgress
from aioprod.testing import ThreadedCluster
from aioprod.testing.pytest_plugin.blocking import BlockingProducer
from my_pipeline import job

from .events import Event, malformed, with_more_fields
from .outputs import new_output, written


@pytest.fixture
def options(kafka_broker: ThreadedCluster, tmp_path: Path) -> job.Options:
    return job.Options(
        bootstrap_servers=kafka_broker.bootstrap_servers,
        checkpoint=str(tmp_path / "checkpoint"),
        topic="sales",
        output=new_output(tmp_path),
    )


def run(
    spark: SparkSession, options: job.Options, reasons: set[str] | None = None
) -> dict[str, int]:
    """Run the job over what is in the topic; return its counts. Add the reasons of dead letters."""
    counts = {"rows": 0, "late": 0, "dead letters": 0}

    def add(progress: QueryProgress) -> None:
        counts["rows"] += progress.rows if progress.query == "totals" else 0
        counts["late"] += progress.late_rows
        counts["dead letters"] += progress.dead_letters or 0
        if reasons is not None:
            reasons.update(sample["reason"] for sample in progress.dead_letter_samples)

    job.run(spark, options, on_progress=add, timeout_s=300)
    return counts


def row(minute: str, item: str, sales: int, total: float) -> dict[str, Any]:
    at = f"2026-01-31T{minute}:00.000Z"
    return {"item": item, "minute": at, "sales": sales, "total": total}


def test_minutes_are_written_when_the_watermark_has_passed_them(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    on_time = [event("10:00:10"), event("10:00:50", price=1.25), event("10:01:00", "milk")]
    producer.send_many("sales", [*on_time, event("10:30:00")])
    assert run(spark, options) == {"rows": 4, "late": 0, "dead letters": 0}
    first = [row("10:00", "tea", 2, 5.75), row("10:01", "milk", 1, 4.5)]
    assert written(spark, kafka_broker, options.output) == first

    # 10:19:59 is more than ten minutes before 10:30, which is too late; 10:21:30 is not.
    producer.send_many("sales", [event("10:19:59"), event("10:21:30"), event("11:00:00")])
    assert run(spark, options) == {"rows": 3, "late": 1, "dead letters": 0}
    more = [row("10:21", "tea", 1, 4.5), row("10:30", "tea", 1, 4.5)]
    assert written(spark, kafka_broker, options.output) == [*first, *more]


def test_records_that_are_not_events_are_dead_letters(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    bad = malformed(event)
    for value in bad:
        producer.send_and_wait("sales", value, key=b"k", headers=[("trace", b"7")])
    producer.send_many("sales", [event("10:00:00")])
    reasons: set[str] = set()
    assert run(spark, options, reasons) == {"rows": 5, "late": 0, "dead letters": 4}
    assert reasons == set(bad.values())  # what the page shows
    found = {}
    for letter in kafka_broker.records("sales.dead-letters", committed_only=True):
        (trace, *notes), headers = letter.headers, dict(letter.headers)
        assert (letter.key, trace, len(notes)) == (b"k", ("trace", b"7"), 5)
        place = (
            int(headers["dead-letter.partition"] or b""),
            int(headers["dead-letter.offset"] or b""),
        )
        original = next(r for r in kafka_broker.records("sales", place[0]) if r.offset == place[1])
        assert original.value == letter.value
        found[letter.value] = (headers["dead-letter.reason"] or b"").decode()
    assert found == bad


def test_a_second_run_reads_only_what_is_new(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    producer.send_many("sales", [event("10:00:10"), event("11:00:00")])
    assert run(spark, options)["rows"] == 2
    assert run(spark, options)["rows"] == 0
    assert written(spark, kafka_broker, options.output) == [row("10:00", "tea", 1, 4.5)]


def test_an_event_that_is_sent_twice_counts_once(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    tea, milk = event("10:00:10"), event("10:00:20", "milk")
    producer.send_many("sales", [tea, milk, tea])
    assert run(spark, options)["rows"] == 3
    producer.send_many("sales", [milk, event("11:00:00")])  # again, in the next run
    assert run(spark, options) == {"rows": 2, "late": 0, "dead letters": 0}
    once = [row("10:00", "milk", 1, 4.5), row("10:00", "tea", 1, 4.5)]
    assert written(spark, kafka_broker, options.output) == once


def test_a_span_of_time_is_computed_again_by_the_same_code(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    begin, end = (datetime(2026, 1, 31, hour, tzinfo=UTC) for hour in (10, 11))
    sent = ["09:59:59", "10:00:10", "10:30:00", "10:00:50", "11:00:00"]
    for time in sent:
        at = int(datetime.fromisoformat(f"2026-01-31T{time}Z").timestamp() * 1000)
        producer.send_and_wait("sales", event(time), timestamp_ms=at)
        producer.send_and_wait("sales", b"no json", timestamp_ms=at)
    for _ in range(2):  # the second time nothing is written
        job.backfill(spark, options, (begin, end))
        # In a batch, no watermark drops late events.
        expected = [row("10:00", "tea", 2, 9.0), row("10:30", "tea", 1, 4.5)]
        span = "20260131T100000Z-20260131T110000Z"
        assert written(spark, kafka_broker, options.output, span) == expected
        letters = kafka_broker.records("sales.dead-letters.backfill", committed_only=True)
        assert len(letters) == 3


def test_producers_may_add_fields(
    spark: SparkSession,
    kafka_broker: ThreadedCluster,
    producer: BlockingProducer,
    options: job.Options,
    event: Event,
) -> None:
    newer = with_more_fields(event, "10:00:20")
    producer.send_many("sales", [event("10:00:10"), newer, event("11:00:00")])
    assert run(spark, options) == {"rows": 3, "late": 0, "dead letters": 0}
    assert written(spark, kafka_broker, options.output) == [row("10:00", "tea", 2, 9.0)]

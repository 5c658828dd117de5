"""The progress of streaming queries, out of Spark's reports; no Java is needed."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)
from rich.console import Console

from aioprod.spark import ProgressListener, QueryProgress
from aioprod.spark.pipeline.table import ProgressTable

from .page_progress import batch

RUN = UUID(int=7)
SOURCE = {
    "description": "aioprod",
    "startOffset": None,
    "numInputRows": 40,
    "inputRowsPerSecond": 1.0,
    "processedRowsPerSecond": 1.0,
}
STATE = {
    "operatorName": "stateStoreSave",
    "numRowsTotal": 1,
    "numRowsUpdated": 1,
    "numRowsRemoved": 0,
    "allUpdatesTimeMs": 1,
    "allRemovalsTimeMs": 1,
    "commitTimeMs": 1,
    "memoryUsedBytes": 1,
    "numRowsDroppedByWatermark": 2,
    "numShufflePartitions": 2,
    "numStateStoreInstances": 2,
    "customMetrics": {},
}


def report(
    end: object = None,
    latest: object = None,
    *,
    name: str | None = "flights: delays",
    **changes: Any,
) -> StreamingQueryProgress:
    """A report as Spark gives it."""
    fields = {
        "id": str(UUID(int=3)),
        "runId": str(RUN),
        "name": name,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 5,
        "batchDuration": 1250,
        "numInputRows": 40,
        "processedRowsPerSecond": 32.0,
        "stateOperators": [STATE],
        "sink": {"description": "x", "numOutputRows": -1},
        "sources": [{**SOURCE, "endOffset": end, "latestOffset": latest}],
    }
    return StreamingQueryProgress.fromJson(fields | changes)


def progress_event(progress: StreamingQueryProgress) -> QueryProgressEvent:
    return QueryProgressEvent(progress)


def terminated(run_id: UUID) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(UUID(int=3), run_id, None, None)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({}, (None, None)),
        ({"watermark": "1970-01-01T00:00:00.000Z"}, (None, None)),
        ({"watermark": "2025-12-31T23:50:00.000Z"}, (601.25, None)),
        (
            {"watermark": "2025-12-31T23:50:00.000Z", "max": "2025-12-31T23:59:59.250Z"},
            (601.25, 2.0),
        ),
        ({"watermark": "2026-01-01T01:00:00.000Z", "max": "soon"}, (0.0, None)),
    ],
)
def test_the_watermark_and_events_have_an_age(
    times: dict[str, str], expected: tuple[float | None, float | None]
) -> None:
    progress = QueryProgress.of(report(eventTime=times))
    assert (progress.watermark_delay_s, progress.event_age_s) == expected


@pytest.mark.parametrize(
    ("start", "end", "skew"),
    [
        ({"a": {"0": 10, "1": 10}}, {"a": {"0": 20, "1": 20}}, 1.0),
        ({"a": {"0": 10, "1": 10}}, {"a": {"0": 40, "1": 20}}, 1.5),
        ({"a": {"0": 10}}, {"a": {"0": 10, "1": 8}, "b": {"0": 1}}, 8 / 3),  # new partitions
        ({"a": {"0": 10, "1": 10}}, {"a": {"0": 10, "1": 10}}, None),
        ({"a": {"0": 10}}, {"a": {"0": 20}}, None),
        (None, {"a": {"0": 10, "1": 10}}, None),  # the first micro-batch
        (7, 9, None),  # another source's
    ],
)
def test_the_skew_compares_the_partitions_of_the_batch(
    start: object, end: object, skew: float | None
) -> None:
    sources = [{**SOURCE, "startOffset": start, "endOffset": end, "latestOffset": end}]
    assert QueryProgress.of(report(sources=sources)).skew == skew


def test_bytes_are_observed() -> None:
    assert batch().bytes_per_second is None
    assert batch(observed={"input": {"bytes": None}}).bytes_per_second is None  # of no rows
    progress = batch(observed={"input": {"bytes": 10_000}})
    assert (progress.bytes_read, progress.bytes_per_second) == (10_000, 8_000.0)
    assert batch(observed={"input": {"bytes": 10}}, batch_ms=0).bytes_per_second == 10_000


@pytest.mark.parametrize(
    ("end", "latest", "lag"),
    [
        ({"a": {"0": 10, "1": 5}}, {"a": {"0": 12, "1": 5}}, 2),
        # New partitions and topics.
        ({"a": {"0": 10}}, {"a": {"0": 12, "1": 7}, "b": {"0": 1}}, 10),
        ({"a": {"0": 10}}, {"a": {"0": 9}}, 0),  # the latest offsets were asked for earlier
        ({"a": {"0": 10}}, None, None),
        (None, {"a": {"0": 9}}, None),
        (7, 9, None),  # another source's
    ],
)
def test_the_lag_is_what_the_topics_keep_beyond_the_batch(
    end: object, latest: object, lag: int | None
) -> None:
    assert QueryProgress.of(report(end, latest)).lag == lag


def test_lag_and_late_rows_add_up_over_sources_and_operators() -> None:
    source = {**SOURCE, "endOffset": {"a": {"0": 1}}, "latestOffset": {"a": {"0": 4}}}
    progress = QueryProgress.of(report(sources=[source, source], stateOperators=[STATE, STATE]))
    assert (progress.lag, progress.late_rows) == (6, 4)


def test_a_report_becomes_one_line() -> None:
    progress = QueryProgress.of(report({"a": {"0": 1}}, {"a": {"0": 1001}}))
    assert (
        str(progress)
        == "flights: delays, batch 5: 40 rows in 1,250 ms (32/s), lag 1,000, 2 late rows dropped"
    )
    assert str(QueryProgress.of(report(name=None, stateOperators=[]))).endswith("lag unknown")
    assert QueryProgress.of(report(name=None)).query == str(UUID(int=3))


def test_a_batch_without_rows_has_no_rate() -> None:
    assert (
        QueryProgress.of(
            report(numInputRows=0, processedRowsPerSecond=float("nan"))
        ).rows_per_second
        == 0.0
    )


def test_the_listener_keeps_the_newest_calls_back_and_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[QueryProgress] = []
    listener = ProgressListener(seen.append)
    with caplog.at_level(logging.INFO, "aioprod.spark.progress"):
        for batch_id in (5, 6):
            listener.onQueryProgress(progress_event(report(batchId=batch_id)))
        listener.onQueryProgress(progress_event(report(name="other")))
    assert [progress.batch_id for progress in seen] == [5, 6, 5]
    assert {name: progress.batch_id for name, progress in listener.newest.items()} == {
        "flights: delays": 6,
        "other": 5,
    }
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "flights: delays",
        "flights: delays",
        "other",
    ]


def test_a_callback_that_fails_is_logged_and_stops_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = ProgressListener(lambda progress: print(1 // 0))
    listener.onQueryProgress(progress_event(report()))
    assert "ZeroDivisionError" in caplog.text
    assert listener.newest["flights: delays"].rows == 40


def test_java_is_asked_once_for_what_each_report_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Package:
        def __getattr__(self, name: str) -> Package:
            asked.append(name)
            return Package()

    jvm = Package()
    monkeypatch.setattr("pyspark.SparkContext._jvm", jvm)
    found = []
    for _ in range(3):
        ProgressListener().onQueryProgress(progress_event(report()))
        found.append(jvm.py4j.reflection.TypeUtil)  # as py4j has it in is_instance_of
    assert found[0] is found[1] is found[2]
    assert asked == ["py4j", "reflection", "TypeUtil"]


def test_who_waits_for_the_end_is_woken_by_the_last_run() -> None:
    listener, other = ProgressListener(), UUID(int=8)
    listener.onQueryTerminated(terminated(RUN))
    assert listener.wait_until_ended([str(RUN)], 0)
    assert not listener.wait_until_ended([str(RUN), str(other)], 0)
    threading.Timer(0.05, listener.onQueryTerminated, [terminated(other)]).start()
    assert listener.wait_until_ended([str(RUN), str(other)], 10)


def test_the_table_shows_each_querys_last_batch_with_rows_and_its_sum() -> None:
    table = ProgressTable()
    console = Console(width=80, file=io.StringIO())
    for rows, latest in ((1_000, 6_000), (500, 5_000), (0, 5_000)):
        end = {"a": {"0": 4_000}}
        table.add(QueryProgress.of(report(end, {"a": {"0": latest}}, numInputRows=rows)))
    table.add(QueryProgress.of(report(name="flights: dead letters", numInputRows=0)))
    with console.capture() as capture:
        console.print(table)
    lines = [line.split() for line in capture.get().splitlines() if line.strip()]
    assert ["flights:", "dead", "letters", "5", "0", "32", "1.2", "s", "0"] in lines
    assert ["flights:", "delays", "5", "500", "32", "1,000", "1.2", "s", "1,500"] in lines

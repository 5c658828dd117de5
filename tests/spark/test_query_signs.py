"""Stalled queries, distinguished from those that wait for records."""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from aioprod.spark import ProgressListener, QuerySigns
from aioprod.spark.alerts import Alert, AlertRules
from aioprod.spark.page.history import ProgressHistory
from aioprod.spark.pipeline import watching
from tests.waiting import wait_until

from .page_progress import NUMBERS, REJECTED, batch, signs_of

FIRST, SECOND = UUID(int=1), UUID(int=2)
TIMESTAMP = "2026-01-01T00:00:00.000Z"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_event_of_a_query_is_a_sign(clock: Clock) -> None:
    signs = signs_of(clock)
    listener = ProgressListener(signs=signs)
    listener.onQueryStarted(QueryStartedEvent(UUID(int=3), FIRST, NUMBERS, TIMESTAMP, set()))
    listener.onQueryStarted(QueryStartedEvent(UUID(int=4), SECOND, None, TIMESTAMP, set()))
    clock.now += 31
    assert signs.stalled() == {NUMBERS: 31, str(UUID(int=4)): 31}
    listener.onQueryIdle(QueryIdleEvent(UUID(int=4), SECOND, TIMESTAMP))
    assert signs.stalled() == {NUMBERS: 31}
    assert signs.silences() == {NUMBERS: 31, str(UUID(int=4)): 0}
    listener.onQueryTerminated(QueryTerminatedEvent(UUID(int=3), FIRST, None, None))
    assert signs.stalled() == {}
    assert signs.silences() == {str(UUID(int=4)): 0}


def test_a_query_that_started_before_its_listener_is_known_by_its_first_batch(
    clock: Clock,
) -> None:
    signs = signs_of(clock, None)
    signs.seen(str(FIRST))
    assert signs.silences() == {str(FIRST): 0}
    signs.seen(str(FIRST), NUMBERS)
    signs.seen(str(FIRST))
    assert signs.silences() == {NUMBERS: 0}
    clock.now += 10**6
    assert signs.stalled() == {}  # no limit


def test_the_limit_itself_is_not_exceeded(clock: Clock) -> None:
    signs = signs_of(clock)
    signs.seen(str(FIRST), NUMBERS)
    clock.now += 30
    assert signs.stalled() == {}


def test_the_history_shows_stalled_queries_while_the_run_lasts(clock: Clock) -> None:
    signs = signs_of(clock)
    history = ProgressHistory("flights", signs=signs)
    signs.seen(str(FIRST), NUMBERS)
    clock.now += 31
    assert history.stalled() == {}  # Spark starts
    history.add(batch())
    assert history.document()["stalled"] == [{"query": NUMBERS, "silent_s": 31}]
    history.end("disk full")
    assert history.document()["stalled"] == []


def test_a_stall_is_reported_once_and_its_end_too(clock: Clock) -> None:
    reported: list[Alert] = []
    signs, rules = signs_of(clock), AlertRules("flights", reported.append)
    signs.seen(str(FIRST), NUMBERS)
    signs.seen(str(SECOND), REJECTED)
    rules.look_at_silences(signs)
    clock.now += 31
    signs.seen(str(SECOND))
    rules.look_at_silences(signs)
    clock.now += 1
    rules.look_at_silences(signs)
    assert reported == [
        Alert(
            "stalled",
            "flights",
            f"{NUMBERS}: no report for 31 s: it is processing one micro-batch, or is stalled",
            NUMBERS,
            31,
            30,
        )
    ]
    signs.seen(str(FIRST))
    rules.look_at_silences(signs)
    assert reported[1:] == [
        Alert("stalled-over", "flights", f"{NUMBERS}: no longer stalled", NUMBERS, None, 30)
    ]
    clock.now += 31
    rules.look_at_silences(signs)
    signs.ended(str(FIRST))
    signs.ended(str(SECOND))
    rules.look_at_silences(signs)
    assert [(alert.alert, alert.query) for alert in reported[2:]] == [
        ("stalled", REJECTED),
        ("stalled", NUMBERS),
        ("stalled-over", REJECTED),
        ("stalled-over", NUMBERS),
    ]


def test_the_command_looks_for_stalls_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[dict[str, Any]] = []
    sent = threading.Event()

    class Hook:
        def __init__(self, url: str) -> None:
            assert url == "http://x"

        def send(self, document: dict[str, Any]) -> None:
            reported.append(document)
            sent.set()

        def close(self) -> None:
            pass

    monkeypatch.setattr(watching, "Webhook", Hook)
    monkeypatch.setattr(watching, "_LOOK_EVERY_S", 0.01)
    parser = argparse.ArgumentParser()
    watching.add_watching(parser)
    given = parser.parse_args(["--webhook", "http://x", "--stall-timeout", "20"])
    with watching.watched(given, "program", "flights") as watch:
        assert watch.signs.limit_s == 20
        monkeypatch.setattr(watch.signs, "limit_s", 0.05)
        watch.signs.seen(str(FIRST), NUMBERS)
        assert sent.wait(10)
    assert [(each["alert"], each["query"]) for each in reported] == [("stalled", NUMBERS)]
    assert not [thread for thread in threading.enumerate() if thread.name == "aioprod-stalls"]


@pytest.mark.parametrize("text", ["19", "-1", "1.5", "soon", "²"])
def test_a_stall_timeout_that_idle_queries_would_exceed_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    watching.add_watching(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--stall-timeout", text])
    assert f"must be a whole number of at least 20 seconds, not {text!r}" in capsys.readouterr().err


def test_spark_shows_that_a_query_is_idle_and_nothing_of_a_stalled_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines, inside, release = tmp_path / "lines", threading.Event(), threading.Event()
    lines.mkdir()

    def stall(rows: DataFrame, number: int) -> None:
        inside.set()
        assert release.wait(60)

    name = "spark.sql.streaming.noDataProgressEventInterval"
    interval = spark.conf.get(name) or "10000"
    signs = QuerySigns(3)
    listener = ProgressListener(signs=signs)
    spark.streams.addListener(listener)
    try:
        spark.conf.set(name, "100")
        query = (
            spark.readStream.text(str(lines))
            .writeStream.foreachBatch(stall)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("lines")
            .start()
        )
        try:
            wait_until(lambda: "lines" in signs.silences())
            began, received = time.monotonic(), 0
            last = signs.silences()["lines"]
            while received < 5:  # it waits for records, and says so
                silent = signs.silences()["lines"]
                received, last = received + (silent < last), silent
                assert time.monotonic() < began + 60, "an idle query is silent"
                time.sleep(0.02)
            assert signs.stalled() == {}
            (lines / "one").write_text("a line\n")
            assert inside.wait(60)
            wait_until(lambda: "lines" in signs.stalled())
            release.set()
            wait_until(lambda: not signs.stalled())
        finally:
            release.set()
            query.stop()
        wait_until(lambda: not signs.silences())
    finally:
        spark.conf.set(name, interval)
        spark.streams.removeListener(listener)

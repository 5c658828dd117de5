"""The check of the results, the table, the picture and the page."""

from __future__ import annotations

import dataclasses
import io
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from aioprod.demo.charts import draw, save_page, save_png
from aioprod.demo.checking import check_result, check_sending
from aioprod.demo.expected import Delays, Expected, expect
from aioprod.demo.flights import read_airlines, read_flights
from aioprod.demo.pipeline import CarrierHourDelay, PipelineResult, RouteDelay
from aioprod.demo.planting import PLANTED
from aioprod.demo.report import describe_sending, facts, result_tables
from aioprod.demo.sending import FlightTopics, SendReport
from aioprod.demo.summary import summarise
from aioprod.spark.pipeline.running import failure_reason

TOPICS = FlightTopics("flights", "flights.cancelled")


@pytest.fixture(scope="module")
def expected() -> Expected:
    return expect(read_flights(20_000))


@pytest.fixture(scope="module")
def right(expected: Expected) -> PipelineResult:
    """Return the result that Spark should have."""
    delays = [
        CarrierHourDelay(*place, group.count, *_numbers(group))
        for place, group in expected.by_hour.items()
    ]
    worst = [(place, expected.by_route[place]) for place in expected.worst_routes()]
    routes = [RouteDelay(*place, group.count, *_numbers(group)) for place, group in worst]
    return PipelineResult(
        expected.departed + len(PLANTED), len(PLANTED), 0, delays, routes, "delays", "routes"
    )


def _numbers(group: Delays) -> tuple[float, float, float]:
    return group.mean, group.quantile(0.9), group.late_share


def test_right_results_pass(right: PipelineResult, expected: Expected) -> None:
    assert len(right.routes) == 10
    assert check_result(right, expected) == []


def _first_delay(**changes: float) -> Callable[[PipelineResult], PipelineResult]:
    return lambda result: dataclasses.replace(
        result,
        delays=[dataclasses.replace(result.delays[0], **changes), *result.delays[1:]],  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda result: dataclasses.replace(result, rows_read=result.rows_read + 1),
            "rows read by Spark",
        ),
        (lambda result: dataclasses.replace(result, dead_letters=2), "dead letters: 2, expected 3"),
        (lambda result: dataclasses.replace(result, late=1), "rows dropped as late: 1, expected 0"),
        (
            lambda result: dataclasses.replace(result, delays=result.delays[1:]),
            "flights counted by Spark",
        ),
        (lambda result: dataclasses.replace(result, delays=[]), "carriers by hours"),
        (_first_delay(flights=1000), "flights counted by Spark"),
        (_first_delay(mean_delay=1e6), "delays of 1 group"),
        (_first_delay(p90_delay=1e6), "delays of 1 group"),
        (_first_delay(late_share=2.0), "delays of 1 group"),
        (lambda result: dataclasses.replace(result, routes=result.routes[::-1]), "worst routes"),
        (lambda result: dataclasses.replace(result, routes=result.routes[1:]), "worst routes"),
    ],
)
def test_any_wrong_number_is_found(
    right: PipelineResult,
    expected: Expected,
    change: Callable[[PipelineResult], PipelineResult],
    complaint: str,
) -> None:
    assert complaint in "; ".join(check_result(change(right), expected))


@pytest.mark.parametrize(
    ("report", "stored", "complaint"),
    [
        ((9, 9, 1, 0), (11, 1), None),
        ((8, 8, 1, 0), (10, 1), "records sent: 8, expected 9"),
        ((9, 8, 1, 1), (10, 1), "records acknowledged: 8, expected 9"),
        ((9, 9, 1, 0), (12, 1), "records in topic flights: 12, expected 11"),
        ((9, 9, 1, 0), (11, 0), "records in topic flights.cancelled: 0, expected 1"),
    ],
)
def test_sent_and_stored_are_compared(
    report: tuple[int, int, int, int], stored: tuple[int, int], complaint: str | None
) -> None:
    expected = Expected(1, {("UA", "2013-01-01T10:00:00Z"): Delays([0] * 8)}, {})
    found = check_sending(
        SendReport(*report, 1.0, None), expected, dict(zip(TOPICS, stored, strict=True)), TOPICS
    )
    assert found[:1] == ([complaint] if complaint else [])


def test_hours_are_put_together_by_the_clock_of_new_york() -> None:
    # 17:00 in winter is 22:00 UTC, in summer 21:00 UTC.
    delays = [
        CarrierHourDelay("UA", "2013-01-01T22:00:00Z", 3, 10.0, 0.0, 1 / 3),
        CarrierHourDelay("UA", "2013-07-01T21:00:00Z", 1, 30.0, 0.0, 1.0),
        CarrierHourDelay("B6", "2013-07-01T22:00:00Z", 2, 40.0, 0.0, 0.5),
    ]
    table = summarise(delays)
    assert table.hours == (17, 18)
    assert table.carriers == ("B6", "UA")
    evening = table.cells["UA", 17]
    assert (evening.flights, evening.mean, evening.late_share) == (4, 15.0, 0.5)
    assert ("UA", 18) not in table.cells
    assert table.total.flights == 6
    assert table.total.mean == pytest.approx(140 / 6)


def test_picture_and_page_show_every_airline(right: PipelineResult, tmp_path: Path) -> None:
    table, names = summarise(right.delays), read_airlines()
    measurement = draw(table, names, "a test")
    report = SendReport(20_000, 20_000, 99, 0, 2.0, None)
    save_png(measurement, tmp_path / "delays.png")
    save_page(measurement, tmp_path / "delays.html", table, names, right.routes, facts(report))
    png, page = (tmp_path / "delays.png").read_bytes(), (tmp_path / "delays.html").read_text()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    assert width > 1500
    assert height > 900
    assert "<svg" in page
    for carrier in table.carriers:
        assert names[carrier] in page
    for route in right.routes:
        assert f"{route.origin} → {route.dest}" in page
    # Nothing is loaded from elsewhere: no script, no style sheet, no image but the one inside.
    assert not re.search(r"<(script|link|img|iframe)\b", page)
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", page.replace("xlink:", ""))


def test_a_picture_of_one_flight_can_be_drawn(tmp_path: Path) -> None:
    table = summarise([CarrierHourDelay("UA", "2013-01-01T22:00:00Z", 1, -3.0, -3.0, 0.0)])
    save_png(draw(table, {}, "one"), tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 5000


def test_the_printed_tables_fit_a_terminal_of_80_columns(right: PipelineResult) -> None:
    console = Console(width=80, file=io.StringIO())
    names = read_airlines()
    with console.capture() as capture:
        console.print(result_tables(summarise(right.delays), names, right.routes))
    text = capture.get()
    for carrier in {delay.carrier for delay in right.delays}:
        assert names[carrier] in text
    assert "…" not in text
    assert f"{sum(delay.flights for delay in right.delays):,}" in text


def test_failures_are_in_the_text_about_sending() -> None:
    text = describe_sending(SendReport(10, 7, 2, 3, 2.0, "no leader"), TOPICS)
    assert "10 flights sent in 2.00 s (4 records/s), 7 acknowledged" in text
    assert "5 in topic flights, 2 in topic flights.cancelled" in text
    assert "3 not delivered: no leader" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o1.start.\n: java.io.IOException: disk full\n\tat x\n",
            "java.io.IOException: disk full",
        ),
        (
            (
                "An error occurred while calling o1.start.\n: a.B: c\n\tat x\nCaused by: d.E: f\n"
                "\tat y\nCaused by: g.H: i\n\tat z\n"
            ),
            "g.H: i",
        ),
        (
            (
                ": a.B: failed: Traceback (most recent call last):\n  File 'x'\n    f()\nd.E: f\n"
                "\tat y\nCaused by: g.H: i\n"
            ),
            "d.E: f",
        ),
        (
            "the pipeline did not end within timeout_s=600",
            "the pipeline did not end within timeout_s=600",
        ),
        ("", ""),
    ],
)
def test_the_reason_is_taken_out_of_a_java_stack_trace(text: str, reason: str) -> None:
    assert failure_reason(text) == reason

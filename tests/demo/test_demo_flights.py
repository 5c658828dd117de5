"""Flights from the CSV, and their events."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from aioprod.demo import flights as flights_module
from aioprod.demo.expected import Delays, expect
from aioprod.demo.flights import COLUMNS, TEXT_COLUMNS, Flights, encode, read_airlines, read_flights


@pytest.fixture(scope="module")
def year() -> Flights:
    return read_flights()


def _event_by_csv(row: dict[str, str]) -> dict[str, str | int | None]:
    return {
        name: None if field == "NA" else field if name in TEXT_COLUMNS else int(field)
        for name, field in row.items()
    }


def test_events_are_what_the_csv_module_reads(year: Flights) -> None:
    gaps = [line for line in year.lines if b",NA," in line]
    chosen = Flights([*year.lines[::20], *gaps[::4]])
    cancelled = 0
    for line, row in zip(chosen.lines, chosen.rows(), strict=True):
        key, value, is_cancelled = encode(line)
        assert json.loads(value) == _event_by_csv(row)
        assert key.decode() == row["carrier"]
        assert is_cancelled == (row["dep_time"] == "NA")
        cancelled += is_cancelled
    assert cancelled > 1000


def test_the_year_is_complete_and_in_order(year: Flights) -> None:
    hours = [line.rsplit(b",", 1)[1] for line in year.lines]
    assert len(year) == 336_776
    assert hours == sorted(hours)
    assert (hours[0], hours[-1]) == (b"2013-01-01T10:00:00Z", b"2014-01-01T04:00:00Z")


def test_a_limit_gives_the_first_ones(year: Flights) -> None:
    assert read_flights(1234).lines == year.lines[:1234]


def test_every_carrier_has_a_name(year: Flights) -> None:
    names = read_airlines()
    assert {encode(line)[0].decode() for line in year.lines} == names.keys()
    assert names["UA"] == "United Air Lines Inc."


@pytest.mark.parametrize(
    ("header", "line", "complaint"),
    [
        (",".join(COLUMNS[1:]), "1,1", "other columns"),
        (
            ",".join(COLUMNS),
            '2013,1,1,517,515,2,830,819,11,UA,1545,"N1""4",EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z',
            "quotes",
        ),
        (
            ",".join(COLUMNS),
            "2013,1,1,517,515,2,830,819,11,UA,1545,N1é,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
            "ASCII",
        ),
    ],
)
def test_another_file_than_known_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, line: str, complaint: str
) -> None:
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", f"{header}\n{line}\n")
    monkeypatch.setattr(flights_module, "data_directory", lambda: tmp_path)
    with pytest.raises(ValueError, match=complaint):
        read_flights()


def test_expected_totals_of_the_year_are_those_of_the_csv_module(year: Flights) -> None:
    expected = expect(year)
    # The published numbers of the data set: 8,255 flights have no departure time.
    assert (expected.departed, expected.cancelled) == (328_521, 8_255)
    assert sum(delays.count for delays in expected.by_route.values()) == 328_521


def test_expected_groups_are_those_of_the_csv_module(year: Flights) -> None:
    some = Flights(year.lines[1000:6000])
    by_hour: dict[tuple[str, str], list[int]] = {}
    by_route: dict[tuple[str, str], list[int]] = {}
    for row in some.rows():
        if row["dep_time"] != "NA":
            by_hour.setdefault((row["carrier"], row["time_hour"]), []).append(int(row["dep_delay"]))
            by_route.setdefault((row["origin"], row["dest"]), []).append(int(row["dep_delay"]))
    expected = expect(some)
    assert {place: delays.minutes for place, delays in expected.by_hour.items()} == by_hour
    assert {place: delays.minutes for place, delays in expected.by_route.items()} == by_route
    means = {
        place: sum(minutes) / len(minutes)
        for place, minutes in by_route.items()
        if len(minutes) >= 50
    }
    assert (
        expected.worst_routes(limit=3, min_flights=50)
        == sorted(means, key=lambda place: (-means[place], place))[:3]
    )


def test_numbers_of_a_group() -> None:
    delays = Delays([-5, 0, 15, 16, 60])
    assert (delays.count, delays.mean, delays.late_share) == (5, 17.2, 0.4)
    # As numpy.percentile and SQL's percentile: position 0.9 * 4 = 3.6, between 16 and 60.
    assert delays.quantile(0.9) == pytest.approx(16 + 0.6 * 44)
    assert Delays([7]).quantile(0.9) == 7

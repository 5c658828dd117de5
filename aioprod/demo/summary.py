"""From delays by carrier and scheduled hour to the table that is drawn and printed: carriers by the hour of the day in New York."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from aioprod.demo.expected import CarrierHour

NEW_YORK = ZoneInfo("America/New_York")


class Figures(NamedTuple):
    """Of one group of flights: how many, their mean and 90th percentile of delay in minutes, the share (0 to 1) that left over 15 minutes late."""

    count: int
    mean: float
    p90: float
    late_share: float


class RouteFigures(NamedTuple):
    """A route and the delays of its flights."""

    origin: str
    dest: str
    figures: Figures


class Cell(NamedTuple):
    """Delays of several hours together; a percentile can't be put together from parts, so there is none."""

    count: int
    mean: float
    late_share: float


@dataclass(frozen=True, slots=True)
class DelayTable:
    """Delays by carrier and hour of the day.

    Attributes:
        carriers: codes, the longest mean delay first.
        hours: local hours of scheduled departure that have flights, ascending.
        cells: by (carrier, hour); absent where there were no flights.
        by_carrier: each carrier's whole day.
        by_hour: each hour's carriers together.
        total: everything.
    """

    carriers: tuple[str, ...]
    hours: tuple[int, ...]
    cells: Mapping[tuple[str, int], Cell]
    by_carrier: Mapping[str, Cell]
    by_hour: Mapping[int, Cell]
    total: Cell


class _Sum:
    __slots__ = ("count", "late", "minutes")

    def __init__(self) -> None:
        self.count = 0
        self.minutes = 0.0
        self.late = 0.0

    def add(self, figures: Figures) -> None:
        self.count += figures.count
        self.minutes += figures.mean * figures.count
        self.late += figures.late_share * figures.count

    def cell(self) -> Cell:
        return Cell(self.count, self.minutes / self.count, self.late / self.count) if self.count else Cell(0, 0.0, 0.0)


def summarise(delays: Mapping[CarrierHour, Figures]) -> DelayTable:
    """Put the hours of the year together by hour of the day."""
    cells: defaultdict[tuple[str, int], _Sum] = defaultdict(_Sum)
    by_carrier: defaultdict[str, _Sum] = defaultdict(_Sum)
    by_hour: defaultdict[int, _Sum] = defaultdict(_Sum)
    total = _Sum()
    local_hours = {time_hour: local_hour(time_hour) for _, time_hour in delays}
    for (carrier, time_hour), figures in delays.items():
        hour = local_hours[time_hour]
        for group in (cells[carrier, hour], by_carrier[carrier], by_hour[hour], total):
            group.add(figures)
    carriers = {code: group.cell() for code, group in by_carrier.items()}
    return DelayTable(
        carriers=tuple(sorted(carriers, key=lambda code: (-carriers[code].mean, code))),
        hours=tuple(sorted(by_hour)),
        cells={place: group.cell() for place, group in cells.items()},
        by_carrier=carriers,
        by_hour={hour: group.cell() for hour, group in by_hour.items()},
        total=total.cell(),
    )


def local_hour(time_hour: str) -> int:
    """The hour of the day in New York of an ISO 8601 time."""
    return datetime.fromisoformat(time_hour).astimezone(NEW_YORK).hour

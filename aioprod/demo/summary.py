"""From delays by carrier and scheduled hour to the table that is drawn and printed: carriers by the
hour of the day in New York.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from aioprod.demo.pipeline import CarrierHourDelay

NEW_YORK = ZoneInfo("America/New_York")


@dataclass(frozen=True, slots=True)
class Cell:
    """Delays of several hours together; a percentile can't be put together from parts, so there is
    none.

    Attributes:
        flights: how many.
        mean: mean delay in minutes.
        late_share: share, 0 to 1, that left more than 15 minutes late.
    """

    flights: int
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

    def add(self, delay: CarrierHourDelay) -> None:
        self.count += delay.flights
        self.minutes += delay.mean_delay * delay.flights
        self.late += delay.late_share * delay.flights

    def cell(self) -> Cell:
        return (
            Cell(self.count, self.minutes / self.count, self.late / self.count)
            if self.count
            else Cell(0, 0.0, 0.0)
        )


def summarise(delays: Iterable[CarrierHourDelay]) -> DelayTable:
    """Put the hours of the year together by hour of the day."""
    cells: defaultdict[tuple[str, int], _Sum] = defaultdict(_Sum)
    by_carrier: defaultdict[str, _Sum] = defaultdict(_Sum)
    by_hour: defaultdict[int, _Sum] = defaultdict(_Sum)
    total = _Sum()
    local_hour = lru_cache(maxsize=None)(_local_hour)
    for delay in delays:
        hour = local_hour(delay.time_hour)
        for group in (cells[delay.carrier, hour], by_carrier[delay.carrier], by_hour[hour], total):
            group.add(delay)
    carriers = {code: group.cell() for code, group in by_carrier.items()}
    return DelayTable(
        carriers=tuple(sorted(carriers, key=lambda code: (-carriers[code].mean, code))),
        hours=tuple(sorted(by_hour)),
        cells={place: group.cell() for place, group in cells.items()},
        by_carrier=carriers,
        by_hour={hour: group.cell() for hour, group in by_hour.items()},
        total=total.cell(),
    )


def _local_hour(time_hour: str) -> int:
    return datetime.fromisoformat(time_hour).astimezone(NEW_YORK).hour

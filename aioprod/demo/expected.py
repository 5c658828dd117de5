"""Computes the expected numbers from the CSV alone, without Kafka and Spark."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioprod.demo.flights import COLUMNS

if TYPE_CHECKING:
    from aioprod.demo.flights import Flights

LATE_MINUTES = 15
"""The delay in minutes above which a departure is late, as the US Department of Transportation
defines it.
"""

_CARRIER, _ORIGIN, _DEST = (COLUMNS.index(name) for name in ("carrier", "origin", "dest"))
_DEP_TIME, _DEP_DELAY, _TIME_HOUR = (
    COLUMNS.index(name) for name in ("dep_time", "dep_delay", "time_hour")
)


@dataclass(slots=True)
class Delays:
    """Departure delays of a group of flights, in minutes; early departures are below 0."""

    minutes: list[int] = field(default_factory=list)

    @property
    def count(self) -> int:
        """The number of flights."""
        return len(self.minutes)

    @property
    def mean(self) -> float:
        """Mean delay."""
        return sum(self.minutes) / len(self.minutes)

    @property
    def late_share(self) -> float:
        """The share that left more than 15 minutes late, 0 to 1."""
        return sum(1 for minutes in self.minutes if minutes > LATE_MINUTES) / len(self.minutes)

    def quantile(self, share: float) -> float:
        """Return the exact quantile with linear interpolation, as SQL's ``percentile`` does."""
        ordered = sorted(self.minutes)
        position = share * (len(ordered) - 1)
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Expected:
    """Totals of a set of flights.

    Attributes:
        cancelled: flights without a departure time.
        by_hour: departed flights by carrier's code and scheduled hour (ISO 8601 in UTC).
        by_route: departed flights by airport codes of origin and destination.
    """

    cancelled: int
    by_hour: dict[tuple[str, str], Delays]
    by_route: dict[tuple[str, str], Delays]

    @property
    def departed(self) -> int:
        """The number of flights with a departure time."""
        return sum(delays.count for delays in self.by_hour.values())

    def worst_routes(self, *, limit: int = 10, min_flights: int = 100) -> list[tuple[str, str]]:
        """Return the routes with the longest mean delay among those of at least ``min_flights``
        flights, worst first.
        """
        routes = [
            (-delays.mean, route)
            for route, delays in self.by_route.items()
            if delays.count >= min_flights
        ]
        return [route for _, route in sorted(routes)[:limit]]


def expect(flights: Flights) -> Expected:
    """Compute the totals of these flights."""
    by_hour: defaultdict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    by_route: defaultdict[tuple[bytes, bytes], list[int]] = defaultdict(list)
    cancelled = 0
    for line in flights.lines:
        row = line.split(b",")
        if row[_DEP_TIME] == b"NA":
            cancelled += 1
            continue
        delay = int(row[_DEP_DELAY])
        by_hour[row[_CARRIER], row[_TIME_HOUR]].append(delay)
        by_route[row[_ORIGIN], row[_DEST]].append(delay)
    return Expected(
        cancelled,
        {
            (carrier.decode(), hour.decode()): Delays(minutes)
            for (carrier, hour), minutes in by_hour.items()
        },
        {
            (origin.decode(), dest.decode()): Delays(minutes)
            for (origin, dest), minutes in by_route.items()
        },
    )

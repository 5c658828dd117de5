"""Checks the demo's results: sent = stored = read = counted, and every delay equals the CSV's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aioprod.demo.planting import PLANTED

if TYPE_CHECKING:
    from aioprod.demo.expected import Delays, Expected
    from aioprod.demo.pipeline import CarrierHourDelay, PipelineResult, RouteDelay
    from aioprod.demo.sending import FlightTopics, SendReport

_TOLERANCE = 1e-9
_NAMED_AT_MOST = 3


def check_sending(
    report: SendReport, expected: Expected, stored: Mapping[str, int], topics: FlightTopics
) -> list[str]:
    """Return what is wrong with the records in the topics, planted ones included; empty if nothing
    is. ``stored`` is the number of records of each topic.
    """
    found = _Differences()
    found.compare("records sent", report.sent, expected.departed + expected.cancelled)
    found.compare("records acknowledged", report.acknowledged, report.sent)
    found.compare(
        f"records in topic {topics.flights}",
        stored[topics.flights],
        expected.departed + len(PLANTED),
    )
    found.compare(
        f"records in topic {topics.cancelled}", stored[topics.cancelled], expected.cancelled
    )
    return found.lines


def check_result(result: PipelineResult, expected: Expected) -> list[str]:
    """Return how Spark's results differ from the CSV; empty if they don't."""
    found = _Differences()
    found.compare("rows read by Spark", result.rows_read, expected.departed + len(PLANTED))
    found.compare("dead letters", result.dead_letters, len(PLANTED))
    found.compare("rows dropped as late", result.late, 0)
    found.compare(
        "flights counted by Spark", sum(delay.flights for delay in result.delays), expected.departed
    )
    found.compare("carriers by hours", len(result.delays), len(expected.by_hour))
    wrong = [
        (delay.carrier, delay.time_hour)
        for delay in result.delays
        if not _same(delay, expected.by_hour.get((delay.carrier, delay.time_hour)))
    ]
    wrong += [
        (route.origin, route.dest)
        for route in result.routes
        if not _same(route, expected.by_route.get((route.origin, route.dest)))
    ]
    if wrong:
        named = ", ".join(" ".join(place) for place in wrong[:_NAMED_AT_MOST])
        found.lines.append(
            f"delays of {len(wrong)} group{'s' * (len(wrong) > 1)} differ from the CSV's: "
            f"{named}{' ...' if len(wrong) > _NAMED_AT_MOST else ''}"
        )
    worst = expected.worst_routes()
    if [(route.origin, route.dest) for route in result.routes] != worst:
        named = ", ".join("-".join(place) for place in worst)
        found.lines.append(f"the worst routes are not those of the CSV: {named or 'none'}")
    return found.lines


class _Differences:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def compare(self, what: str, found: int, expected: int) -> None:
        if found != expected:
            self.lines.append(f"{what}: {found:,}, expected {expected:,}")


def _same(found: CarrierHourDelay | RouteDelay, expected: Delays | None) -> bool:
    if expected is None or found.flights != expected.count:
        return False
    pairs = (
        (found.mean_delay, expected.mean),
        (found.p90_delay, expected.quantile(0.9)),
        (found.late_share, expected.late_share),
    )
    return all(math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE) for a, b in pairs)

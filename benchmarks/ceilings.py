"""Targets for absolute numbers of a client."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.results import Metric, Results


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A maximum for the median of a client."""

    case: str
    client: str
    metric: Metric
    maximum: float


def ceiling_table(results: Results, ceilings: Iterable[Ceiling]) -> str:
    """Return a Markdown table of the measured ceilings."""
    lines = ["| case | what | at most | measured | |", "|---|---|---|---|---|"]
    for ceiling in ceilings:
        if ceiling.client in results.rounds.get(ceiling.case, {}):
            median = statistics.median(results.values(ceiling.metric, ceiling.case, ceiling.client))
            status = "met" if median <= ceiling.maximum else "missed"
            what = f"{ceiling.client}: {ceiling.metric.title}"
            lines.append(
                f"| {ceiling.case} | {what} | {ceiling.maximum:g} | "
                f"{median:.{ceiling.metric.digits}f} | {status} |"
            )
    return "\n".join(lines)

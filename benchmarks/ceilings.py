"""How much is good enough: figures that results are held against, whatever the other clients
show.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.results import Metric, Results


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that the median of the rounds may be for one client."""

    case: str
    client: str
    metric: Metric
    most: float


def ceiling_table(results: Results, ceilings: Iterable[Ceiling]) -> str:
    """A Markdown table of the ceilings whose case and client were measured."""
    lines = ["| case | what | at most | measured | |", "|---|---|---|---|---|"]
    for ceiling in ceilings:
        if ceiling.client in results.rounds.get(ceiling.case, {}):
            median = statistics.median(results.values(ceiling.metric, ceiling.case, ceiling.client))
            verdict = "met" if median <= ceiling.most else "missed"
            what = f"{ceiling.client}: {ceiling.metric.title}"
            lines.append(
                f"| {ceiling.case} | {what} | {ceiling.most:g} | "
                f"{median:.{ceiling.metric.digits}f} | {verdict} |"
            )
    return "\n".join(lines)

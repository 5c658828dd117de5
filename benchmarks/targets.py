"""How good is good enough: ratios that results are held against."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.results import Metric, Results


@dataclass(frozen=True, slots=True)
class Target:
    """The median of the rounds' ratios of one client to another.

    Attributes:
        case, client, metric: whose.
        beside: to whom.
        bound: whether ``limit`` is the least or the most that is good enough.
    """

    case: str
    client: str
    metric: Metric
    beside: str
    bound: Literal["at least", "at most"]
    limit: float

    def ratio(self, results: Results) -> float | None:
        """As measured; None where one of the two was not."""
        if self.client not in results.rounds.get(self.case, {}):
            return None
        ratios = results.ratios(self.metric, self.case, self.client, self.beside)
        return statistics.median(ratios) if ratios else None

    def shortfall(self, results: Results) -> float:
        """By which share it is missed; 0 where it is met or was not measured."""
        ratio = self.ratio(results)
        if ratio is None:
            return 0.0
        return max(
            0.0, 1 - ratio / self.limit if self.bound == "at least" else ratio / self.limit - 1
        )


def verdicts(results: Results, targets: Iterable[Target]) -> str:
    """A Markdown table of the targets that were measured; empty where none was."""
    lines = []
    for target in targets:
        ratio = target.ratio(results)
        if ratio is not None:
            shortfall = target.shortfall(results)
            verdict = "met" if not shortfall else f"missed by {shortfall:.0%}"
            what = f"{target.client}: {target.metric.title}"
            lines.append(
                f"| {target.case} | {what} | {target.bound} {target.limit:g} times "
                f"{target.beside} | {ratio:.2f} times | {verdict} |"
            )
    return (
        "\n".join(["| case | what | target | measured | |", "|---|---|---|---|---|", *lines])
        if lines
        else ""
    )

"""Targets for the ratio of one client to another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.results import Metric, Results


@dataclass(frozen=True, slots=True)
class Target:
    """A target for the median ratio of a client to a baseline.

    Attributes:
        baseline: the client to compare with.
        bound: whether ``limit`` is a minimum or a maximum.
    """

    case: str
    client: str
    metric: Metric
    baseline: str
    bound: Literal["at least", "at most"]
    limit: float

    def ratio(self, results: Results) -> float | None:
        """Return the measured ratio; None if one of the two was not measured."""
        if self.client not in results.rounds.get(self.case, {}):
            return None
        ratios = results.ratios(self.metric, self.case, self.client, self.baseline)
        return statistics.median(ratios) if ratios else None

    def shortfall(self, results: Results) -> float:
        """Return the share by which it is missed; 0 if it is met or was not measured."""
        ratio = self.ratio(results)
        if ratio is None:
            return 0.0
        return max(
            0.0, 1 - ratio / self.limit if self.bound == "at least" else ratio / self.limit - 1
        )


def target_table(results: Results, targets: Iterable[Target]) -> str:
    """Return a Markdown table of the measured targets; empty if there are none."""
    lines = []
    for target in targets:
        ratio = target.ratio(results)
        if ratio is not None:
            shortfall = target.shortfall(results)
            status = "met" if not shortfall else f"missed by {shortfall:.0%}"
            what = f"{target.client}: {target.metric.title}"
            lines.append(
                f"| {target.case} | {what} | {target.bound} {target.limit:g} times "
                f"{target.baseline} | {ratio:.2f} times | {status} |"
            )
    return (
        "\n".join(["| case | what | target | measured | |", "|---|---|---|---|---|", *lines])
        if lines
        else ""
    )

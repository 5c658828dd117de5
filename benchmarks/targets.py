"""Targets for the ratio of one client to another, and of one case to another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.results import Metric, Results, spread


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


@dataclass(frozen=True, slots=True)
class GrowthTarget:
    """A limit for the median ratio of a case to another case of the same client."""

    case: str
    base_case: str
    client: str
    metric: Metric
    limit: float

    def ratio(self, results: Results) -> float | None:
        """Return the measured ratio; None if one of the two was not measured."""
        if any(
            self.client not in results.rounds.get(case, {}) for case in (self.case, self.base_case)
        ):
            return None
        pairs = zip(
            results.values(self.metric, self.case, self.client),
            results.values(self.metric, self.base_case, self.client),
            strict=True,
        )
        return statistics.median(cost / base for cost, base in pairs)


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


def growth_table(
    results: Results, metric: Metric, baselines: Mapping[str, str], target: float
) -> str:
    """Return a Markdown table of the ratios of cases to their baselines.

    Args:
        baselines: the baseline of each case.
        target: the largest acceptable ratio.
    """
    lines = [
        f"| case | client | times the {metric.title} of | | target |",
        "|---|---|---|---|---|",
    ]
    for case, base in baselines.items():
        for client in results.rounds.get(case, {}):
            pairs = zip(
                results.values(metric, case, client),
                results.values(metric, base, client),
                strict=True,
            )
            ratios = [cost / base_cost for cost, base_cost in pairs]
            lines.append(f"| {case} | {client} | {base} | {spread(ratios, 2)} | {target:g} |")
    return "\n".join(lines)

"""How the cost of a client grows from one case to another."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.results import Metric, Results, spread


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

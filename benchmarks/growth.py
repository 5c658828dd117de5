"""How a cost grows from one case to another of the same client."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.results import Metric, Results, spread


def growth_table(results: Results, metric: Metric, beside: Mapping[str, str], target: float) -> str:
    """A Markdown table of ratios, round by round: for each case of ``beside``, in times the case
    that it names. ``target``: what is good enough.
    """
    lines = [
        f"| case | client | times the {metric.title} of | | good enough |",
        "|---|---|---|---|---|",
    ]
    for case, base in beside.items():
        for client in results.rounds.get(case, {}):
            pairs = zip(
                results.values(metric, case, client),
                results.values(metric, base, client),
                strict=True,
            )
            ratios = [own / other for own, other in pairs]
            lines.append(f"| {case} | {client} | {base} | {spread(ratios, 2)} | {target:g} |")
    return "\n".join(lines)

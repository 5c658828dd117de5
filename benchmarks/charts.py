"""Charts of results: a row for each case, a panel for each metric, a bar for each client, with the
range of the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import Metric, Results

_BAR_HEIGHT_IN = 0.22
_PANEL_WIDTH_IN, _PANEL_HEIGHT_IN = 6.0, 0.6
_TITLE_HEIGHT_IN = 0.4
_LINE_COLUMNS, _LINE_PANEL_IN = 3, (3.6, 2.8)
_COLORS = {
    "aioprod": "#1f5fbf",
    "aioprod-pure": "#7d9a1f",
    "aioprod send_many": "#5b93e0",
    "aioprod send_arrow": "#9cc1f2",
    "line rate": "#444444",
    "confluent-kafka": "#c0392b",
    "confluent-kafka produce_batch": "#d9695d",
    "confluent-kafka AIOProducer": "#eaa79f",
    "aiokafka": "#e08e0b",
    "kafka-python": "#3c8c4a",
    "java": "#7d5ba6",
    "franz-go": "#1c8c8c",
    "platformatic": "#8a8a2b",
    "kafkajs": "#b3b36b",
}
_OTHER_COLOR = "#999999"


def write_png(results: Results, path: Path) -> None:
    """Draw all metrics of all cases."""
    # Imported here, as only charts need matplotlib.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    heights = [
        _PANEL_HEIGHT_IN + _BAR_HEIGHT_IN * len(clients) for clients in results.rounds.values()
    ]
    shape = len(heights), len(results.metrics)
    size = _PANEL_WIDTH_IN * shape[1], _TITLE_HEIGHT_IN + sum(heights)
    figure, panels = pyplot.subplots(
        *shape, figsize=size, squeeze=False, height_ratios=heights, layout="constrained"
    )
    for row, case in zip(panels, results.rounds, strict=True):
        for panel, metric in zip(row, results.metrics, strict=True):
            _draw(panel, results, metric, case)
    figure.suptitle(results.title, fontsize=11)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


@dataclass(frozen=True, slots=True)
class Line:
    """The cost of a client along an axis.

    Attributes:
        axis: the title of the panel.
        growth: the ratio of each round, by the number on the axis.
        costs: the cost of each round.
    """

    axis: str
    client: str
    growth: Mapping[int, Sequence[float]]
    costs: Mapping[int, Sequence[float]]


def write_lines_png(title: str, lines: Sequence[Line], limit: float | None, path: Path) -> None:
    """Draw a panel for each axis with a line for each client, the range of the rounds, and the
    costs. The band between 1 and ``limit`` is marked, if there is a limit.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    axes = list(dict.fromkeys(line.axis for line in lines))
    columns = min(len(axes), _LINE_COLUMNS)
    rows = -(-len(axes) // columns)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(_LINE_PANEL_IN[0] * columns, _LINE_PANEL_IN[1] * rows),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    panels = list(grid.flat)
    for panel in panels[len(axes) :]:
        panel.remove()
    for panel, axis in zip(panels, axes, strict=False):
        if limit is not None:
            panel.axhspan(1, limit, color="#2e8b57", alpha=0.18, linewidth=0)
        for line in lines:
            if line.axis == axis:
                _draw_line(panel, line)
        panel.set_title(axis, fontsize=9, loc="left")
        panel.set_xscale("log")
        panel.minorticks_off()
        numbers = sorted({number for line in lines if line.axis == axis for number in line.growth})
        panel.set_xticks(numbers, [f"{number:,}" for number in numbers])
        panel.tick_params(labelsize=7)
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(fontsize=7, frameon=False, loc="lower left")
    highest = max(max(ratios) for line in lines for ratios in line.growth.values())
    panels[0].set_ylim(0, 1.05 * max(highest, limit or 0))
    band = "" if limit is None else f"; the band is up to {limit:g} times"
    figure.suptitle(f"{title}{band}", fontsize=11)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_line(panel: Any, line: Line) -> None:
    numbers = list(line.growth)
    medians = [statistics.median(line.growth[number]) for number in numbers]
    lows = [
        median - min(line.growth[number]) for median, number in zip(medians, numbers, strict=True)
    ]
    highs = [
        max(line.growth[number]) - median for median, number in zip(medians, numbers, strict=True)
    ]
    panel.errorbar(
        numbers,
        medians,
        yerr=[lows, highs],
        marker="o",
        markersize=3,
        capsize=2,
        linewidth=1.2,
        color=_color(line.client),
        label=f"{line.client}: {_costs(line)} us",
    )


def _costs(line: Line) -> str:
    """Return the smallest and largest cost."""
    medians = [statistics.median(costs) for costs in line.costs.values()]
    return f"{min(medians):,.2f}-{max(medians):,.2f}"


def _draw(panel: Any, results: Results, metric: Metric, case: str) -> None:
    clients = list(results.rounds[case])
    for position, client in enumerate(clients):
        low, median, high = _range(results, metric, case, client)
        panel.barh(
            position,
            median,
            xerr=[[median - low], [high - median]],
            height=0.8,
            color=_color(client),
            ecolor="#222222",
            capsize=2,
        )
        panel.annotate(f" {median:,.{metric.digits}f}", (high, position), va="center", fontsize=7)
    panel.set_title(f"{case}: {metric.title}", fontsize=9, loc="left")
    panel.set_yticks(range(len(clients)), clients, fontsize=8)
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.tick_params(axis="x", labelsize=7)
    panel.xaxis.set_major_formatter("{x:,.10g}")
    panel.spines[["top", "right"]].set_visible(False)


def _range(results: Results, metric: Metric, case: str, client: str) -> tuple[float, float, float]:
    values = results.values(metric, case, client)
    return min(values), statistics.median(values), max(values)


def _color(client: str) -> str:
    return _COLORS.get(client.removesuffix(" (uvloop)"), _OTHER_COLOR)

"""Draws a heat map of delays by carrier and hour of the day, with totals at its edges, as PNG and
as an HTML page.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from aioprod.demo.expected import LATE_MINUTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from aioprod.demo.pipeline import RouteDelay
    from aioprod.demo.summary import Cell, DelayTable

FEW_FLIGHTS = 10
"""Cells with fewer flights are drawn pale: their mean is unreliable."""

_INK, _SOFT, _GRID, _EMPTY = "#1f2933", "#616e7c", "#e4e7eb", "#f5f6f8"
_COLORS = LinearSegmentedColormap.from_list(
    "delay", ["#e9f2fb", "#b7d7ef", "#fde6a8", "#f9a95b", "#e0553f", "#8f1d3f"]
)


def draw(table: DelayTable, names: Mapping[str, str], subtitle: str) -> Figure:
    """Draw the heat map. ``names`` are the carriers' full names."""
    rows = len(table.carriers)
    figure = Figure(figsize=(14.5, 3.9 + 0.42 * rows), facecolor="white")
    FigureCanvasAgg(figure)
    height = figure.get_figheight()
    grid = figure.add_gridspec(
        2,
        2,
        width_ratios=(5.2, 1),
        height_ratios=(1, max(0.42 * rows, 0.9)),
        left=0.185,
        right=0.965,
        top=1 - 1.15 / height,
        bottom=1.35 / height,
        wspace=0.03,
        hspace=0.05,
    )
    heat = figure.add_subplot(grid[1, 0])
    colors = Normalize(vmin=min(0.0, _rounded_low(table)), vmax=_rounded_high(table))
    _draw_cells(heat, table, names, colors)
    _draw_hours(figure.add_subplot(grid[0, 0]), table, colors)
    _draw_carriers(figure.add_subplot(grid[1, 1]), table, colors)
    _draw_color_bar(figure, colors, 0.5 / height)
    figure.text(
        0.02,
        1 - 0.42 / height,
        "Departure delay from New York, 2013, by airline and hour of the day",
        size=17,
        weight="bold",
        color=_INK,
    )
    figure.text(0.02, 1 - 0.72 / height, subtitle, size=10.5, color=_SOFT)
    return figure


def save_png(figure: Figure, path: Path) -> None:
    """Write the picture as PNG."""
    figure.savefig(path, dpi=130, facecolor="white")


def save_page(
    figure: Figure,
    path: Path,
    table: DelayTable,
    names: Mapping[str, str],
    routes: Sequence[RouteDelay],
    facts: Sequence[tuple[str, str]],
) -> None:
    """Write a self-contained HTML file: the picture as SVG, and the numbers as tables."""
    page = _PAGE.format(
        svg=_svg(figure),
        facts="".join(
            f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts
        ),
        carriers=_rows(
            _carrier_row(code, table.by_carrier[code], names) for code in table.carriers
        ),
        routes=_rows(_route_row(route) for route in routes),
        late=LATE_MINUTES,
    )
    path.write_text(page, encoding="utf-8")


def _rounded_high(table: DelayTable) -> float:
    means = sorted(cell.mean for cell in table.cells.values() if cell.flights >= FEW_FLIGHTS) or [
        10.0
    ]
    # The colors end at the 97th percentile, so that a few extreme cells don't bleach all others.
    return max(5.0, math.ceil(means[int(0.97 * (len(means) - 1))] / 5) * 5)


def _rounded_low(table: DelayTable) -> float:
    means = [cell.mean for cell in table.cells.values() if cell.flights >= FEW_FLIGHTS] or [0.0]
    return max(-10.0, math.floor(min(means) / 5) * 5)


def _clean(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(length=0, colors=_INK, labelsize=9.5)


def _draw_cells(axes: Axes, table: DelayTable, names: Mapping[str, str], colors: Normalize) -> None:
    columns, rows = len(table.hours), len(table.carriers)
    axes.set_facecolor(_EMPTY)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    for row, carrier in enumerate(table.carriers):
        for column, hour in enumerate(table.hours):
            cell = table.cells.get((carrier, hour))
            if cell is not None:
                _draw_cell(axes, column, row, cell, colors)
    axes.set_xticks(range(columns), [f"{hour:02d}" for hour in table.hours])
    axes.set_yticks(range(rows), [names.get(code, code) for code in table.carriers])
    axes.set_xlabel("scheduled hour of departure, New York time", size=10.5, color=_INK, labelpad=6)
    _clean(axes)


def _draw_cell(axes: Axes, column: int, row: int, cell: Cell, colors: Normalize) -> None:
    few = cell.flights < FEW_FLIGHTS
    color = _COLORS(colors(cell.mean))
    axes.add_patch(_rectangle(column, row, color, 0.35 if few else 1.0))
    red, green, blue, _ = color
    dark = not few and 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
    label = f"{cell.mean:.0f}".replace("-0", "0") if abs(cell.mean) < 0.5 else f"{cell.mean:.0f}"
    axes.text(
        column,
        row,
        label,
        ha="center",
        va="center",
        size=8.5,
        color="white" if dark else _SOFT if few else _INK,
    )


def _rectangle(column: int, row: int, color: Any, alpha: float) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(
        (column - 0.48, row - 0.46), 0.96, 0.92, facecolor=color, alpha=alpha, linewidth=0
    )


def _draw_hours(axes: Axes, table: DelayTable, colors: Normalize) -> None:
    means = [table.by_hour[hour].mean for hour in table.hours]
    axes.bar(range(len(means)), means, width=0.96, color=[_COLORS(colors(mean)) for mean in means])
    axes.axhline(0, color=_GRID, linewidth=1)
    axes.set_xlim(-0.5, len(means) - 0.5)
    axes.margins(y=0.22)
    for place, mean in enumerate(means):
        axes.annotate(
            f"{mean:.0f}",
            (place, max(mean, 0)),
            (0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            size=8.5,
            color=_INK,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_ylabel(
        "all airlines,\nmean min",
        rotation=0,
        ha="right",
        va="center",
        size=9.5,
        color=_SOFT,
        labelpad=8,
    )
    _clean(axes)


def _draw_carriers(axes: Axes, table: DelayTable, colors: Normalize) -> None:
    cells = [table.by_carrier[code] for code in table.carriers]
    axes.barh(
        range(len(cells)),
        [cell.mean for cell in cells],
        height=0.92,
        color=[_COLORS(colors(cell.mean)) for cell in cells],
    )
    axes.axvline(0, color=_GRID, linewidth=1)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    low, high = min(0.0, *(cell.mean for cell in cells)), max(1.0, *(cell.mean for cell in cells))
    axes.set_xlim(low - 0.02 * (high - low), high + 0.95 * (high - low))
    for row, cell in enumerate(cells):
        text = f"{cell.mean:.1f} min · {cell.late_share:.0%} late"
        axes.annotate(
            text,
            (max(cell.mean, 0), row),
            (4, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            size=8.5,
            color=_INK,
        )
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel(
        f"whole day: mean delay, and\nshare over {LATE_MINUTES} min late",
        size=9.5,
        color=_SOFT,
        labelpad=6,
    )
    _clean(axes)


def _draw_color_bar(figure: Figure, colors: Normalize, bottom: float) -> None:
    from matplotlib.cm import ScalarMappable

    axes = figure.add_axes((0.185, bottom, 0.36, 0.014))
    bar = figure.colorbar(
        ScalarMappable(norm=colors, cmap=_COLORS),
        cax=axes,
        orientation="horizontal",
        extend="max",
    )
    bar.outline.set_visible(False)
    bar.set_label("mean departure delay in minutes (below 0: left early)", size=9.5, color=_SOFT)
    axes.tick_params(length=0, colors=_INK, labelsize=9)
    figure.text(
        0.575,
        bottom,
        f"pale: fewer than {FEW_FLIGHTS} flights    empty: none",
        size=9.5,
        color=_SOFT,
        va="bottom",
    )


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    # No random ids and no date, so that equal pictures have equal bytes.
    with matplotlib.rc_context({"svg.hashsalt": "aioprod", "svg.fonttype": "path"}):
        figure.savefig(
            buffer,
            format="svg",
            metadata={"Date": None, "Title": "Departure delay by airline and hour of the day"},
        )
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _rows(rows: Any) -> str:
    return "".join(
        "<tr>" + "".join(f"<td>{escape(field)}</td>" for field in row) + "</tr>\n" for row in rows
    )


def _carrier_row(code: str, cell: Cell, names: Mapping[str, str]) -> tuple[str, ...]:
    return (
        names.get(code, code),
        code,
        f"{cell.flights:,}",
        f"{cell.mean:.1f}",
        f"{cell.late_share:.1%}",
    )


def _route_row(route: RouteDelay) -> tuple[str, ...]:
    return (
        f"{route.origin} → {route.dest}",
        f"{route.flights:,}",
        f"{route.mean_delay:.1f}",
        f"{route.p90_delay:.0f}",
        f"{route.late_share:.1%}",
    )


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Departure delay from New York, 2013</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 1280px; margin: 2rem auto; padding: 0 1rem; }}
figure {{ margin: 0 0 2rem; overflow-x: auto; }}
svg {{ width: 100%; min-width: 820px; height: auto; }}
.facts {{ display: flex; flex-wrap: wrap; gap: .75rem; margin: 0 0 1.5rem; }}
.facts div {{ background: #f5f6f8; border-radius: 8px; padding: .6rem 1rem; }}
.facts b {{ display: block; font-size: 1.25rem; }}
.facts span, caption {{ color: #616e7c; }}
.tables {{ display: flex; flex-wrap: wrap; gap: 3rem; align-items: flex-start; }}
table {{ border-collapse: collapse; }}
caption {{ text-align: left; padding-bottom: .5rem; }}
th, td {{ text-align: right; padding: .25rem .8rem; border-bottom: 1px solid #e4e7eb; font-variant-numeric: tabular-nums; }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
</style>
</head>
<body>
<h1>Departure delay from New York, 2013</h1>
<div class="facts">{facts}</div>
<figure>{svg}</figure>
<div class="tables">
<table><caption>Airlines, longest mean delay first (late: over {late} minutes)</caption>
<thead><tr><th>airline</th><th>code</th><th>flights</th><th>mean, min</th><th>late</th></tr></thead>
<tbody>
{carriers}</tbody></table>
<table><caption>Worst routes</caption>
<thead><tr><th>route</th><th>flights</th><th>mean, min</th><th>90th percentile, min</th><th>late</th></tr></thead>
<tbody>
{routes}</tbody></table>
</div>
</body>
</html>
"""

"""Progress bars, and the tables at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, Group
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from aioprod.demo.expected import LATE_MINUTES

if TYPE_CHECKING:
    from aioprod.demo.pipeline import RouteDelay
    from aioprod.demo.sending import FlightTopics, SendReport
    from aioprod.demo.summary import Cell, DelayTable

REFRESHES_PER_SECOND = 4
"""Updates of the display per second: each takes a few ms of the sender's time."""


class _RateColumn(ProgressColumn):
    """Records per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")


def progress_bar(console: Console) -> Progress:
    """A progress bar with counts, records per second and time."""
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description:<22}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        console=console,
        refresh_per_second=REFRESHES_PER_SECOND,
    )


def facts(report: SendReport) -> list[tuple[str, str]]:
    """Return names and values about what was sent."""
    return [
        ("records acknowledged", f"{report.acknowledged:,}"),
        ("of these cancelled flights", f"{report.acknowledged_cancelled:,}"),
        ("seconds to send", f"{report.seconds:.2f}"),
        ("records per second", f"{report.records_per_second:,.0f}"),
    ]


def describe_sending(report: SendReport, topics: FlightTopics) -> str:
    """Return a few lines about what was sent."""
    lines = [
        (
            f"{report.sent:,} flights sent in {report.seconds:.2f} s "
            f"({report.records_per_second:,.0f} records/s), {report.acknowledged:,} acknowledged:"
        ),
        (
            f"{report.acknowledged_flights:,} in topic {topics.flights}, "
            f"{report.acknowledged_cancelled:,} in topic {topics.cancelled}"
        ),
    ]
    if report.failed:
        lines.append(f"{report.failed:,} not delivered: {report.first_error}")
    return "\n".join(lines)


def describe_reading(records: int, seconds: float) -> str:
    """Return a line about Spark's part, from the start of Java to its end."""
    return f"{records:,} records read by Spark in {seconds:.1f} s, its start and end included"


def result_tables(
    table: DelayTable, names: Mapping[str, str], routes: Sequence[RouteDelay]
) -> Group:
    """Delays by airline and the worst routes."""
    return Group(_airlines(table, names), _routes(routes))


def _new_table(title: str, first: str, others: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _airlines(table: DelayTable, names: Mapping[str, str]) -> Table:
    title = f"Departure delay from New York, 2013, in minutes (late: over {LATE_MINUTES})"
    shown = _new_table(title, "airline", ("flights", "mean", "late", "worst hour", "mean"))
    shown.show_footer = True
    for carrier in table.carriers:
        hour, cell = _worst_hour(table, carrier)
        shown.add_row(
            names.get(carrier, carrier),
            *_cells(table.by_carrier[carrier]),
            f"{hour:02d}:00",
            f"{cell.mean:.1f}",
        )
    for column, text in zip(shown.columns, ("all", *_cells(table.total)), strict=False):
        column.footer = text
    return shown


def _worst_hour(table: DelayTable, carrier: str) -> tuple[int, Cell]:
    hours = [
        (hour, table.cells[carrier, hour]) for hour in table.hours if (carrier, hour) in table.cells
    ]
    # Hours with only a few flights are not representative.
    usual = [
        (hour, cell)
        for hour, cell in hours
        if cell.flights >= 0.01 * table.by_carrier[carrier].flights
    ]
    return max(usual, key=lambda item: item[1].mean)


def _cells(cell: Cell) -> tuple[str, str, str]:
    return f"{cell.flights:,}", f"{cell.mean:.1f}", f"{cell.late_share:.1%}"


def _routes(routes: Sequence[RouteDelay]) -> Table:
    shown = _new_table(
        "Worst routes of at least 100 flights",
        "route",
        ("flights", "mean", "90th percentile", "late"),
    )
    for route in routes:
        name = f"{route.origin} → {route.dest}"
        shown.add_row(
            name,
            f"{route.flights:,}",
            f"{route.mean_delay:.1f}",
            f"{route.p90_delay:.0f}",
            f"{route.late_share:.1%}",
        )
    return shown

"""Lays out tables for a terminal of any size: which columns are shown, how wide they are, and which
rows are visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

_GAP = 2
_MIN_NAME = 16  # columns are left out before a name gets shorter than this


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its heading.
        is_name: whether it has names, which may be cut; numbers never are.
        dropped: the column with the lowest number is the first that a narrow terminal lacks; None:
            never dropped.
    """

    name: str
    is_name: bool = False
    dropped: int | None = None


class Table(NamedTuple):
    """A table: its columns, and the cells of its rows."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


class Cells(NamedTuple):
    """Functions that measure and cut text for the terminal.

    Attributes:
        width: returns the number of cells that a text takes.
        fitted: returns a text, cut or padded to a number of cells.
        cut: the mark of a text that is cut.
    """

    width: Callable[[str], int]
    fitted: Callable[[str, int], str]
    cut: str


class View(NamedTuple):
    """The visible part of the tables.

    Attributes:
        lines: each line, and whether it is a heading.
        first, last: the numbers of the visible rows, from 1; 0 if there are none.
        rows: the number of all rows.
        offset: the number of lines above the visible ones.
    """

    lines: list[tuple[str, bool]]
    first: int
    last: int
    rows: int
    offset: int


def table_lines(table: Table, width: int, cells: Cells) -> list[str]:
    """Return the heading and the rows of a table, each of at most ``width`` cells."""
    texts = [[column.name for column in table.columns], *table.rows]
    natural = [max(map(cells.width, column)) for column in zip(*texts, strict=True)]
    widths = _column_widths(table.columns, natural, width)
    return [
        (" " * _GAP)
        .join(
            _cell(text, widths[number], table.columns[number], cells)
            for number, text in enumerate(row)
            if number in widths
        )
        .rstrip()
        for row in texts
    ]


def _column_widths(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Return the widths of the columns that are shown."""
    widths = dict(enumerate(natural))

    def excess() -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - width

    def shorten(least: int) -> None:
        while excess() > 0:
            longest = max(
                (number for number in widths if columns[number].is_name),
                key=widths.__getitem__,
                default=None,
            )
            if longest is None or widths[longest] <= least:
                return
            widths[longest] -= 1

    shorten(_MIN_NAME)
    order = [number for number, column in enumerate(columns) if column.dropped is not None]
    for number in sorted(order, key=lambda number: columns[number].dropped or 0):
        if excess() > 0:
            del widths[number]
    shorten(1)
    return widths


def _cell(text: str, width: int, column: Column, cells: Cells) -> str:
    size = cells.width(text)
    if size > width:
        text = cells.fitted(text, width - 1) + cells.cut
    elif not column.is_name:
        text = " " * (width - size) + text
    return cells.fitted(text, width)


def view(tables: Sequence[Table], width: int, height: int, offset: int, cells: Cells) -> View:
    """Return the visible part of tables that are placed below each other.

    Args:
        tables: the tables.
        width, height: size of the terminal, without the lines around the tables.
        offset: the number of lines above; limited to the lines that exist.
        cells: how the terminal shows text.
    """
    lines: list[tuple[str, bool]] = []
    headings: list[int] = []  # for each line: the line of its table's heading
    numbers: list[int] = []  # for each line: the number of rows up to this line
    rows = 0
    for table in tables:
        if lines:
            lines.append(("", False))
            headings.append(len(lines))
            numbers.append(rows)
        at = len(lines)
        for number, text in enumerate(table_lines(table, width, cells)):
            rows += number > 0
            lines.append((text, number == 0))
            headings.append(at)
            numbers.append(rows)
    offset = max(0, min(offset, len(lines) - height))
    visible = lines[offset : offset + height]
    if not visible:
        return View([], 0, 0, rows, 0)
    if headings[offset] < offset:  # the heading stays visible while its rows are scrolled
        visible[0] = lines[headings[offset]]
    last = numbers[offset + len(visible) - 1]
    above = numbers[offset] if visible[0][1] or not lines[offset][0] else numbers[offset] - 1
    return View(visible, min(above + 1, last), last, rows, offset)

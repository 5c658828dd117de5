"""The tables of ``aioprod top`` in terminals of any size, and the keys that are pressed there."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len, set_cell_size
from rich.console import Console

from aioprod.cli.groups_lag import _COLUMNS
from aioprod.cli.keyboard import _NAMES, Keys
from aioprod.cli.top import _GROUPS, _TOPICS
from aioprod.cli.top_layout import Cells, Column, Table, table_lines, view
from aioprod.cli.top_screen import TopScreen

CELLS = Cells(cell_len, set_cell_size, "…")
WIDTHS = range(40, 201)
LAGS = ("0", "9,223,372,036,854,775,807", "1,234,567")
NAMES = ("g", "a-very-long-name-of-a-group-" * 8, "名前" * 40)


def table(columns: tuple[Column, ...], rows: int = 3) -> Table:
    def cell(column: Column, row: int) -> str:
        return (NAMES if column.is_name else LAGS)[row % 3]

    return Table(columns, [[cell(column, row) for column in columns] for row in range(rows)])


@pytest.mark.parametrize("columns", [_GROUPS, _COLUMNS, _TOPICS], ids=["top", "lag", "topics"])
def test_the_most_important_columns_are_whole_at_any_width(columns: tuple[Column, ...]) -> None:
    kept = "WRITTEN/S" if columns is _TOPICS else "LAG"
    for width in WIDTHS:
        if columns is _COLUMNS and width < 58:
            continue  # the numbers of this test alone fill more
        heading, *rows = table_lines(table(columns), width, CELLS)
        assert kept in heading.split(), width
        assert max(map(cell_len, (heading, *rows))) <= width
        for row, lag in zip(rows, LAGS, strict=True):
            assert lag in row.split(), (width, row)
    heading = table_lines(table(columns), 2_000, CELLS)[0]
    assert re.split(r"  +", heading.strip()) == [each.name for each in columns]


def test_real_lags_fit_at_forty_columns() -> None:
    rows = [["billing-of-orders", "orders-by-country", "11", "1,234", "5,678", "4,444", "reader-1"]]
    heading, row = table_lines(Table(_COLUMNS, rows), 40, CELLS)
    assert heading.split()[-1] == "LAG" and row.split()[-1] == "4,444"
    assert len(row) <= 40


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
    st.integers(0, 40),
    st.integers(1, 30),
    st.integers(1, 120),
)
def test_scrolling_never_leaves_the_tables(
    sizes: list[int], offset: int, height: int, width: int
) -> None:
    tables = [table(_TOPICS, rows) for rows in sizes]
    shown = view(tables, width, height, offset, CELLS)
    assert shown.rows == sum(sizes)
    assert len(shown.lines) <= height and 0 <= shown.offset <= offset
    assert all(cell_len(text) <= width or width < 45 for text, _ in shown.lines)
    assert shown.lines[0][1] or not shown.lines[0][0], "the heading of a table stays visible"
    assert 0 <= shown.first <= shown.last + 1 <= shown.rows + 1
    everything = view(tables, width, 1_000, offset, CELLS)
    assert everything.offset == 0 and everything.last == sum(sizes)


def test_a_screen_fits_any_terminal() -> None:
    for width, height in [(40, 8), (80, 24), (200, 60), (5, 3), (1, 1)]:
        output = io.StringIO()
        console = Console(file=output, width=width, height=height, force_terminal=False)
        screen = TopScreen(has_keys=True)
        screen.draw("cluster c  3 brokers", table(_GROUPS, 50), table(_TOPICS, 50))
        screen.note("no broker responds")
        screen.scroll("page down")
        lines = console.render_lines(screen, console.options.update(height=height))
        assert len(lines) <= max(height, 5)
        assert all(sum(part.cell_length for part in line) <= width for line in lines)


def test_keys_are_recognized_in_any_pieces() -> None:
    sent = b"".join(_NAMES) + b"\x1bOA\x1bOB\x1bOH\x1bOFz\x1b[1;5CQ"
    whole = Keys().add(sent)
    assert whole == [*_NAMES.values(), "up", "down", "home", "end", "quit"]
    keys = Keys()
    assert [name for byte in sent for name in keys.add(bytes([byte]))] == whole


@given(st.binary(max_size=200))
def test_any_bytes_of_a_terminal(data: bytes) -> None:
    keys = Keys()
    for byte in data:
        keys.add(bytes([byte]))
    assert len(keys._rest) < 20

"""Draws the measured rows: a line for each fault, a column for each client, bars for the gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tests.anomalies.cells import Cell, Table

_NAMES, _COLUMN, _ROW, _TOP, _MARGIN = 400, 126, 34, 74, 16
_BAR, _INSET, _LINE = 16, 8, 11
_TEAL, _GRAY, _RED, _INK, _PALE = "#00897b", "#90a4ae", "#c62828", "#212121", "#eceff1"
_TITLE = "Longest time without an acknowledged record, in seconds; anomalies in red"


def drawn(table: Table) -> str:
    """Return a table as a picture in SVG."""
    width = _NAMES + _COLUMN * len(table.clients) + _MARGIN
    height = _TOP + sum(map(_height, table.lines.values())) + _MARGIN
    longest = max(
        (cell.gap_s for cells in table.lines.values() for cell in cells.values()), default=1
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(_TITLE)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>',
        _text(_MARGIN, 24, _TITLE, weight=600),
    ]
    for number, client in enumerate(table.clients):
        weight = 600 if client.startswith("aioprod") else 400
        parts.append(_text(_left(number), _TOP - 14, client, weight=weight, size=11))
    top = _TOP
    for number, (name, cells) in enumerate(table.lines.items()):
        if number % 2 == 0:
            parts.append(
                f'<rect x="0" y="{top}" width="{width}" height="{_height(cells)}" fill="{_PALE}" '
                'fill-opacity="0.5"/>'
            )
        parts.append(_text(_NAMES - 14, top + 21, name.replace("`", ""), anchor="end"))
        parts += _bars(table.clients, cells, top, longest)
        top += _height(cells)
    return "\n".join([*parts, "</svg>", ""])


def _bars(
    clients: Sequence[str], cells: Mapping[str, Cell], top: float, longest: float
) -> list[str]:
    parts = []
    for number, client in enumerate(clients):
        if (cell := cells.get(client)) is None:
            continue
        left = _left(number)
        width = max(2.0, cell.gap_s / longest * (_COLUMN - 2 * _INSET - 28))
        color = _TEAL if client.startswith("aioprod") else _GRAY
        y = top + (_ROW - _BAR) / 2
        parts.append(
            f'<rect x="{left}" y="{y:g}" width="{width:.1f}" height="{_BAR}" rx="2" '
            f'fill="{_RED if cell.anomalies else color}"/>'
        )
        parts.append(_text(left + width + 4, top + 21, f"{cell.gap_s:.1f}"))
        for line, (kind, count) in enumerate(cell.anomalies.items()):
            y = top + _ROW - 1 + line * _LINE
            parts.append(_text(left, y, f"{count} {kind}", color=_RED, size=9))
    return parts


def _height(cells: Mapping[str, Cell]) -> int:
    """Return the height of a fault's line: each kind of anomaly has a line of text."""
    kinds = max((len(cell.anomalies) for cell in cells.values()), default=0)
    return _ROW + _LINE * max(kinds - 1, 0) + (4 if kinds else 0)


def _left(number: int) -> float:
    return _NAMES + number * _COLUMN + _INSET


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    weight: int = 400,
    color: str = _INK,
    size: int = 13,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:g}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="{color}">{escape(text)}</text>'
    )

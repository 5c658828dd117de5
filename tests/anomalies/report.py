"""Write the matrix of docs/reliability.md, and its picture, from the measured rows: ``python -m
tests.anomalies.report``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from tests.anomalies.cells import Cell, arranged
from tests.anomalies.chart import drawn
from tests.anomalies.row import Row

MEASURED = Path(__file__).parent / "measured"
"""Files of lines that ``python -m tests.anomalies --json FILE`` wrote."""
OURS = MEASURED / "aioprod"
"""Those of aioprod alone. With more callers and on another day, its gaps can't be compared."""
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
PICTURE = PAGE.parent / "images" / "anomalies.svg"
_MATRIX = re.compile(r"^\|fault\|aioprod\|aioprod-pure\|.*\n(?:\|.*\n)+", re.MULTILINE)


class PageError(Exception):
    """The page has no matrix."""


def measured(directory: Path = MEASURED) -> list[Row]:
    """Return the measured rows of a directory's files."""
    return [
        Row(**json.loads(line))
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def matrix(rows: Sequence[Row]) -> str:
    """Return a table of faults and clients: the longest gap in seconds, and the anomalies."""
    table = arranged(rows)
    lines = [_line("fault", *table.clients), "|---" * (len(table.clients) + 1) + "|"]
    for name, cells in table.lines.items():
        lines.append(_line(name, *(_cell(cells.get(client)) for client in table.clients)))
    totals = (f"{table.operations[client]:,}" for client in table.clients)
    lines.append(_line("operations", *totals))
    return "\n".join(lines) + "\n"


def _line(*cells: str) -> str:
    return "|" + "|".join(cells) + "|"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return "; ".join(filter(None, [f"{cell.gap_s:.1f}", cell.found]))


def with_matrix(page: str, rows: Sequence[Row]) -> str:
    """Return the text of the page with the matrix of these rows.

    Raises:
        PageError: if the page has no matrix, or several.
    """
    written, count = _MATRIX.subn(lambda _: matrix(rows), page)
    if count != 1:
        raise PageError(f"docs/reliability.md has {count} tables of faults and clients, not 1")
    return written


def main() -> None:
    """Write the page and the picture."""
    page, rows = PAGE.read_text(encoding="utf-8"), measured()
    PAGE.write_text(with_matrix(page, rows), encoding="utf-8")
    PICTURE.write_text(drawn(arranged(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()

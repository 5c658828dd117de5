"""The table of the crash runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from .crash_report import COLUMNS, Row

_rows = pytest.StashKey[list[Row]]()


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Callable[[list[Row]], None]:
    """Call it with the rows of a life, to have them in the table at the end of the run."""
    return pytestconfig.stash.setdefault(_rows, []).extend


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash.get(_rows, [])
    if not rows:
        return
    lines = [COLUMNS, *([str(cell) for cell in asdict(row).values()] for row in rows)]
    lines.append(
        [
            "all",
            str(sum(row.kills for row in rows)),
            *(str(sum(getattr(row, name) for row in rows)) for name in COLUMNS[2:6]),
            "",
            "",
        ]
    )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    terminalreporter.section("crash runs: what a consumer of committed records found")
    for cells in lines:
        terminalreporter.line(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        )
    if path := os.environ.get("AIOPROD_CRASH_RESULTS"):
        with Path(path).open("a") as results:
            results.writelines(json.dumps(asdict(row)) + "\n" for row in rows)

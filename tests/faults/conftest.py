"""The cluster of the fault scenarios, and the table of results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.harness.report import Report
from tests.faults.harness.runner import ScenarioRunner, scenario_runner

_rows = pytest.StashKey[list[dict[str, Any]]]()


@pytest.fixture(scope="session")
def runner() -> Iterator[ScenarioRunner]:
    with scenario_runner() as running:
        yield running


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Report:
    """Adds outcomes to the table at the end of the run."""
    return Report(pytestconfig.stash.setdefault(_rows, []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash.get(_rows, [])
    if not rows:
        return
    columns = [
        "scenario",
        "client",
        "faults",
        "sent",
        "acknowledged",
        "failed",
        "open",
        "median_gap",
        "longest_gap",
        "close",
    ]
    terminalreporter.section("faults: gaps and closing times in seconds")
    widths = [max(len(str(row[column])) for row in [*rows, {column: column}]) for column in columns]
    for cells in [columns, *([str(row[column]) for column in columns] for row in rows)]:
        terminalreporter.line(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        )
    if path := os.environ.get("AIOPROD_FAULT_RESULTS"):
        with Path(path).open("a") as results:
            results.writelines(json.dumps(row) + "\n" for row in rows)

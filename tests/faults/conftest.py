"""The cluster of the fault scenarios, and the tables of results."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aioprod.testing.real_cluster import RealCluster
from tests.faults.harness.cluster_control import controlled_cluster
from tests.faults.harness.groups.runner import BROKER_SETTINGS, GroupControl
from tests.faults.harness.report import GroupReport, Report
from tests.faults.harness.runner import ScenarioRunner

_rows = pytest.StashKey[list[dict[str, Any]]]()
_group_rows = pytest.StashKey[list[dict[str, Any]]]()
_Cluster = tuple[RealCluster, dict[tuple[int, int], socket.socket]]


@pytest.fixture(scope="session")
def cluster() -> Iterator[_Cluster]:
    with controlled_cluster(BROKER_SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def runner(cluster: _Cluster) -> ScenarioRunner:
    return ScenarioRunner(*cluster)


@pytest.fixture(scope="session")
def groups(cluster: _Cluster) -> GroupControl:
    return GroupControl(*cluster)


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Report:
    """Adds outcomes to the table at the end of the run."""
    return Report(pytestconfig.stash.setdefault(_rows, []))


@pytest.fixture
def group_report(pytestconfig: pytest.Config) -> GroupReport:
    """Adds outcomes of groups to their table at the end of the run."""
    return GroupReport(pytestconfig.stash.setdefault(_group_rows, []))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for title, key, hidden in (
        ("faults: gaps and closing times in seconds", _rows, {"findings"}),
        ("faults of groups: gaps in seconds", _group_rows, {"findings", "errors"}),
    ):
        if rows := config.stash.get(key, []):
            columns = [column for column in rows[0] if column not in hidden]
            _write_table(terminalreporter, title, columns, rows)
            if path := os.environ.get("AIOPROD_FAULT_RESULTS"):
                with Path(path).open("a") as results:
                    results.writelines(json.dumps(row) + "\n" for row in rows)


def _write_table(
    terminalreporter: Any, title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]
) -> None:
    terminalreporter.section(title)
    widths = [max(len(str(row[column])) for row in [*rows, {column: column}]) for column in columns]
    for cells in [columns, *([str(row[column]) for column in columns] for row in rows)]:
        terminalreporter.line(
            "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        )

"""The numbers of all rounds, as a table and as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from aioprod.testing.jars import KAFKA_VERSIONS
from benchmarks import builds
from benchmarks.measures import Numbers

_PACKAGES = (
    "aioprod",
    "aiokafka",
    "confluent-kafka",
    "kafka-python",
    "uvloop",
    "pyarrow",
    "pyspark",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the table and a panel of the chart.

    Attributes:
        title: the title, with the unit.
        value: returns the value of one round.
        digits: the number of decimal places.
        compared: whether the table shows ratios to the baseline.
    """

    title: str
    value: Callable[[Numbers], float]
    digits: int = 2
    compared: bool = True


@dataclass(slots=True)
class Results:
    """The numbers of all rounds.

    Attributes:
        title: the title of the benchmark.
        metrics: the metrics to show.
        baseline: the client that the others are compared with in each round; may be missing.
        rounds: the numbers of each round, by case and client.
        interpreter: the interpreter of the clients, and how it was built.
        clients: the version and build of each client, if they differ from this process's.
        left_out: the reason for each client that could not be measured.
    """

    title: str
    metrics: Sequence[Metric]
    baseline: str = "confluent-kafka"
    rounds: dict[str, dict[str, list[Numbers]]] = field(default_factory=dict)
    interpreter: str = field(default_factory=builds.interpreter)
    clients: dict[str, str] = field(default_factory=lambda: {"aioprod": builds.aioprod()})
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, case: str, client: str, numbers: Numbers) -> None:
        """Add the numbers of a round."""
        self.rounds.setdefault(case, {}).setdefault(client, []).append(numbers)

    def values(self, metric: Metric, case: str, client: str) -> list[float]:
        """Return the value of each round."""
        return [metric.value(numbers) for numbers in self.rounds[case][client]]

    def ratios(self, metric: Metric, case: str, client: str, baseline: str = "") -> list[float]:
        """Return the ratio to a baseline in each round; empty if it was not measured or is zero.

        Args:
            baseline: the client to compare with; default: the baseline of the results.
        """
        baseline = baseline or self.baseline
        if baseline not in self.rounds[case]:
            return []
        pairs = list(
            zip(self.values(metric, case, client), self.values(metric, case, baseline), strict=True)
        )
        return [own / other for own, other in pairs] if all(other for _, other in pairs) else []

    def table(self) -> str:
        """Return a Markdown table with medians, ranges and ratios to the baseline."""
        titles = ["case", "client"]
        for metric in self.metrics:
            titles += (
                [metric.title, f"times {self.baseline}"] if metric.compared else [metric.title]
            )
        lines = [_line(titles), "|" + "---|" * len(titles)]
        for case, clients in self.rounds.items():
            for client in clients:
                cells = [case, client]
                for metric in self.metrics:
                    cells.append(spread(self.values(metric, case, client), metric.digits))
                    if metric.compared:
                        cells.append(spread(self.ratios(metric, case, client), 2))
                lines.append(_line(cells))
        return "\n".join(lines)

    def notes(self) -> str:
        """Return what was measured, and what was left out, as lines of a list."""
        lines = [f"- {self.interpreter}"]
        lines += [f"- {client}: {text}" for client, text in self.clients.items()]
        lines += [f"- LEFT OUT: {client}: {reason}" for client, reason in self.left_out.items()]
        return "\n".join(lines)

    def write_json(self, path: Path) -> None:
        """Write all numbers and a description of the machine."""
        content = {
            "title": self.title,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": sys.argv,
            "machine": machine(),
            "interpreter": self.interpreter,
            "clients": self.clients,
            "left_out": self.left_out,
            "baseline": self.baseline,
            "rounds": self.rounds,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


def side_by_side(runs: Sequence[Results]) -> str:
    """Return a Markdown table of the median ratios to the baseline: a row for each case, a column
    for each client of each run, and in a cell one ratio for each compared metric.
    """
    columns = [
        (run, client)
        for run in runs
        for client in dict.fromkeys(name for clients in run.rounds.values() for name in clients)
        if client != run.baseline
    ]
    metrics = [metric for metric in runs[0].metrics if metric.compared]
    titles = ", ".join(metric.title for metric in metrics)
    lines = [
        _line(
            [
                f"{titles}: times {runs[0].baseline}",
                *(
                    f"{client}, {run.interpreter.partition(' with')[0]}"
                    if len(runs) > 1
                    else client
                    for run, client in columns
                ),
            ]
        ),
        "|" + "---|" * (len(columns) + 1),
    ]
    for case in dict.fromkeys(case for run in runs for case in run.rounds):
        cells = [case]
        for run, client in columns:
            ratios = [
                run.ratios(metric, case, client) if client in run.rounds.get(case, {}) else []
                for metric in metrics
            ]
            cells.append(", ".join(f"{statistics.median(each):.2f}" for each in ratios if each))
        lines.append(_line(cells))
    return "\n".join(lines)


def spread(values: Sequence[float], digits: int) -> str:
    """Return ``median (min-max)``; empty if there are no values."""
    if not values:
        return ""
    median, least, most = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({least}-{most})"


def machine() -> dict[str, object]:
    """Return the processors, memory and versions of this machine."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)),
        "kafka": KAFKA_VERSIONS[0],
        "packages": found,
    }


def _processor() -> str:
    """Return the model of the processor (Linux)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

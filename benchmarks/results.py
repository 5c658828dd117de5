"""What came out of the rounds: as a table, as JSON."""

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

from benchmarks.measures import Figures

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
    """One column of the table, and one panel of the picture.

    Attributes:
        title: with the unit.
        value: of one round's figures.
        digits: after the point.
        compared: whether ratios are of use.
    """

    title: str
    value: Callable[[Figures], float]
    digits: int = 2
    compared: bool = True


@dataclass(slots=True)
class Results:
    """The figures of all rounds.

    Attributes:
        question: what was asked, for people.
        metrics: what is shown of the figures.
        beside: the client that the others are compared with, round by round; it may be missing.
        rounds: by case, then by client: the figures of each round, in order.
    """

    question: str
    metrics: Sequence[Metric]
    beside: str = "confluent-kafka"
    rounds: dict[str, dict[str, list[Figures]]] = field(default_factory=dict)

    def add(self, case: str, client: str, figures: Figures) -> None:
        """Keep one round's figures."""
        self.rounds.setdefault(case, {}).setdefault(client, []).append(figures)

    def values(self, metric: Metric, case: str, client: str) -> list[float]:
        """One number a round."""
        return [metric.value(figures) for figures in self.rounds[case][client]]

    def ratios(self, metric: Metric, case: str, client: str, beside: str = "") -> list[float]:
        """One ratio a round, to ``beside`` (the results' own, where none is named); empty where
        that was not measured or is zero.
        """
        beside = beside or self.beside
        if beside not in self.rounds[case]:
            return []
        pairs = list(
            zip(self.values(metric, case, client), self.values(metric, case, beside), strict=True)
        )
        return [own / other for own, other in pairs] if all(other for _, other in pairs) else []

    def table(self) -> str:
        """A Markdown table: medians and ranges, and the median of the ratios."""
        titles = ["case", "client"]
        for metric in self.metrics:
            titles += [metric.title, f"times {self.beside}"] if metric.compared else [metric.title]
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

    def write_json(self, path: Path) -> None:
        """Everything, with what it was measured on."""
        content = {
            "question": self.question,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": sys.argv,
            "machine": machine(),
            "beside": self.beside,
            "rounds": self.rounds,
        }
        path.write_text(json.dumps(content, indent=1) + "\n")


def spread(values: Sequence[float], digits: int) -> str:
    """``median (least-most)``; empty for no values."""
    if not values:
        return ""
    median, least, most = (
        f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values))
    )
    return f"{median} ({least}-{most})"


def machine() -> dict[str, object]:
    """Versions and processors."""
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
        "packages": found,
    }


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"

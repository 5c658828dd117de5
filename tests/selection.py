"""Selects the tests of a run: ``pytest`` runs those that need neither Java nor Spark, ``pytest
--all`` also the others.

Tests that take minutes run only if ``-m`` names their marker. The last lines of a run count what
was left out, and say how to run it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from _pytest.mark.expression import Expression
from _pytest.mark.structures import ParameterSet
from packaging.requirements import Requirement

from aioprod.counts import counted

T = TypeVar("T")

ROOT: Final = Path(__file__).parent.parent
WITH_ALL: Final = ("kafka", "spark", "all_packages", "slow")
ON_DEMAND: Final = ("benchmarks", "faults", "interop", "strangers", "wheels")
# Their modules import what the extra `test` does not install.
IMPORT_ALL_PACKAGES: Final = (
    "examples/test_arrow_orders.py",
    "tests/benchmarks/test_exactly_once_benchmark.py",
    "tests/benchmarks/test_spark_benchmark.py",
    "tests/demo",
    "tests/spark",
    "tests/testing/test_java.py",
)
# Their modules import or test what Windows does not have: terminals of POSIX, uvloop, signals that
# stop a process.
NOT_ON_WINDOWS: Final = (
    "tests/anomalies",
    "tests/benchmarks/test_webapp_benchmark.py",
    "tests/cli/test_cli_completion.py",
    "tests/cli/test_cli_confirm.py",
    "tests/cli/test_cli_groups_lag.py",
    "tests/cli/test_cli_hostile.py",
    "tests/cli/test_cli_top.py",
    "tests/examples/test_examples.py",
    "tests/examples/test_programs.py",
    "tests/faults",
    "tests/outbox/kill_rounds.py",
    "tests/outbox/test_inbox_postgresql.py",
    "tests/outbox/test_kills.py",
    "tests/strangers",
    "tests/test_broker_command.py",
    "tests/test_event_loops.py",
    "tests/test_orphans.py",
    "tests/test_recipes.py",
    "tests/testing/test_real_kafka.py",
)
needs_posix: Final = pytest.mark.skipif(
    sys.platform == "win32", reason="no shell, process groups and SIGTERM of POSIX"
)
_NEED_ALL_PACKAGES: Final = ("all_packages", "benchmarks", "faults", "interop", "spark")
EXTRA: Final = "test-all"
INSTALL: Final = f'python -m pip install -e ".[{EXTRA}]"'
RUN_ALL: Final = "python -m pytest --all -n 4"


class Selection:
    """The tests that a run includes, by its options ``--all`` and ``-m``."""

    def __init__(self, everything: bool, expression: str) -> None:
        asked = set(_asked_by(expression))
        if everything:
            asked.update(WITH_ALL)
        self._unasked = [each for each in (*ON_DEMAND, *WITH_ALL) if each not in asked]
        self.left_out: Counter[str] = Counter()

    def includes(self, marker: str) -> bool:
        """Return whether tests with this marker run."""
        return marker not in self._unasked

    @property
    def needs_all_packages(self) -> bool:
        """True if the packages of the extra ``test-all`` must be installed."""
        return any(map(self.includes, _NEED_ALL_PACKAGES))

    def ignores(self, path: Path) -> bool:
        """Return whether the tests in this file or folder are not even imported."""
        if not path.is_relative_to(ROOT):
            return False
        name = path.relative_to(ROOT).as_posix()
        if sys.platform == "win32" and name in NOT_ON_WINDOWS:
            return True
        return not self.needs_all_packages and name in IMPORT_ALL_PACKAGES

    def split(self, items: Iterable[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
        """Return the tests that run and those that are left out, and count these."""
        chosen: list[pytest.Item] = []
        left_out: list[pytest.Item] = []
        for item in items:
            marker = self._missing(item)
            if marker:
                self.left_out[marker] += 1
            (left_out if marker else chosen).append(item)
        return chosen, left_out

    def _missing(self, item: pytest.Item) -> str | None:
        """Return the marker because of which a test is left out. A test on demand may also need
        Kafka or Spark.
        """
        has = {mark.name for mark in item.iter_markers()}
        needed = has.intersection(ON_DEMAND) or has.intersection(WITH_ALL)
        return next((each for each in sorted(needed) if not self.includes(each)), None)


def by_default_each(number: int, place: int) -> list[pytest.MarkDecorator]:
    """Return the marks of the parameter at a place: each ``number``-th one runs without ``-m``, the
    others with ``-m faults``.
    """
    return [pytest.mark.faults] if place % number else []


def shares_by_default(values: Sequence[T], count: int, place: int) -> Iterator[ParameterSet]:
    """Yield each of ``count`` shares of the values as a parameter. Which of them runs without ``-m
    faults`` depends on the place, so that all values run by default if there are many places.
    """
    for number in range(count):
        marks = by_default_each(count, place + number)
        yield pytest.param(values[number::count], id=f"share{number}", marks=marks)


def square_by_default(
    first: Sequence[object], second: Sequence[object], third: Sequence[object]
) -> list[ParameterSet]:
    """Return all combinations. Those run without ``-m faults`` that combine each value of the first
    with each of the second, and all values of the third in turn.
    """
    return [
        pytest.param(one, two, three, marks=by_default_each(len(third), row + column + place))
        for row, one in enumerate(first)
        for column, two in enumerate(second)
        for place, three in enumerate(third)
    ]


def summary(left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield lines that say what was left out, and how to run it."""
    if count := sum(left_out.get(each, 0) for each in WITH_ALL):
        yield (
            f"left out: {counted(count, 'test')}, with a real Kafka or slow, and those of Spark; "
            f"to run them: {INSTALL} && {RUN_ALL}"
        )
    if named := [each for each in ON_DEMAND if left_out.get(each)]:
        counts = ", ".join(f"{each} ({left_out[each]:,})" for each in named)
        yield f"left out, as they take minutes: {counts}; to run them: python -m pytest -m NAME"


def missing_packages() -> list[str]:
    """Return the distributions of the extra ``test-all`` that are not installed."""
    names = {each.name for each in requirements(EXTRA)}
    return sorted(name for name in names if not _is_installed(name))


def project() -> dict[str, Any]:
    """Return the table of this project in `pyproject.toml`."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(found["project"])


def requirements(extra: str) -> Iterator[Requirement]:
    """Yield what an extra of this project installs on this platform, without dependencies."""
    of_project = project()
    for requirement in map(Requirement, of_project["optional-dependencies"][extra]):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if requirement.name == of_project["name"]:
            for other in requirement.extras:
                yield from requirements(other)
        else:
            yield requirement


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _asked_by(expression: str) -> Iterator[str]:
    """Yield the markers that ``-m`` asks for: those that decide that a test runs."""
    try:
        compiled = Expression.compile(expression)
    except Exception:  # SyntaxError since pytest 9, and an error of its own before
        return  # pytest says why
    names = sorted(set(re.findall(r"[a-z_]\w*", expression)) - {"and", "or", "not"})
    for values in product([False, True], repeat=len(names)):
        chosen = dict(zip(names, values, strict=True))
        if not _matches(compiled, chosen):
            continue
        for marker, value in chosen.items():
            if value and not _matches(compiled, {**chosen, marker: False}):
                yield marker


def _matches(expression: Expression, chosen: Mapping[str, bool]) -> bool:
    def has(name: str, /, **_: object) -> bool:
        return chosen[name]

    return expression.evaluate(has)

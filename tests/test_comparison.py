"""docs/comparison.md: each "yes" of ours names tests, and each test that is named is there."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from pathlib import Path

import pytest

import aioprod
from tests.public_names import PUBLIC_NAMES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "comparison.md"
CLIENTS = ["Java", "confluent-kafka", "aiokafka", "kafka-python", "franz-go"]
OTHERS = ["Dekaf", "@platformatic/kafka"]  # of other managed languages
HEADS = [["feature", *names, "aioprod", "shown by"] for names in (CLIENTS, OTHERS)]
OURS, TESTS = -2, -1
VERDICT = re.compile(r"(yes|no|partly|\?|n/a)( \(.+\))?")


def rows() -> list[list[str]]:
    """All rows of the page's tables, without their heads."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row not in HEADS and set(row[0]) != {"-"}]


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """The names of a file's tests, those of methods with their class; a state machine's by the name
    that it is bound to.
    """
    names: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}::{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "TestCase"
        ):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(
        name
        for name in names
        if name.rpartition("::")[2].startswith("test_") or name.startswith("Test")
    )


def named_tests(row: list[str]) -> list[str]:
    return re.findall(r"`([^`]+)`", row[TESTS])


def test_the_tables_have_these_columns_and_no_feature_comes_twice() -> None:
    found = rows()
    for head, least in zip(HEADS, (60, 15), strict=True):
        features = [row[0] for row in found if len(row) == len(head)]
        assert len(features) > least
        assert len(set(features)) == len(features)
    assert {len(row) for row in found} == set(map(len, HEADS))


def test_every_cell_is_a_verdict() -> None:
    wrong = [
        (row[0], cell) for row in rows() for cell in row[1:TESTS] if not VERDICT.fullmatch(cell)
    ]
    assert not wrong
    assert not [row[0] for row in rows() if row[OURS] == "?"], "we know what we can do"


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_yes_of_ours_names_tests_that_are_there(row: list[str]) -> None:
    named = named_tests(row)
    assert bool(named) == row[OURS].startswith("yes"), row[OURS]
    for name in named:
        path, _, test = name.partition("::")
        assert (ROOT / path).is_file(), f"{path}: no such file"
        assert test in names_in(path), f"{test}: no such test in {path}"


def test_a_test_that_is_not_there_would_be_found() -> None:
    assert "test_every_cell_is_a_verdict" in names_in("tests/test_comparison.py")
    assert "rows" not in names_in(
        "tests/test_comparison.py"
    ) and "test_that_does_not_exist" not in names_in("tests/test_comparison.py")
    assert "TestPoolMachine" in names_in("tests/producer/test_buffer_pool_machine.py")


def test_every_public_callable_is_typed() -> None:
    assert (ROOT / "aioprod" / "py.typed").is_file()
    untyped = []
    for name in PUBLIC_NAMES:
        public = getattr(aioprod, name)
        members = vars(public).items() if inspect.isclass(public) else [(name, public)]
        for member_name, member in members:
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if (
                member_name.startswith("__")
                or not inspect.isfunction(function)
                or not function.__module__.startswith("aioprod")
            ):
                continue
            signature = inspect.signature(function)
            annotations = [
                each.annotation
                for each in signature.parameters.values()
                if each.name not in ("self", "cls")
            ]
            if inspect.Signature.empty in (*annotations, signature.return_annotation):
                untyped.append(f"{name}.{member_name}")
    assert not untyped

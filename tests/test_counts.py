"""Messages say "1 record", and not "1 records"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioprod
from aioprod.counts import counted

ROOT = Path(aioprod.__file__).parent
NOUNS = (
    "attempts",
    "batches",
    "brokers",
    "connections",
    "groups",
    "members",
    "partitions",
    "records",
    "requests",
    "rows",
    "tasks",
    "topics",
    "transactions",
)
AFTER = re.compile(rf"^ (?!(?:gives|has|in|of|with) )(\w+ )?({'|'.join(NOUNS)})\b")
IN_FORMAT = re.compile(rf"(?<!of )(?<!than )%d (\w+ )?({'|'.join(NOUNS)})\b")


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "record", "0 records"),
        (1, "record", "1 record"),
        (2_000, "record", "2,000 records"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (1, "accepted record", "1 accepted record"),
    ],
)
def test_a_number_and_its_noun(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def test_no_message_has_a_plural_for_any_number() -> None:
    """Numbers after "of", and limits, are plural or no number of what happened."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(ROOT.rglob("*.py"))
        if "_tools" not in path.parts
        for line, text in plurals(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found


def plurals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the places where a text has a number and a plural."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if match := IN_FORMAT.search(node.value):
                yield node.lineno, match.group()
        elif isinstance(node, ast.JoinedStr):
            yield from _plurals_of(node.values)


def _plurals_of(parts: list[ast.expr]) -> Iterator[tuple[int, str]]:
    for before, number, after in zip([None, *parts], parts, parts[1:], strict=False):
        if not isinstance(number, ast.FormattedValue) or not isinstance(after, ast.Constant):
            continue
        match = AFTER.match(str(after.value))
        if match is None or number.conversion != -1 or _ends_with_of(before):
            continue
        if _is_limit(number.value) or _is_rate(number):
            continue
        yield number.lineno, f"{ast.unparse(number.value)}{match.group()}"


def _ends_with_of(before: ast.expr | None) -> bool:
    return isinstance(before, ast.Constant) and str(before.value).endswith(("of ", "more than "))


def _is_limit(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id.isupper()


def _is_rate(value: ast.FormattedValue) -> bool:
    return value.format_spec is not None and "f'" in ast.unparse(value.format_spec)

"""Errors name classes that users can look up: each is on a page of the documentation."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioprod
from aioprod import Admin, Producer
from aioprod.processing import Processor
from tests.testing.doc_blocks import DOCS
from tests.user_code.discovery import public_classes

SOURCES = Path(aioprod.__file__).parent
_CLASS_NAME = re.compile(r"(?<![\w.])[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+\b")
# For those who change aioprod, and the list of all names.
_NOT_FOR_USERS = {"architecture.md", "testing-aioprod.md"}
WORDS_OF_PAGES = {
    word
    for page in DOCS.rglob("*.md")
    if page.name not in _NOT_FOR_USERS
    for word in re.findall(r"\w+", page.read_text())
}
_BUILTINS = frozenset(dir(builtins))


def classes() -> set[str]:
    """The names of all classes of the package."""
    return {
        name
        for path in SOURCES.rglob("*.py")
        for name in re.findall(r"^\s*class (\w+)", path.read_text(), re.MULTILINE)
    }


def texts_of_errors(tree: ast.AST) -> Iterator[str]:
    """The constant parts of the texts that errors are made with."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name.endswith(("Error", "_error", "failure", "refused")) or name in _BUILTINS:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def names_in_errors() -> dict[str, str]:
    """The classes that errors name, each with a module that does."""
    ours = classes()
    return {
        word: str(path.relative_to(SOURCES))
        for path in sorted(SOURCES.rglob("*.py"))
        if path.parts[len(SOURCES.parts)] not in ("_tools", "protocol")
        for text in texts_of_errors(ast.parse(path.read_text()))
        for word in _CLASS_NAME.findall(text)
        if word in ours
    }


def test_each_class_that_an_error_names_is_on_a_page() -> None:
    found = names_in_errors()
    assert {"TopicPartition", "NewTopic", "ProducerRecord"} <= set(found)
    unknown = {name: module for name, module in found.items() if name not in WORDS_OF_PAGES}
    assert unknown == {}


# Configurations call it themselves.
NOT_CALLED = {"check_common"}


def test_python_names_a_class_that_is_on_a_page_in_its_own_errors() -> None:
    """It names the class in which a method was written, such as a base class of Admin."""
    unknown = {
        f"{kind.__name__}.{name}": function.__qualname__
        for kind in public_classes()
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        for function in (method, inspect.unwrap(method))
        if not name.startswith("_") and name not in NOT_CALLED
        if function.__module__.startswith("aioprod")
        if function.__qualname__.partition(".")[0] not in WORDS_OF_PAGES
    }
    assert unknown == {}


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        (Admin, "create_topics", "Admin.create_topics"),
        (Producer, "send_offsets_to_transaction", "Producer.send_offsets_to_transaction"),
        (Processor, "in_flight_by_key", "Processor.in_flight_by_key"),
    ],
)
async def test_a_missing_or_extra_argument_names_the_public_class(
    kind: type, name: str, shown: str
) -> None:
    for wrong in ((), (1,) * 20):
        if not wrong and name == "in_flight_by_key":
            continue
        with pytest.raises(TypeError, match=rf"^{shown}\(\) "):
            result = getattr(object.__new__(kind), name)(*wrong)
            await result

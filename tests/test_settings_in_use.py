"""Each declared setting is read by the client that has it; a check of its value does not count."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import aioprod
from aioprod.config.admin import ADMIN
from aioprod.config.consumer import CONSUMER
from aioprod.config.producer import PRODUCER
from aioprod.config.setting import SettingsTable
from aioprod.config.share_consumer import SHARE_CONSUMER

ROOT = Path(aioprod.__file__).parent
SHARED = ("net", "cluster", "config")
#: Kind of client -> its settings, and where it may read them.
CLIENTS: Mapping[str, tuple[SettingsTable, tuple[str, ...]]] = {
    "producer": (PRODUCER, (*SHARED, "producer", "metrics")),
    "consumer": (CONSUMER, (*SHARED, "consumer", "metrics")),
    "share consumer": (SHARE_CONSUMER, (*SHARED, "consumer", "metrics")),
    "admin": (ADMIN, (*SHARED, "admin", "metrics")),
}
MIN_LITERAL = 10  # characters of an f-string that must be known
OF_ANOTHER_CLIENT: Mapping[str, Callable[[str], bool]] = {
    "consumer": lambda path: "consumer/share" in path or path == "config/share_consumer.py",
    "share consumer": lambda path: path == "config/consumer.py",
}


def reads(source: str) -> Iterator[str]:
    """The patterns of names that code reads as attributes, or by text in ``getattr`` and the like;
    not what only checks values.
    """
    tree = ast.parse(source)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value.value, str)
    }
    checks = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and (function.name.startswith("_check") or function.name == "__post_init__")
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if id(node) in checks:
            continue
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) | ast.Constant(value=str() as name):
                yield re.escape(name)
            case ast.JoinedStr(values=parts):
                pattern = "".join(_part(part, constants) for part in parts)
                if len(pattern.replace(r"\w+", "")) >= MIN_LITERAL:
                    yield pattern


def _part(part: ast.expr, constants: Mapping[str, str]) -> str:
    match part:
        case ast.Constant(value=str() as text):
            return re.escape(text)
        case ast.FormattedValue(value=ast.Name(id=name)) if name in constants:
            return re.escape(constants[name])
        case _:
            return r"\w+"


def unread(settings: Iterator[str], sources: Iterator[str]) -> list[str]:
    patterns = {pattern for source in sources for pattern in reads(source)}
    exact = {pattern for pattern in patterns if pattern.isidentifier()}
    loose = [re.compile(pattern) for pattern in patterns - exact if r"\w+" in pattern]
    return [
        name
        for name in settings
        if name not in exact and not any(pattern.fullmatch(name) for pattern in loose)
    ]


def _never(path: str) -> bool:
    return False


def sources_of(kind: str) -> Iterator[str]:
    is_other = OF_ANOTHER_CLIENT.get(kind, _never)
    for room in CLIENTS[kind][1]:
        for path in sorted((ROOT / room).rglob("*.py")):
            relative = path.relative_to(ROOT).as_posix()
            if "config/settings/" in relative or relative == "config/unsupported.py":
                continue
            if not is_other(relative):
                yield path.read_text()


@pytest.mark.parametrize("kind", CLIENTS)
def test_each_setting_is_read_by_its_client(kind: str) -> None:
    settings = [*CLIENTS[kind][0].settings, "made_up_setting_ms"]
    assert unread(iter(settings), sources_of(kind)) == ["made_up_setting_ms"]


def test_a_setting_that_is_only_checked_counts_as_unread() -> None:
    checked = "def _check_new(config):\n    if config.new_limit < 1:\n        raise ConfigError\n"
    assert unread(iter(["new_limit"]), iter([checked])) == ["new_limit"]
    assert unread(iter(["new_limit"]), iter([checked, "use(config.new_limit)"])) == []
    by_text = 'value = getattr(config, f"new_{kind}_limit")'
    assert unread(iter(["new_first_limit", "new_limit"]), iter([by_text])) == ["new_limit"]

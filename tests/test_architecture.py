"""The shape of the package: imports lead downwards, files and functions stay small, public names
are public on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import aioprod

# One process parses the sources once for all tests.
pytestmark = pytest.mark.xdist_group("architecture")

ROOT = Path(aioprod.__file__).parent
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
GENERATED = ROOT / "protocol" / "messages"

BASE_MODULES = {
    "background",
    "codecs",
    "config",
    "types",
    "errors",
    "error_codes",
    "foreign_text",
    "serialization",
    "serializing",
    "oauth_token",
    "column_serialization",
    "database",
    "dead_letter_headers",
    "decoding_limits",
    "interceptors",
    "metrics",
    "misuse",
    "headers",
    "interrupt",
    "json_values",
    "header_names",
    "lazy_names",
    "logs",
    "native",
    "one_argument",
    "page_server",
    "preparation",
    "probes",
    "public_module",
    "running_loop",
    "secret_forms",
    "arguments",
    "closing",
    "counts",
    "earliest_timer",
    "threads",
    "user_code",
    "varints",
    "_version",
}
CLIENT = {"base", "protocol", "net", "cluster"}
# What each room may import besides itself. Siblings (producer, consumer, admin) don't know each
# other.
MAY_IMPORT: dict[str, set[str]] = {
    "base": set(),
    "protocol": {"base"},
    "net": {"base", "protocol"},
    "cluster": {"base", "protocol", "net"},
    "producer": CLIENT,
    "consumer": CLIENT,
    "admin": CLIENT,
    "public": {"base", "producer", "consumer", "admin"},
    "processing": {"base", "public", "admin"},  # admin's arguments are in its package only
    "schema_registry": {"base", "net", "cluster"},
    "oauth": {"base", "net", "cluster"},
    "outbox": {"base", "public", "admin"},
    "compat": {"base", "public", "admin"},
    "testing": {"base", "protocol"},
    "simulation": {"cluster"},
    "pytest_plugin": {*CLIENT, "producer", "consumer", "admin", "public", "testing"},
    "integrations": {"base", "public", "processing", "outbox"},
    "spark": {*CLIENT, "producer", "consumer", "admin", "public", "testing", "schema_registry"},
    "template": {"base", "testing", "pytest_plugin", "spark", "schema_registry"},
    "demo": {*CLIENT, "producer", "consumer", "admin", "public", "testing", "spark"},
    "cli": {
        *("base", "public", "admin", "schema_registry", "testing", "spark", "demo"),
        *("outbox", "processing", "integrations"),
    },
    "__main__": {"cli"},
    "_tools": {"base", "protocol", "testing"},
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(), FILES[name])


def imported_modules(name: str) -> set[str]:
    """The modules of this package that a module imports, anywhere in it; its own parent packages
    don't count.
    """
    found = set()
    for target in _import_targets(name):
        if target in FILES and target != name and not (name + ".").startswith(target + "."):
            found.add(target)
    return found


def _import_targets(name: str) -> Iterator[str]:
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            module = ".".join([*above, *([node.module] if node.module else [])])
            submodules = {f"{module}.{alias.name}" for alias in node.names} & FILES.keys()
            yield from submodules
            if len(submodules) < len(node.names):  # something is taken from the package itself
                yield module


def room(name: str) -> str:
    """The part of the package that a module belongs to."""
    first, second = [*name.split("."), "", ""][1:3]
    if not first:
        return "public"
    if (first, second) == ("spark", "template"):  # an application, with its tests
        return second
    # These are above the clients, which they use.
    if first == "testing" and second in ("simulation", "pytest_plugin"):
        return second
    return "base" if first in BASE_MODULES else first


def test_imports_lead_downwards() -> None:
    assert [name for name in FILES if room(name) not in MAY_IMPORT] == []
    wrong = [
        f"{name} ({room(name)}) may not import {target}"
        for name in FILES
        for target in sorted(imported_modules(name))
        if room(target) != room(name) and room(target) not in MAY_IMPORT[room(name)]
    ]
    assert not wrong


def test_only_its_command_imports_the_demo() -> None:
    importers = {
        name
        for name in FILES
        if room(name) != "demo" and any(room(target) == "demo" for target in imported_modules(name))
    }
    assert importers == {"aioprod.cli.demo"}


def test_the_rules_themselves_have_no_circle() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_module_imports_itself_in_a_circle() -> None:
    try:
        TopologicalSorter({name: imported_modules(name) for name in FILES}).prepare()
    except CycleError as error:
        pytest.fail("imports in a circle: " + " <- ".join(error.args[1]))


def test_files_and_functions_stay_small() -> None:
    written = [name for name in FILES if not FILES[name].is_relative_to(GENERATED)]
    assert [
        name for name in written if len(FILES[name].read_text().splitlines()) > MAX_FILE_LINES
    ] == []
    too_long = []
    for name in written:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES:
                    too_long.append(f"{name}: {node.name}")
    assert too_long == []


def constructors() -> Iterator[tuple[str, str, int]]:
    """Yield module, class and number of parameters of each constructor.

    A public class may have more keyword arguments with a default: these are its settings, which
    users name one by one. They are not counted. Nor are the fields of messages, which are Kafka's.
    """
    for name in FILES:
        if FILES[name].is_relative_to(GENERATED):
            continue
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.ClassDef):
                continue
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    given = method.args
                    count = len(given.posonlyargs) + len(given.args) - 1
                    settings = sum(default is not None for default in given.kw_defaults)
                    count += len(given.kwonlyargs) - (settings if _is_public(name, node) else 0)
                    yield name, node.name, count


def _is_public(name: str, node: ast.ClassDef) -> bool:
    """Return True if its module or a package exports a class."""
    homes = [name.rsplit(".", level)[0] for level in range(name.count(".") + 1)]
    return any(f'"{node.name}"' in FILES[home].read_text() for home in homes)


# The settings of public classes that inherit from it: AvroSerializer and others.
MANY_PARAMETERS = {"aioprod.schema_registry.serializers.SchemaSerializer": 9}


def test_constructors_have_few_parameters() -> None:
    many = {
        f"{name}.{kind}": count for name, kind, count in constructors() if count > MAX_PARAMETERS
    }
    assert {each for each in many if many[each] > MANY_PARAMETERS.get(each, 0)} == set()
    assert MANY_PARAMETERS.keys() - many.keys() == set(), "these are divided: remove them here"


def test_every_directory_with_code_is_a_package() -> None:
    assert {path.parent for path in FILES.values()} == {
        path.parent for path in FILES.values() if path.name == "__init__.py"
    }

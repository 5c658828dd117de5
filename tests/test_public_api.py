"""docs/public-api.md lists what is public, and nothing else that users see is private."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import aioprod
from tests.public_names import PUBLIC_NAMES

ROOT = Path(aioprod.__file__).parent.parent
DOCS = ROOT / "docs"
PAGE = (DOCS / "public-api.md").read_text(encoding="utf-8")
MODULES = (
    "aioprod",
    "aioprod.admin",
    "aioprod.metrics",
    "aioprod.serialization",
    "aioprod.interceptors",
    "aioprod.preparation",
    "aioprod.outbox",
    "aioprod.outbox.alembic",
    "aioprod.processing",
    "aioprod.processing.dead_letters",
    "aioprod.processing.inbox",
    "aioprod.processing.inbox.alembic",
    "aioprod.schema_registry",
    "aioprod.oauth",
    "aioprod.integrations.opentelemetry",
    "aioprod.integrations.prometheus",
    "aioprod.testing",
    "aioprod.testing.registry",
    "aioprod.testing.simulation",
    "aioprod.testing.real_cluster",
    "aioprod.testing.real_kafka",
    "aioprod.testing.pytest_plugin.topic_consumer",
    "aioprod.testing.pytest_plugin.blocking",
    "aioprod.compat.aiokafka",
    "aioprod.native",
    "aioprod.spark",
    "aioprod.spark.page",
    "aioprod.spark.pipeline",
)
#: Parts of aioprod's names, which the page mentions once.
PARTS = (
    "aioprod.producer",
    "aioprod.consumer",
    "aioprod.config",
    "aioprod.types",
    "aioprod.errors",
)
#: The page says that it is an example.
EXAMPLE = "aioprod.demo.pipeline"
#: Packages whose ``__all__`` is for their own parts or for programs of other clients.
NOT_FOR_USERS = {
    "aioprod.cli",
    "aioprod.consumer.group.assignors",
    EXAMPLE,
    "aioprod.spark._versions",
    "aioprod.spark.registration.pyspark_aioprod",
}


def expected_row(module: str) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(import_module(module).__all__))
    return f"| `{module}` | {names} |"


@pytest.mark.parametrize(
    "module",
    [
        # It refuses to be imported without PySpark.
        pytest.param(each, marks=pytest.mark.all_packages if "spark" in each else ())
        for each in MODULES
    ],
)
def test_the_page_has_the_names_of_each_public_module(module: str) -> None:
    row = re.search(rf"^\| `{re.escape(module)}` \|.*$", PAGE, re.MULTILINE)
    assert row is not None and row[0] == expected_row(module), expected_row(module)


def test_the_page_has_no_other_modules() -> None:
    assert tuple(re.findall(r"^\| `(aioprod[\w.]*)` \|", PAGE, re.MULTILINE)) == MODULES


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_names_of_aioprod_only(part: str) -> None:
    assert f"`{part}`" in PAGE
    assert set(import_module(part).__all__) <= set(PUBLIC_NAMES)


def test_each_list_of_names_belongs_to_a_public_module() -> None:
    listed = set()
    for path in (ROOT / "aioprod").rglob("*.py"):
        if re.search(r"^__all__\b", path.read_text(), re.MULTILINE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            listed.add(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    compat = {name for name in listed if name.startswith("aioprod.compat.aiokafka.")}
    assert listed - {*MODULES, *PARTS} - compat == NOT_FOR_USERS


def programs() -> Iterator[tuple[str, str]]:
    for path in (*DOCS.rglob("*.md"), ROOT / "README.md"):
        for number, program in enumerate(
            re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
        ):
            yield f"{path.name} {number}", program
    for path in (ROOT / "examples").rglob("*.py"):
        yield path.name, path.read_text()


@pytest.mark.all_packages
def test_documents_and_examples_import_public_names_only() -> None:
    private = []
    for place, program in programs():
        for module, names in imports(program):
            if module in MODULES or module in PARTS:
                known = set(import_module(module).__all__) | {"errors", "__version__"}
                private += [f"{place}: {module}.{name}" for name in names if name not in known]
            elif module.split(".")[0] == "aioprod" and module != EXAMPLE:
                private.append(f"{place}: {module}")
    assert private == []


def imports(program: str) -> Iterator[tuple[str, list[str]]]:
    try:
        tree = ast.parse(program)
    except SyntaxError:  # a part of a program
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)

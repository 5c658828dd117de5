"""The files that docs/architecture.md names exist, and it names all modules of the clients."""

from __future__ import annotations

import re
from pathlib import Path

import aioprod

ROOT = Path(aioprod.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"(?<![\w/*])([\w/]+\.py)\b", PAGE))
ROOMS = (
    "config",
    "protocol",
    "net",
    "cluster",
    "producer",
    "consumer",
    "admin",
    "processing",
    "schema_registry",
    "spark",
)
NOT_DESCRIBED = {"__init__.py", "__main__.py", "__version__.py"}


def test_the_files_that_the_page_names_exist() -> None:
    files = {path.as_posix() for path in ROOT.parent.rglob("*.py") if ".git" not in path.parts}
    assert [
        name for name in NAMED if not any(f"/{path}".endswith(f"/{name}") for path in files)
    ] == []


def test_the_page_names_each_module_of_the_clients() -> None:
    named = {name.rpartition("/")[2] for name in NAMED}
    missing = [
        path.relative_to(ROOT).as_posix()
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.name not in named | NOT_DESCRIBED and "messages" not in path.parts
    ]
    assert missing == []


def test_rules_are_numbered_by_room() -> None:
    rules = re.findall(r"^- \*\*([A-Z])(\d+)\.\*\* ", PAGE, re.MULTILINE)
    assert len(rules) > 50
    for room in {room for room, _ in rules}:
        numbers = [int(number) for letter, number in rules if letter == room]
        assert numbers == list(range(1, len(numbers) + 1)), room
    sources = [*(ROOT.parent / "tests").rglob("*.py"), *(ROOT.parent / "docs").glob("*.md")]
    known = {f"{room}{number}" for room, number in rules}
    for path in sources:
        for name in re.findall(r"\brules? ([A-Z]\d+)\b", path.read_text(encoding="utf-8")):
            assert name in known, f"{path}: {name}"

"""The files that docs/architecture.md names exist, and what it does not name is said elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import aioprod
from tests.test_glossary import WORDS, glossary

ROOT = Path(aioprod.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"(?<![\w/*])([\w/]+\.py)\b", PAGE))


def test_the_files_that_the_page_names_exist() -> None:
    files = {path.as_posix() for path in ROOT.parent.rglob("*.py") if ".git" not in path.parts}
    assert [
        name for name in NAMED if not any(f"/{path}".endswith(f"/{name}") for path in files)
    ] == []


def test_the_names_of_the_page_are_those_of_the_code() -> None:
    """Such as ``PartitionQueue.close``: a class, a method, a setting. A rename changes the page."""
    code = {
        word
        for path in [*ROOT.rglob("*.py"), ROOT.parent / "tests" / "conftest.py"]
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    named = re.findall(r"`(\w+(?:\.\w+)*)(?:\([\w, ]*\))?`", PAGE)
    parts = {part for name in named if not name.endswith(".py") for part in name.split(".")}
    assert len(parts) > 150
    assert sorted(parts - code) == []


def test_the_page_names_each_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"__pycache__"}
    table = PAGE.partition("| package | contents |")[2].partition("\n\n")[0]
    assert [name for name in packages if f"`{name}/`" not in table] == []


def test_each_module_says_in_its_first_line_what_it_has() -> None:
    """The page sends its readers there: ``head -n1 aioprod/producer/*.py``."""
    modules = [path for path in sorted(ROOT.rglob("*.py")) if "messages" not in path.parts]
    assert len(modules) > 500
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in modules
        if not re.match(r'"""\S.{10,}', path.read_text(encoding="utf-8"))
    ]
    assert silent == []


def test_the_words_of_the_glossary_are_used() -> None:
    text = PAGE.replace(glossary(), "")
    assert [match.group() for words in WORDS.values() for match in words.finditer(text)] == []


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

"""`pytest`, `pytest --all` and `pytest -m` select the right tests, and need only the documented
packages.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import selection
from tests.selection import (
    IMPORT_ALL_PACKAGES,
    NOT_ON_WINDOWS,
    ON_DEMAND,
    ROOT,
    WITH_ALL,
    Selection,
)

IMPORT = re.compile(
    r"^(?:from (?P<module>[\w.]+) import (?P<names>\([^)]*\)|[^\n(]*)|import (?P<plain>[\w., ]+))",
    re.MULTILINE,
)
PROJECT = selection.project()
OURS = {"aioprod", "benchmarks", "docs", "examples", "tests"}


@pytest.mark.parametrize(
    ("everything", "expression", "included"),
    [
        (False, "", set()),
        (True, "", set(WITH_ALL)),
        (False, "kafka", {"kafka"}),
        (False, "not kafka and not spark", set()),
        (False, "not (kafka or spark)", set()),
        (True, "not spark", set(WITH_ALL)),  # -m itself leaves out those of Spark
        (False, "kafka or spark", {"kafka", "spark"}),
        (False, "kafka and not spark", {"kafka"}),
        (False, "faults", {"faults"}),
        (False, "interop and kafka", {"interop", "kafka"}),
        (False, "virtual_time and not faults", set()),
        (True, "strangers", {*WITH_ALL, "strangers"}),
        (False, "and and", set()),  # pytest refuses it
    ],
)
def test_options_and_markers(everything: bool, expression: str, included: set[str]) -> None:
    chosen = Selection(everything, expression)
    assert {each for each in (*WITH_ALL, *ON_DEMAND) if chosen.includes(each)} == included


def test_what_is_left_out_is_counted_and_how_to_run_it() -> None:
    lines = list(selection.summary({"kafka": 1_200, "spark": 34, "faults": 5, "interop": 0}))
    assert "1,234 tests" in lines[0] and selection.RUN_ALL in lines[0]
    assert selection.INSTALL in lines[0]
    assert "faults (5)" in lines[1] and "interop" not in lines[1] and "-m NAME" in lines[1]
    assert list(selection.summary({})) == []


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_is_installed", lambda name: name not in {"polars", "pyspark"})
    assert selection.missing_packages() == ["polars", "pyspark"]


# -- what the extra `test` does not install --------------------------------------------------------


def closure(extra: str) -> set[str]:
    """The distributions that an extra of this project installs, and their requirements."""
    found: set[str] = set()
    waiting = [*selection.requirements(extra), *map(Requirement, PROJECT["dependencies"])]
    while waiting:
        requirement = waiting.pop()
        marker = requirement.marker
        if marker and not marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(requirement.name)
        if f"{name}{sorted(requirement.extras)}" in found:
            continue
        found |= {name, f"{name}{sorted(requirement.extras)}"}
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        for each in map(Requirement, requires):
            extras = {"", *requirement.extras}
            if each.marker is None or any(each.marker.evaluate({"extra": it}) for it in extras):
                each.marker = None
                waiting.append(each)
    return found


def imported_at_once(path: Path) -> Iterator[str]:
    """The modules that a module imports when it is imported, but for those in a ``try``."""
    text = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for match in IMPORT.finditer(text):
        if plain := match["plain"]:
            yield from (name.split()[0] for name in plain.split(","))
            continue
        base = match["module"]
        if base.startswith("."):
            level = len(base) - len(base.lstrip("."))
            parents = path.relative_to(ROOT).parts[:-level]
            base = ".".join([*parents, *filter(None, [base[level:]])])
        yield base
        yield from (f"{base}.{name}" for name in re.findall(r"(\w+)(?: as \w+)?", match["names"]))


@cache
def path_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    of_programs = [ROOT / folder / f"{module}.py" for folder in ("examples", "docs/_site")]
    candidates = (place.with_suffix(".py"), place / "__init__.py", *of_programs)
    return next((each for each in candidates if each.is_file()), None)


@cache
def neighbors(path: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """The foreign modules that a module imports itself, and the modules of the tests."""
    foreign, ours = set(), set()
    for module in imported_at_once(path):
        parts = module.split(".")
        if parts[0] == "aioprod":
            if parts[1:2] in (["spark"], ["demo"]):
                foreign.add("pyspark")  # they refuse to be imported without
        elif found := path_of(module):
            ours.add(found)
        elif parts[0] not in OURS and path_of(parts[0]) is None and parts[0][0] != "_":
            foreign.add(parts[0])
    return frozenset(foreign), frozenset(ours)


def foreign_imports(path: Path) -> set[str]:
    """The foreign modules that a test imports, also by other modules of the tests."""
    found: set[str] = set()
    waiting, seen = [path], {path}
    while waiting:
        foreign, ours = neighbors(waiting.pop())
        found |= foreign
        waiting += ours - seen
        seen |= ours
    return found


def test_modules_of_the_default_run_import_what_the_extra_installs() -> None:
    installed = closure("test")
    owners = {
        module: {canonicalize_name(name) for name in names}
        for module, names in packages_distributions().items()
    }
    faults = []
    for folder in ("tests", "examples"):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(IMPORT_ALL_PACKAGES):
                continue
            for module in sorted(foreign_imports(path) - sys.stdlib_module_names):
                if not owners.get(module, set()) & installed:
                    faults.append(f"{name} imports {module}")
    assert not faults, "\n".join(faults)


def test_the_files_that_need_more_exist() -> None:
    for name in (*IMPORT_ALL_PACKAGES, *NOT_ON_WINDOWS):
        files = [ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("test_*.py"))
        assert files
        assert all(each.is_file() for each in files)


# -- what Windows does not have --------------------------------------------------------------------

ABSENT_MODULES = {
    *("curses", "fcntl", "grp", "posix", "pty", "pwd", "readline", "resource", "syslog"),
    *("termios", "tty", "uvloop"),
}
ABSENT_NAMES = {
    "os": {
        *("fork", "forkpty", "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getpgrp"),
        *("getpriority", "getuid", "killpg", "mkfifo", "nice", "openpty", "pidfd_open"),
        *("register_at_fork", "sched_getaffinity", "setpgid", "setpriority", "setsid", "sysconf"),
        *("ttyname", "uname", "wait4", "WNOHANG"),
    },
    "signal": {
        *("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP"),
        *("SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pause", "setitimer"),
    },
    "asyncio": {"open_unix_connection", "start_unix_server"},
    "process": {"send_signal"},  # SIGTERM kills at once, and SIGINT raises
}
SHELLS = {"bash", "sh", "zsh", "fish"}
# They ask first whether the system has it, or are used only by tests that are skipped there.
ASK_FIRST = (
    "tests/conftest.py",
    "tests/loops.py",
    "tests/orphans.py",
    "tests/outbox/postgres_server.py",
    "tests/schema_registry/test_real_registry.py",
    "tests/test_cancelled_cleanup.py",
    "tests/test_selection.py",
    "tests/waiting.py",
)


def absent_on_windows(node: ast.AST) -> str | None:
    """Return the name in a node of a syntax tree that Windows does not have."""
    match node:
        case ast.Import(names=names):
            found = [each.name for each in names if each.name.split(".")[0] in ABSENT_MODULES]
            return found[0] if found else None
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in ABSENT_MODULES:
            return module
        case ast.Attribute(value=ast.Name(id=name), attr=attr):
            return f"{name}.{attr}" if attr in ABSENT_NAMES.get(name, ()) else None
        case ast.List(elts=[ast.Constant(value=str(program)), *_]) if program in SHELLS:
            return program
        case ast.Constant(value=str(text)) if text.startswith(("/proc/", "/dev/")):
            return text
    return None


def unguarded(tree: ast.AST, guarded: bool = False) -> Iterator[str]:
    """Yield the names that Windows does not have, except in tests that are skipped there."""
    decorators = getattr(tree, "decorator_list", [])
    guarded = guarded or any(
        re.search("needs_posix|platform|'fork'", ast.unparse(each)) for each in decorators
    )
    found = absent_on_windows(tree)
    if found and not guarded:
        yield f"line {getattr(tree, 'lineno', 0)}: {found}"
    for child in ast.iter_child_nodes(tree):
        yield from unguarded(child, guarded)


def test_what_windows_does_not_have_is_not_used_there() -> None:
    """The import of one module that is not there ends a run before its first test."""
    left_out = (*IMPORT_ALL_PACKAGES, *NOT_ON_WINDOWS)
    faults = []
    for folder in ("tests", "examples"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name.startswith(left_out):
                continue
            if path.name.startswith("test_"):
                absent = foreign_imports(path) & ABSENT_MODULES
                faults += [f"{name} imports {module}" for module in sorted(absent)]
            if name not in ASK_FIRST:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                faults += [f"{name}, {each}" for each in unguarded(tree)]
    assert not faults, "\n".join(faults)

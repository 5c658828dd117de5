"""Lets pyright check the types, in CI and by hand: ``python -m tests.types.pyright``.

pyright must find each mistake in ``mistakes.py`` and no others, nothing in the examples and in the
programs of the documentation, and must know at least ``LOWEST_SCORE`` per cent of the types that
the package exports. It needs the extra ``pyright``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent.parent
MISTAKES = Path(__file__).parent / "mistakes.py"
LOWEST_SCORE = 98.0
_LIMIT_S = 300
# The rules that are broken by a block that is not a whole program; None: wrong syntax.
_OF_FRAGMENTS = ("reportUndefinedVariable", "reportMissingImports", None)


def marked_lines() -> set[int]:
    """Return the lines of ``mistakes.py`` that have an error."""
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# error")}


def lines_of_errors(report: Mapping[str, Any]) -> set[int]:
    """Return the lines of ``mistakes.py`` in which pyright has found an error."""
    return {
        each["range"]["start"]["line"] + 1
        for each in report["generalDiagnostics"]
        if each["severity"] == "error" and Path(each["file"]).name == MISTAKES.name
    }


def score_of(report: Mapping[str, Any]) -> float:
    """Return the completeness of types, in per cent."""
    score: float = report["typeCompleteness"]["completenessScore"]
    return round(100 * score, 2)


def programs_of_pages(directory: Path) -> list[Path]:
    """Write the programs of the documentation to files: blocks that are complete modules."""
    written = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        for number, block in enumerate(blocks):
            if not re.match(r"(import|from) ", block):
                continue
            file = directory / f"{page.stem.replace('-', '_')}_{number}.py"
            file.write_text(block, encoding="utf-8")
            written.append(file)
    return written


def report_of(*arguments: str | Path) -> dict[str, Any]:
    """Run pyright with this Python's packages, and return its report."""
    # It looks for Python on PATH.
    paths = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_S,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PATH": paths},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def faults_of_mistakes() -> list[str]:
    """Return the lines on which pyright and ``mistakes.py`` do not agree."""
    found, marked = lines_of_errors(report_of(MISTAKES)), marked_lines()
    return [
        *(f"{MISTAKES}:{line}: pyright does not find the mistake" for line in marked - found),
        *(f"{MISTAKES}:{line}: pyright finds a mistake" for line in found - marked),
    ]


def faults_of_programs() -> list[str]:
    """Return what pyright finds in the examples, and in the programs of the documentation."""
    with TemporaryDirectory() as directory:
        examples = sorted((ROOT / "examples").glob("*.py"))
        report = report_of(*examples, *programs_of_pages(Path(directory)))
    errors = [each for each in report["generalDiagnostics"] if each["severity"] == "error"]
    # A block that goes on from another one, or awaits outside of a function.
    fragments = {each["file"] for each in errors if each.get("rule") in _OF_FRAGMENTS}
    return [
        f"{each['file']}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in errors
        if each["file"] not in fragments or Path(each["file"]).is_relative_to(ROOT)
    ]


def faults_of_completeness() -> list[str]:
    """Return whether the package exports too many types that are not known."""
    score = score_of(report_of("--verifytypes", "aioprod", "--ignoreexternal"))
    print(f"completeness of types: {score} %")
    if score >= LOWEST_SCORE:
        return []
    return [
        f"must be at least {LOWEST_SCORE} %; `pyright --verifytypes aioprod --ignoreexternal` "
        "names the symbols to annotate"
    ]


def main(arguments: Sequence[str] = ()) -> int:
    faults = [*faults_of_mistakes(), *faults_of_programs(), *faults_of_completeness()]
    print("\n".join(sorted(faults)) or "pyright: as expected")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

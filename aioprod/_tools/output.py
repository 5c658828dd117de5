"""Formats generated code like the rest of the project, and writes the files that have changed."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

# As in pyproject.toml.
_STYLE = ("--line-length=100", "--target-version=py311")
_OURS = "lint.isort.known-first-party=['aioprod']"
_SORT_IMPORTS = ["check", "--select=I", "--fix", f"--config={_OURS}"]


def formatted(files: Mapping[str, str]) -> dict[str, str]:
    """Format Python modules, given by file name, and sort their imports."""
    with TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / name).write_text(text, encoding="utf-8")
        for command in (_SORT_IMPORTS, ["format"]):
            subprocess.run(
                [sys.executable, "-m", "ruff", *command, "-q", "--isolated", *_STYLE, directory],
                check=True,
                timeout=60,
            )
        return {name: (Path(directory) / name).read_text(encoding="utf-8") for name in files}


def parser_of(command: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments that all generators have."""
    parser = argparse.ArgumentParser(prog=command, description=description)
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit with 1 if a file is not up to date",
    )
    return parser


def bring_up_to_date(
    files: Mapping[Path, str], *, check: bool, directory: Path | None = None
) -> int:
    """Write the files that differ, and print their names. Return the exit status.

    Args:
        files: the texts by path.
        check: write nothing; the status is 1 if a file differs.
        directory: other Python files in it are removed.
    """
    others = set() if directory is None else set(directory.glob("*.py")) - files.keys()
    changed = sorted({path for path in files if text_of(path) != files[path]} | others)
    for path in changed:
        print(f"{'out of date' if check else 'written'}: {path}")
        if not check:
            if path in files:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(files[path], encoding="utf-8")
            else:
                path.unlink()
    return 1 if check and changed else 0


def text_of(path: Path) -> str | None:
    """Return the text of a file; None if it does not exist."""
    return path.read_text(encoding="utf-8") if path.exists() else None

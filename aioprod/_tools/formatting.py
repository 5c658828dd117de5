"""Formats generated code as the rest of the tree is."""

from __future__ import annotations

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
    """Return Python modules, by file name, formatted, with sorted imports."""
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

"""Formats generated code as the rest of the tree is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

# As in pyproject.toml.
_STYLE = ("--line-length=100", "--target-version=py311")


def formatted(files: Mapping[str, str]) -> dict[str, str]:
    """Return Python modules, by file name, formatted by one run of ruff."""
    with TemporaryDirectory() as directory:
        for name, text in files.items():
            (Path(directory) / name).write_text(text, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", *_STYLE, directory],
            check=True,
            timeout=60,
        )
        return {name: (Path(directory) / name).read_text(encoding="utf-8") for name in files}

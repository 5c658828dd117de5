"""Prints the notes of a version, for its release: ``release_notes.py 0.1.0``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parent.parent / "CHANGELOG.md"


def notes_of(version: str, changelog: str) -> str:
    """Return the text below the heading of a version.

    Raises:
        ValueError: if there is none, or it has no date.
    """
    sections = re.split(r"^## \[([^\]]+)\] - (\S+)$", changelog, flags=re.MULTILINE)[1:]
    for found, date, notes in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
        if found == version:
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
                raise ValueError(f"version {version} has no date in CHANGELOG.md, but {date!r}")
            return notes.strip()
    raise ValueError(f"CHANGELOG.md has no notes of version {version}")


def main() -> None:
    try:
        print(notes_of(sys.argv[1], CHANGELOG.read_text(encoding="utf-8")))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

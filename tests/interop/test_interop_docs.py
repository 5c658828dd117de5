"""The table of foreign clients in docs/testing-aioprod.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECTION = (
    (ROOT / "docs" / "testing-aioprod.md")
    .read_text()
    .partition("## Other clients with the embedded broker\n")[2]
    .partition("\n## ")[0]
)
FILES = {
    key: ROOT / path
    for key, path in re.findall(r"^\| \[(\w)\] \| `([\w/]+\.py)`", SECTION, re.MULTILINE)
}
FEATURES = 5


def cells() -> list[str]:
    rows = [
        line.strip("|").split("|")[1:]
        for line in SECTION.splitlines()
        if line.startswith("| ") and "[" in line and "`tests/" not in line
    ]
    assert rows and all(len(row) == FEATURES for row in rows)
    return [cell.strip() for row in rows for cell in row]


def test_each_test_is_in_the_file_that_the_table_names() -> None:
    seen = 0
    for part in (
        part for cell in cells() for part in cell.split(";") if part.strip().startswith("[")
    ):
        key = part.strip()[1]
        text = FILES[key].read_text()
        for name in re.findall(r"`(test_\w+)`", part):
            assert re.search(rf"def {name}\(", text), f"{FILES[key].name} has no {name}"
            seen += 1
    assert seen > 25


def test_each_file_exists_and_is_used() -> None:
    used = set(re.findall(r"\[(\w)\]", "".join(cells()))) | {"L"}
    assert FILES.keys() == used
    assert all(path.is_file() for path in FILES.values())

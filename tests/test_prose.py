"""Logs, errors, docstrings, comments and pages use the words that Kafka's and Python's own
documentation use.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# What not to write, and what to write in its place.
WORDS = {
    r"nobody|no one": "no task, no caller, none",
    r"whoever|whomever": "the caller, the task that",
    r"somebody|someone|everybody": "another task, a caller, all",
    r"wherever|whatever it is": "in every place that; any",
    r"where there (?:is|are)|where it (?:is|was|has)": "if there is; if it is",
    r"trying on|tries on": "retrying",
    r"befall(?:s|en)?|heir|thereof|anew": "happen to; new leader; again",
    r"time-outs?|back-?offs? off|back-off": "timeout, backoff",
    r"said once|told once": "logged once",
    r"laid ready|lays? ready": "prepared, ready to return",
    r"lent out|lends out": "in use, allocated",
    r"is none of|it is none\b": "is not one of, is invalid",
    r"one's own|of (?:a|the) user's own": "custom",
    r"takes? nothing from|get it the right": "is not authorized to",
    r"behaviour|neighbour|colour|honour|favour|labour|serialise|recognise|initialise|normalise"
    r"|organis|synchronis|optimis(?!m|tic)|minimis|maximis|cancelation|licence|catalogue|centre": (
        "American spelling"
    ),
    r"canceled|canceling": "cancelled, as asyncio spells it",
    r"inner links": "callbacks",
    r"put together (?:anew|again)": "rebuilt, rebalanced",
    r"hears of|heard of": "is called for, learns of",
    r"beside|so many": "in addition to, compared with, next to; this number of",
    r"for good|stands? still|standing still": "permanently; is stalled, hangs",
    r"makes of|make of them": "converts, parses, returns for",
    r"the rest of what|of which the first|looked at each|looks at each": (
        "the remaining; the first of them; checked every"
    ),
    r"other work|thought dead": "a busy machine; removed from its group",
    r"you want to": 'the task itself: "Send a record"',
    r"where none is": "if there is none",
    r"as of :(?:class|meth)": "as in, see, those of",
}
_BAD = re.compile("|".join(rf"(?:\b(?:{words})\b)" for words in WORDS), re.IGNORECASE)
ROOMS = sorted(
    {
        path.parent.relative_to(ROOT).as_posix()
        for room in ("aioprod", "tests", "examples", "benchmarks", "docs")
        for path in (ROOT / room).rglob("*.[pm][yd]")
    }
    | {"."}
)


@pytest.mark.parametrize("room", ROOMS)
def test_words(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in sorted((ROOT / room).glob("*.[pm][yd]"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in _BAD.finditer(line)
    ]
    assert found == []


# A page is for one task. A longer one is split, or says what its reader does not need.
MOST_WORDS = 3_000
LONGER = {
    "architecture.md": 8_000,
    "configuration.md": 4_600,
    "performance.md": 1_800,
    "reliability.md": 2_500,
}


PAGES = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "recipes").glob("*.md"))
# Pages that are looked up, and tables of contents, begin without a program.
REFERENCES = {
    "architecture.md",
    "comparison.md",
    "index.md",
    "metrics.md",
    "migrating.md",
    "public-api.md",
    "spark-measurements.md",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_guide_begins_with_a_program(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    first = text.partition("```")[0].split()
    assert len(first) <= 150 or page.name in REFERENCES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_short(page: Path) -> None:
    words = len(page.read_text(encoding="utf-8").split())
    assert words <= LONGER.get(page.name, MOST_WORDS)

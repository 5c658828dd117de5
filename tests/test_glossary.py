"""A word has one meaning: the glossary of docs/architecture.md names it, and words that had several
meanings are gone from identifiers, docstrings, comments, logs and errors.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import aioprod

ROOT = Path(aioprod.__file__).parent
PAGE = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
# The family of a word, and what to write in its place.
FAMILIES = {
    "settle": (
        r"(?:un)?settl(?:e|es|ed|ing|ements?)",
        "complete (a future), acknowledge (a record), finish (a transaction), wait until idle",
    ),
    "hold": (r"h(?:old(?:s|ing|ers?)?|eld)", "have, keep, contain; buffered, paused, waiting"),
    "in hand": (r"in[ _]hand", "buffered (consumer), unacknowledged (share consumer)"),
    "hand out": (r"hand(?:s|ed|ing)?[ _](?:out|on|over)", "return (records), pass, give"),
    "figures": (r"figures?", "metrics (exported), measurements (of a benchmark), numbers"),
    "tell": (r"(?:un)?(?:tells?|told)", "describe, report, say, distinguish"),
    "hear": (r"hear[sd]?", "is called for, receives, learns"),
    "owe": (r"ow(?:e|es|ed|ing)", "has a request in flight, must"),
    "let go": (r"let(?:s|ting)?[ _]go", "release"),
}
WORDS = {
    name: re.compile(rf"(?<![a-z])(?:{words})(?![a-z])", re.IGNORECASE)
    for name, (words, _) in FAMILIES.items()
}
_ANY = re.compile(
    rf"(?<![a-z])(?:{'|'.join(words for words, _ in FAMILIES.values())})(?![a-z])", re.IGNORECASE
)
# Names of the released API, and a lock, which is held in any documentation of locks.
_EXCEPTIONS = re.compile(
    r"\bhold(?:_answer)?\b(?=[(\"`',)]|$)"
    r"|\bsource\.tell\(\)|\"settle\""  # a file; OpenTelemetry's word for a commit
    r"|\('figure[ a-z0-9]*'\)"  # HTML's word for a picture
    r"|\blocks? (?:is|are|was|were) held|\bhold(?:s|ing)? (?:a|the|its|no) lock"
)
# They list the words.
_LISTS = {"test_glossary.py", "test_prose.py"}
SESSIONS = {"FetchSession", "ShareSession"}
"""Named after sessions of Kafka."""


def room_of(path: Path) -> str:
    if not path.is_relative_to(ROOT):
        return path.relative_to(ROOT.parent).parts[0]
    return "/".join(path.relative_to(ROOT).parts[:-1][:2]) or "."


def sources() -> Iterator[Path]:
    for path in chain.from_iterable(
        sorted(room.rglob("*"))
        for room in (ROOT, *(ROOT.parent / name for name in ("benchmarks", "examples", "tests")))
    ):
        if (
            path.suffix in {".py", ".c", ".h"}
            and "messages" not in path.parts
            and path.name not in _LISTS
        ):
            yield path


ROOMS: dict[str, list[Path]] = defaultdict(list)
for source in sources():
    ROOMS[room_of(source)].append(source)


def found_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each family that is found, and where."""
    # RecordsInHand is Records_In_Hand.
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.read_text(encoding="utf-8"))
    if not _ANY.search(text):
        return
    for number, line in enumerate(text.splitlines(), 1):
        words = _EXCEPTIONS.sub("", line)
        for family, pattern in WORDS.items():
            if family == "figures" and path.name == "charts.py":
                continue  # matplotlib's word for a picture
            for match in pattern.finditer(words):
                yield family, f"{path.relative_to(ROOT.parent)}:{number}: {match.group()}"


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_words_with_several_meanings(room: str) -> None:
    found = [each for path in ROOMS[room] for each in found_in(path)]
    assert [f"{place} ({FAMILIES[family][1]})" for family, place in found] == []


def test_sessions_are_those_of_kafka() -> None:
    named = {
        name
        for path in ROOT.rglob("*.py")
        for name in re.findall(r"^\s*class (\w*Session)\b", path.read_text(), re.MULTILINE)
    }
    assert named == SESSIONS


def glossary() -> str:
    return PAGE.partition("\n## Glossary\n")[2].partition("\n## ")[0]


def test_the_glossary_explains_each_word_once() -> None:
    words = re.findall(r"^\| ([^|`]+?) \|", glossary(), re.MULTILINE)[1:]
    assert len(words) > 20 and words == sorted(set(words), key=str.casefold)


def test_the_classes_that_the_glossary_names_exist() -> None:
    code = "".join(path.read_text() for path in sources())
    names = re.findall(r"`([A-Z]\w+)`", glossary())
    assert len(names) > 10
    assert [name for name in names if not re.search(rf"\bclass {name}\b", code)] == []

"""Logs, errors, docstrings, comments and pages use the words that Kafka's and Python's own
documentation use.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
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
    r"(?:behaviour|neighbour|colour|honour|favour|labour)\w*|cancelation|licence|catalogue|centre"
    r"|(?:serial|recogn|initial|normal|organ|synchron|optim|minim|maxim)is(?:e[ds]?|ing)"
    r"|judgement|signall(?:ed|ing)": "American spelling",
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
    r"in one another|(?:is|are) there twice|exclude each other": (
        "nested; occurs twice; can't be combined"
    ),
    r"under way|in vain|can't be had": "in progress, in flight; without success; can't be fetched",
    r"of your own": "custom, another, that you set",
    r"(?<!there )is no (?!longer|more|such|way|need|usable|poll)[a-z]+": "is not a",
    r"you want to": 'the task itself: "Send a record"',
    r"where none is": "if there is none",
    r"as of :(?:class|meth)": "as in, see, those of",
    r"\w+: of (?:an?|the|its|their|each|these|this|that)": "an argument's description is a noun",
    r"(?<=    )[a-z_]+: (?:what|who|whose)": "an argument's description is a noun",
    r"the present \w+|the one before": "the current one; the previous one",
    r"bytes behind|None takes|in vain": "after; None uses; without success",
    r"(?:is|are|was|were) over": "is closed, has ended, has passed, has expired, is solved",
    r"import this module late|(?:is|are) asked (?:again|for again)": "on demand; requested again",
    r"also (?:if|when|while|without|those)": "even if; including those",
    r"from (?:Kafka |version |release )?\d+(?:\.\d+)+ on": "2.1 or newer; since 2.1",
    r"(?:meta)?data (?:are|have|lack|say|were)": "data is, has, lacks, as in Kafka's documentation",
    r"now and then|clean-up|steps? down": "from time to time; cleanup; use an older version",
    r"access rights?": "ACLs, permissions",
    r"leave (?:it|them|mode) away|left away": "leave out, omit",
    r"\w+: the most \w+": "the maximum number of",
    r"plain decisions": "synchronous decisions",
    r"(?:bytes?|offsets?|records?) behind|behind (?:the (?:end|last|id|records?)|offset)": (
        "after; 'behind' is for queues and for lag"
    ),
    r"\w+: as :(?:meth|func|class)": "see",
    r"check sums?": "checksum",
    r"whosever": "of any",
    r"for ever": "forever",
    r"made to do harm": "hostile",
    r"signs? of life": "report, heartbeat",
    r"(?<=\"\"\")Whether (?!.*Default)(?!.*delegation token)": "True if, Return whether",
    r"(?<=\"\"\")(?:As|What|Whatever|Who|How|Which|Where|Why)": (
        "a sentence, an imperative, or the noun: Return the records"
    ),
    r"(?<!until )(?<!by )(?<!from )(?<!if )(?<!and )(?<!or )then(?=\.(?:\s|$|\"))": (
        "then, before the verb"
    ),
}
# Words that code may use, and a page should not.
WORDS_OF_PAGES = {
    r"says? so": "names it, logs it, prints a note",
    r"proven by|by imitation": "tested with, tested with an imitation",
    r"the text (?:names|has|says)": "the message",
    r"(?:a|an|their|its) \w+ of (?:its|their) own": "its own, a separate",
    r"in the order of the calls": "in the order in which `send` was called",
    r"in brackets": "in parentheses",
    r"(?:you|application|caller) asks? for": "requests",
    r"hence|far brokers|brokers that are far": "so; distant brokers",
    r"what is (?:done|said) (?:about|of)": "name the thing",
}


def _any_of(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?:\b(?:{each})\b)" for each in words), re.IGNORECASE)


_BAD = _any_of(WORDS)
_BAD_IN_PAGES = _any_of(WORDS_OF_PAGES)
SUFFIXES = {".py", ".md", ".c", ".h"}
ROOMS = sorted(
    {
        path.parent.relative_to(ROOT).as_posix()
        for room in ("aioprod", "tests", "examples", "benchmarks", "docs")
        for path in (ROOT / room).rglob("*.*")
        if path.suffix in SUFFIXES
    }
    | {"."}
)


@pytest.mark.parametrize("room", ROOMS)
def test_words(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in sorted((ROOT / room).glob("*.*"))
        if path.suffix in SUFFIXES and path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in _BAD.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_words_of_names(room: str) -> None:
    """Modules, functions and classes are named in the same words as the prose."""
    found = []
    for path in sorted((ROOT / room).glob("*.py")):
        names = re.findall(r"\b(?:def|class) (\w+)", path.read_text(encoding="utf-8"))
        for name in [path.stem, *names]:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("_", " ")
            found += [
                f"{path.relative_to(ROOT)}: {name}: {each.group()}" for each in _BAD.finditer(words)
            ]
    assert found == []


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text is not None:
                yield node.body[0].lineno, text


def test_paragraphs_of_docstrings_are_not_indented() -> None:
    """Only arguments, lists, trees and commands that go on have further indented lines."""
    found = [
        f"{path.relative_to(ROOT)}:{start}: {below.strip()}"
        for room in ("aioprod", "examples")
        for path in sorted((ROOT / room).rglob("*.py"))
        if "messages" not in path.parts
        for start, text in _docstrings(path)
        for above, below in itertools.pairwise(text.splitlines())
        if re.match(r"    \S", below)
        and re.match(r"[^\s|└-]", above)
        and not above.endswith((":", "\\"))
    ]
    assert found == []


TEXTS = sorted(
    path
    for room in (".", "docs", "docs/recipes", "benchmarks", "benchmarks/programs", "newsfragments")
    for path in (ROOT / room).glob("*.md")
)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page that are neither code nor tables."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|"):
            yield number, line


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_words_of_pages(page: Path) -> None:
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
    found = [
        f"{number}: {match.group()}"
        for number, line in lines
        for match in _BAD_IN_PAGES.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "page",
    [page for page in TEXTS if page.parent.name != "newsfragments"],  # towncrier wraps these
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_lines_of_pages_have_at_most_100_columns(page: Path) -> None:
    """Tables, code, pictures and a link that is longer have longer ones."""
    text = page.read_text(encoding="utf-8")
    long = [
        number
        for number, line in _prose(text)
        if len(line) > 100 and not re.search(r"^!\[|\]\(\S{40}", line)
    ]
    assert long == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_text_is_taken_for_html(page: Path) -> None:
    """Such as array<struct> without backticks: a browser does not show what is in the brackets."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"(`+).+?\1", "", text, flags=re.DOTALL)
    assert re.findall(r"<(?!https?:)[A-Za-z/][^>]*>?", text) == []


# A page is for one task. A longer one is split, or says what its reader does not need.
MOST_WORDS = 3_000
LONGER = {
    "architecture.md": 8_000,
    "configuration.md": 4_700,
    "performance.md": 1_800,
    "reliability.md": 2_500,
}


PAGES = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "recipes").glob("*.md"))
# Pages that are looked up, and tables of contents, begin without a program.
REFERENCES = {
    "architecture.md",
    "comparison.md",
    "compatibility.md",
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
    lines = page.read_text(encoding="utf-8").splitlines()
    if page.name == "performance.md":  # its tables are written from the measured numbers
        lines = [line for line in lines if not line.startswith("|")]
    words = len(" ".join(lines).split())
    assert words <= LONGER.get(page.name, MOST_WORDS)

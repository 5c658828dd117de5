"""Patterns that are matched in linear time match what other engines match."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioprod.schema_registry.linear_patterns import LinearPattern
from aioprod.schema_registry.pattern_syntax import UnsupportedPatternError

ATOMS = [
    "a",
    "b",
    ".",
    r"\d",
    r"\w",
    r"\s",
    r"\S",
    "[ab]",
    "[^a]",
    "[a-c0-9]",
    r"[\w-]",
    "-",
    r"\.",
]
PLACES = [r"\b", r"\B", "^", "$"]
GROUPS = ["(?:%s)", "(%s)", "(?:%s|%s)", "(%s|)"]
LOOKS = ["(?=%s)", "(?!%s)", "(?<=%s)", "(?<!%s)"]
COUNTS = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{2,}", "*?", "+?", "??"]
ALPHABET = "aabbc1 -_."


def made_pattern(choices: random.Random, depth: int = 2, *, looks: bool = True) -> str:
    parts = []
    for _ in range(choices.randint(1, 3)):
        kind = choices.random()
        if depth and kind < 0.35:
            form = choices.choice(GROUPS + (LOOKS if looks else []))
            inner = [made_pattern(choices, depth - 1, looks=looks) for _ in range(form.count("%s"))]
            part, repeats = form % tuple(inner), form in GROUPS
        elif kind < 0.5:
            part, repeats = choices.choice(PLACES), False
        else:
            part, repeats = choices.choice(ATOMS), True
        if repeats and choices.random() < 0.35:
            part += choices.choice(COUNTS)
        parts.append(part)
    return "".join(parts)


def texts(choices: random.Random) -> list[str]:
    return ["".join(choices.choices(ALPHABET, k=choices.randint(0, 8))) for _ in range(4)]


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 62))
def test_it_matches_what_python_matches(seed: int) -> None:
    choices = random.Random(seed)
    pattern = made_pattern(choices)
    try:
        expected = re.compile(pattern, re.ASCII)
    except re.error:  # the pattern after a place has no fixed width
        return
    found = LinearPattern(pattern)
    for text in filter(None, texts(choices)):  # before Python 3.14, "" has no place for "\\B"
        assert found.search(text) == bool(expected.search(text)), (pattern, text)


@pytest.mark.interop
def test_it_matches_what_node_matches() -> None:
    node = shutil.which("node")
    assert node, "Node.js is needed"
    choices = random.Random(7)
    cases = [(made_pattern(choices), texts(choices)) for _ in range(10_000)]
    program = (
        "const cases = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(cases.map(([p, texts]) => "
        "{ const r = new RegExp(p, 'u'); return texts.map(t => r.test(t)); })))"
    )
    done = subprocess.run(
        [node, "-e", program], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    for (pattern, given_texts), expected in zip(cases, json.loads(done.stdout), strict=True):
        found = LinearPattern(pattern)
        assert [found.search(text) for text in given_texts] == expected, pattern


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\u00e9\x41\u{1F600}$", "\u00e9A\U0001f600", "\u00e9A"),
        (r"^\uD83D\uDE00$", "\U0001f600", "x"),
        (r"^\p{Lu}\p{Letter}*\P{L}$", "Ära1", "ära1"),
        (r"^[\p{L}\d]+$", "ä1", "_"),
        (r"^[^\p{L}]$", "1", "ä"),
        (r"^[\D]$", "a", "1"),
        ("(?i)^straße$", "STRAße", "strasse"),
        ("^(?i:a)b$", "Ab", "aB"),
        ("^a.c$", "a\tc", "a\nc"),
        ("(?s)^a.c$", "a\nc", "ac"),
        ("(?m)^b$", "a\nb\nc", "ab"),
        ("^[^]$", "\n", ""),
        (r"a{,2}b{x}", "a{,2}b{x}", "aabx"),
        ("^(?<name>a)(?P<other>b)$", "ab", "a"),
        (r"^\/[.]\-$", "/.-", "/a-"),
        ("^[]a]$", "]a]", "a"),
        (r"\Aa\Z", "a", "a\n"),
        ("^(?=.*[A-Z])(?=.*\\d)(?!.*x).{4,9}$", "abC1", "abC1x"),
        # pydantic's pattern of decimals
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "-12.50", "-."),
    ],
)
def test_what_patterns_of_other_languages_mean(pattern: str, good: str, bad: str) -> None:
    if pattern == "^[]a]$":  # an empty class and "a]" in ECMA-262: nothing matches
        assert not LinearPattern(pattern).search(good) and not LinearPattern(pattern).search(bad)
        return
    assert LinearPattern(pattern).search(good) and not LinearPattern(pattern).search(bad)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        (r"(a)\1", "a backreference at character 5"),
        (r"(?<n>a)\k<n>", "a backreference"),
        ("a++", "a possessive quantifier"),
        ("(?>a)", "an unknown kind of group"),
        ("(a", "a missing '\\)'"),
        ("a)", "an unexpected '\\)'"),
        ("*", "nothing to repeat"),
        ("[b-a]", "a range in the wrong order"),
        ("[a", "an unexpected end"),
        ("a{3,2}", "counts in the wrong order"),
        (r"\p{Script=Greek}", "the property"),
        (r"\q", "the unknown escape"),
        ("(" * 101 + ")" * 101, "groups nested more than 100"),
        ("((a{100}){100}){100}", "more than 10,000 states"),
    ],
)
def test_what_it_refuses(pattern: str, match: str) -> None:
    with pytest.raises(UnsupportedPatternError, match=match):
        LinearPattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "(a|a)*$",
        "(.*)*,",
        "^(?=(a+)+$)",
        "(a*)*(?<!a)b",
        "(x+x+)+y",
        "[0-9]+$",
        "a.{9}b",
    ],
)
def test_the_steps_grow_with_the_text(pattern: str) -> None:
    def steps(length: int) -> int:
        count = 0

        def spend(more: int) -> None:
            nonlocal count
            count += more

        LinearPattern(pattern).search("a" * length + "!", spend)
        LinearPattern(pattern).search("0" * length + "x", spend)
        return count

    assert steps(20_000) < 12 * steps(2_000)


def test_what_is_known_of_a_pattern_is_bounded() -> None:
    """Each text of these meets new sets of states."""
    found = LinearPattern("a.{14}b")
    choices = random.Random(3)
    for _ in range(40):
        found.search("".join(choices.choices("ab", k=500)))
        assert len(found._main._known) <= 2_000
    for number in range(0x100, 0x3000, 200):
        found.search("".join(map(chr, range(number, number + 200))))
    assert all(len(each.following) <= 1_001 for each in found._main._known.values())

"""The command line accepts each ``aioprod`` command of the pages and of the examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import aioprod
from aioprod.cli.command_line import command_parser

ROOT = Path(aioprod.__file__).parents[1]
_FENCE = re.compile(r"^```(?:sh|shell)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_DOCSTRING = re.compile(r'^r?"""(.*?)"""', re.DOTALL)
# Words that the shell replaces before aioprod sees them.
_SUBSTITUTION = re.compile(r"<\([^)]*\)")


def commands() -> list[str]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    texts = [text for page in pages for text in _FENCE.findall(page.read_text(encoding="utf-8"))]
    for example in (ROOT / "examples").glob("*.py"):
        found = _DOCSTRING.match(example.read_text(encoding="utf-8"))
        texts += [found.group(1)] if found else []
    lines = [line for text in texts for line in text.replace("\\\n", "").splitlines()]
    found_in = (re.split(r"\s*(?:\||&&)\s*|\(umask 077 |source <\(", line) for line in lines)
    parts = [part.strip() for pieces in found_in for part in pieces]
    return sorted({part for part in parts if part.startswith("aioprod ")})


@pytest.mark.parametrize("command", commands())
def test_a_command_is_accepted(command: str) -> None:
    words = shlex.split(_SUBSTITUTION.sub("FILE", command), comments=True)
    arguments = [word.rstrip(")") for word in words[1:]]
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    command_parser().parse_args(arguments)


def test_commands_are_found() -> None:
    assert len(commands()) > 40

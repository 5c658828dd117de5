"""Renders docstrings, which are written for `help()`, as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|attr|data|exc|mod):`~?([^`]+)`")
_TREE = re.compile(r"(?:^.+\n)?(?:^ *[├│└].*\n?)+", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """Convert roles of reStructuredText to code, and trees to blocks of code."""
    docstring = _ROLE.sub(r"`\1`", docstring)
    return _TREE.sub(lambda tree: f"```text\n{tree.group().rstrip()}\n```\n", docstring)


class Docstrings(griffe.Extension):
    """Converts each docstring of the package."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

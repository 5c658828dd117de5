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


class Order(griffe.Extension):
    """Puts the calls that most readers look for first on the page of the producer, and the calls of
    its base class last.
    """

    FIRST = ("send", "send_and_wait", "send_many", "send_arrow", "flush")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        producer = pkg["producer.producer.Producer"]
        inherited = {
            name: member
            for base in reversed(producer.mro())
            for name, member in base.members.items()
        }
        own = dict(producer.members)
        producer.members = {name: own[name] for name in self.FIRST} | own
        for name, member in inherited.items():
            if name not in own and not name.startswith("_"):
                producer.members[name] = member

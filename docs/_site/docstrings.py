"""Renders docstrings, which are written for `help()`, as Markdown, and the methods of other classes
that a class forwards to.
"""

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


# aioprod.testing.broker.controls.forwarding
_FORWARDING = {"forward", "blocking", "blocking_rule"}


class Docstrings(griffe.Extension):
    """Converts each docstring of the package."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        for name, member in list(cls.members.items()):
            call = getattr(member, "value", None)
            if isinstance(call, griffe.ExprCall) and str(call.function) in _FORWARDING:
                target = call.arguments[-1]
                if isinstance(target, griffe.Expr):
                    cls.set_member(name, griffe.Alias(name, target.canonical_path, parent=cls))

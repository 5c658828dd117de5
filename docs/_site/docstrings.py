"""Renders docstrings, which are written for `help()`, as Markdown."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
import settings

CLIENTS = {
    "aioprod.producer.producer.Producer",
    "aioprod.consumer.consumer.Consumer",
    "aioprod.consumer.share.share_consumer.ShareConsumer",
    "aioprod.admin.admin.Admin",
}

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
            if obj.path in CLIENTS:
                obj.docstring.value = settings.described(obj.name, obj.docstring.value)


class Order(griffe.Extension):
    """Puts the calls that most readers look for first on the page of the producer, and the calls of
    its base class last.
    """

    FIRST = ("send", "send_and_wait", "send_many", "send_arrow", "flush")

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for path in CLIENTS:
            _simplify(pkg[path.removeprefix("aioprod.")])
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


def _simplify(client: griffe.Class) -> None:
    """Show one signature of a constructor, which has overloads for the types of keys and values,
    and ``clock`` and ``rng`` as the last of its arguments.
    """
    client.overloads.pop("__init__", None)
    constructor = client.members["__init__"]
    constructor.overloads = None
    rare = [each for each in constructor.parameters if each.name in settings.LAST]
    for parameter in rare:
        del constructor.parameters[parameter.name]
    rest = [each for each in constructor.parameters if each.name == "settings"]
    for parameter in rest:
        del constructor.parameters[parameter.name]
    for parameter in [*rare, *rest]:
        constructor.parameters.add(parameter)

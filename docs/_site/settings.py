"""Links the API pages to the tables of settings, with the meanings as hover texts."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import NamedTuple

import aioprod

PAGE = "configuration.md"
#: The headings of the page whose settings a class has.
HEADINGS = {
    "Producer": ("Producer", "All clients"),
    "Consumer": ("Consumer", "All clients"),
    "ShareConsumer": ("Share consumer", "Consumer", "All clients"),
    "Admin": ("Admin client", "All clients"),
}
_ROW = re.compile(r"^\| `([\w.]+)` \| (?:`([^`]*)`)? ?\|.*\| (.*) \|$")
_MARKS = re.compile(r"`|\[([^\]]*)\]\([^)]*\)")
_OTHER_NAME = re.compile(r"`(\w+)`\. ")
_ENTRY = re.compile(r"^    (\w+(?:, \w+)*):", re.MULTILINE)
#: Arguments that few readers look for.
LAST = ("clock", "rng")


class Row(NamedTuple):
    """A setting in a table of the page."""

    heading: str
    name: str
    default: str
    meaning: str

    @property
    def python_name(self) -> str:
        """The name of the argument, with which the meaning begins if it is another one."""
        other = _OTHER_NAME.match(self.meaning)
        return other[1] if other else self.name.replace(".", "_")

    @property
    def anchor(self) -> str:
        heading = self.heading.lower().replace(" ", "-")
        return f"{heading}-{self.name.replace('.', '_')}"


def rows(page: str) -> list[Row]:
    """Return the settings in all tables of a page."""
    found, heading = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif (row := _ROW.match(line)) and heading != "Not supported":
            found.append(Row(heading, row[1], row[2] or "", row[3]))
    return found


def with_anchors(page: str) -> str:
    """Give each row of a table a place that links can lead to."""
    anchors = {(row.heading, row.name): row.anchor for row in rows(page)}
    lines, heading = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        row = _ROW.match(line)
        if row and (anchor := anchors.get((heading, row[1]))):
            line = f'| <a id="{anchor}"></a>{line[2:]}'
        lines.append(line)
    return "\n".join(lines) + "\n"


def table(client: str) -> str:
    """Return the settings of a client as HTML, which is closed at first."""
    page = Path(__file__).parent.parent.joinpath(PAGE).read_text(encoding="utf-8")
    known = rows(page)
    fields = {each.name for each in dataclasses.fields(getattr(aioprod, f"{client}Config"))}
    lines = []
    for heading in HEADINGS[client]:
        for row in (row for row in known if row.heading == heading):
            name = row.python_name
            if name not in fields:
                continue
            meaning = _MARKS.sub(r"\1", _OTHER_NAME.sub("", row.meaning))
            link = f'<a href="../../configuration/#{row.anchor}"'
            link += f' title="{html.escape(meaning, quote=True)}">'
            default = html.escape(row.default)
            lines.append(
                f"<tr><td>{link}<code>{name}</code></a></td><td><code>{default}</code></td></tr>"
            )
    heads = "<tr><th>setting</th><th>default</th></tr>"
    body = "".join(lines)
    return (
        f"<details><summary>{len(lines)} settings, each with its meaning</summary>"
        f"<table>{heads}{body}</table></details>"
    )


def described(client: str, docstring: str) -> str:
    """Return the docstring of a client with its settings, and ``clock`` and ``rng`` last."""
    before, mark, rest = docstring.partition("Args:\n")
    arguments, end, after = rest.partition("\n\n")
    starts = [found.start() for found in _ENTRY.finditer(arguments)]
    entries = [
        arguments[start:stop].rstrip("\n")
        for start, stop in zip(starts, [*starts[1:], len(arguments)], strict=True)
    ]
    entries.sort(key=lambda entry: entry.split(":")[0].strip() in LAST)
    return f"{before}{table(client)}\n\n{mark}" + "\n".join(entries) + end + after

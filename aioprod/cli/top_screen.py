"""The terminal of ``aioprod top``. Requires ``rich``."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from aioprod.foreign_text import escaped

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]


class TopScreen:
    """Two tables, and the last error. ``rich.live.Live`` draws it."""

    def __init__(self) -> None:
        self._parts: list[RenderableType] = [Text("asking the cluster")]
        self._problem: str | None = None

    def draw(self, heading: str, *tables: Rows) -> None:
        """Show new measurements."""
        self._problem = None
        self._parts = [Text(escaped(heading), style="bold", no_wrap=True)]
        for names, rows in tables:
            made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for number, name in enumerate(names):
                made.add_column(name, justify="right" if number else "left", no_wrap=True)
            for row in rows:
                made.add_row(*(Text(escaped(cell)) for cell in row))
            self._parts.append(made)

    def note(self, problem: str) -> None:
        """Show an error above the last ones."""
        self._problem = problem

    def __rich__(self) -> Group:
        problem = [] if self._problem is None else [Text(escaped(self._problem), style="red")]
        return Group(*problem, *self._parts)

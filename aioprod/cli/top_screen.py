"""The terminal of ``aioprod top``. Requires ``rich``."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from aioprod.cli.top_layout import Cells, Table, view
from aioprod.foreign_text import escaped

_FIXED = 3  # lines outside the tables: heading, blank, keys
_WAITING = "asking the cluster"


class TopScreen:
    """Tables that can be scrolled, and the last error. ``rich.live.Live`` draws it.

    Args:
        has_keys: whether the user can press keys.
    """

    def __init__(self, *, has_keys: bool) -> None:
        self._quits = "q quit" if has_keys else "Ctrl-C quits"
        self._scrolls = "up/down PgUp/PgDn Home/End scroll" if has_keys else ""
        self._heading = _WAITING
        self._tables: list[Table] = []
        self._problem: str | None = None
        self._offset = 0
        self._page = 1

    def draw(self, heading: str, *tables: Table) -> None:
        """Show new measurements."""
        self._problem = None
        self._heading = escaped(heading)
        self._tables = [
            Table(each.columns, [list(map(escaped, row)) for row in each.rows]) for each in tables
        ]

    def note(self, problem: str) -> None:
        """Show an error above the last measurements."""
        self._problem = escaped(problem)

    def scroll(self, key: str) -> None:
        """Handle a key, of those that :mod:`aioprod.cli.keyboard` names."""
        moves = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}
        if key in moves:
            self._offset = max(0, self._offset + moves[key])
        elif key in ("home", "end"):
            self._offset = 0 if key == "home" else sum(len(each.rows) + 2 for each in self._tables)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        is_unicode = options.encoding.startswith("utf")
        cells = Cells(cell_len, set_cell_size, "…" if is_unicode else "~")
        room = max(1, height - _FIXED - (self._problem is not None))
        shown = view(self._tables, width, room, self._offset, cells)
        self._offset, self._page = shown.offset, max(1, room - 1)
        if self._problem is not None:
            yield _line(self._problem, width, "red")
        yield _line(self._heading, width, "bold")
        yield Text("")
        for text, is_heading in shown.lines:
            yield _line(text, width, "underline" if is_heading else "")
        for _ in range(room - len(shown.lines)):
            yield Text("")
        hidden = shown.rows > shown.last or shown.offset
        where = [f"rows {shown.first}-{shown.last} of {shown.rows}"] if hidden else []
        yield _line("  ".join([self._quits, *where, self._scrolls]), width, "dim")


def _line(text: str, width: int, style: str) -> Text:
    return Text(set_cell_size(text, width) if cell_len(text) > width else text, style, end="\n")

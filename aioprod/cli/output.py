"""What commands print. Names and texts of brokers, records and services may be hostile: nothing of
them reaches a terminal as it is, neither escape sequences nor line breaks.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from aioprod.foreign_text import encode_json, escaped

#: Overwrites the line of the terminal; for `note`.
SAME_LINE = "\r\x1b[K"


def printable(text: str) -> str:
    """Return the lines of a text with all other characters escaped that are not printable."""
    return text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))


def say(text: str, *, end: str = "\n") -> None:
    """Print lines on standard output, at once."""
    print(printable(text), end=end, flush=True)


def note(text: str, *, begin: str = "", end: str = "\n") -> None:
    """Print lines on standard error.

    Args:
        begin: what comes before, such as `SAME_LINE`.
        end: what comes after.
    """
    print(f"{begin}{printable(text)}", end=end, flush=True, file=sys.stderr)


def show(value: object, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    print(encode_json(value, indent), flush=True)


def table(rows: Sequence[Sequence[object]]) -> str:
    """Format rows as columns; the first row has the names; None is a dash."""
    texts = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )


class PrintableFormatter(logging.Formatter):
    """Formats lines of the log."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

"""The output of commands. Names and texts from brokers, records and services may be hostile: escape
sequences and line breaks in them never reach a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence

from aioprod.foreign_text import escaped

#: Returns to the beginning of the terminal's line; for `note`.
SAME_LINE = "\r\x1b[K"


def printable(text: str) -> str:
    """Return the lines of a text, with unprintable characters escaped."""
    return text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))


def say(text: str, *, end: str = "\n") -> None:
    """Print lines on standard output, and flush it."""
    print(printable(text), end=end, flush=True)


def note(text: str, *, begin: str = "", end: str = "\n") -> None:
    """Print lines on standard error.

    Args:
        begin: text before the lines, such as `SAME_LINE`.
        end: text after them.
    """
    print(f"{begin}{printable(text)}", end=end, flush=True, file=sys.stderr)


def encode_json(value: object, indent: int | None = None) -> str:
    """Encode a value as JSON that a terminal can show: characters that are not printable are
    escaped, which changes nothing for a reader of JSON.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def show(value: object, indent: int | None = 2) -> None:
    """Print a value as JSON."""
    print(encode_json(value, indent), flush=True)


def time_text(timestamp_ms: int) -> str:
    """Format a time; one that Python can't represent, after the year 9999, as its milliseconds."""
    from datetime import UTC, datetime  # 2 ms of a command's start

    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{timestamp_ms} ms"


def table(rows: Sequence[Sequence[object]]) -> str:
    """Format rows as columns. The first row has the names; None is a dash."""
    texts = [["-" if cell is None else escaped(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in texts
    )


class PrintableFormatter(logging.Formatter):
    """Formats log lines."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

"""The log of the clients in a command's output: each error once."""

from __future__ import annotations

import asyncio
import logging
import re

from aioprod.cli.output import PrintableFormatter, note

_PRINT_AFTER_S = 0.25
_CODE = re.compile(r"\b[A-Z][A-Z_]+ \(-?\d+\)")  # the name of a broker's error


class CommandLog(logging.Handler):
    """Prints warnings and errors of the clients on standard error after a short delay, so that the
    error that ends the command is printed once, without the log line about it.
    """

    def __init__(self, prog: str) -> None:
        super().__init__()
        self.setFormatter(PrintableFormatter(f"{prog}: %(message)s"))
        self._lines: list[str] = []
        self._printing: asyncio.Handle | None = None

    @property
    def pending(self) -> int:
        """The number of lines that are not printed yet."""
        return len(self._lines)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line soon; at once if it is logged by another thread than the event loop's."""
        line = self.format(record)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            note(line)
            return
        self._lines.append(line)
        if self._printing is None:
            self._printing = loop.call_later(_PRINT_AFTER_S, self.print)

    def print(self, error: str = "") -> None:
        """Print the pending lines, except those about the error that ends the command."""
        if self._printing is not None:
            self._printing.cancel()
            self._printing = None
        lines, self._lines = self._lines, []
        for line in lines:
            if not error or _cause(error) not in line:
                note(line)


def _cause(error: str) -> str:
    """Return the part that all texts about an error share: the broker's code, or else the end."""
    code = _CODE.search(error)
    return code.group() if code is not None else error.rpartition(": ")[2]

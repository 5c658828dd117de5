"""Loggers whose lines can be shown, whatever names and texts of others are their arguments."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from logging import Logger as Logger

from aioprod.errors import KafkaError
from aioprod.foreign_text import MAX_REASON, bounded, escaped, text_of


class _Printable(logging.Filter):
    """Escapes what is not printable in the arguments of a line, or in one without arguments. The
    rest is left as it is, for tools that group lines by it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.args:
            record.msg = _printable(record.msg)
        elif isinstance(record.args, tuple):
            record.args = tuple(map(_printable, record.args))
        return True


def _printable(argument: object) -> object:
    if isinstance(argument, KafkaError):
        return argument  # its text is printable
    if isinstance(argument, str):
        return escaped(argument)
    if isinstance(argument, BaseException):
        return escaped(bounded(text_of(argument), MAX_REASON))
    return argument


_PRINTABLE = _Printable()


#: How often a problem that lasts is logged again, in seconds.
LOG_AGAIN_S = 60.0


class LastingProblem:
    """Decides when a problem that lasts is logged: once it has lasted for some time, and then
    perhaps again. The time is an argument.

    Args:
        after_s: how long it lasts before its first line, in seconds.
        every_s: the time between further lines; infinity for one line.

    Attributes:
        since: when it began; None before.
        is_logged: True if it has a line.
    """

    __slots__ = ("_after_s", "_every_s", "_next", "is_logged", "since")

    def __init__(self, after_s: float = 5.0, every_s: float = math.inf) -> None:
        self.since: float | None = None
        self.is_logged: bool = False
        self._after_s = after_s
        self._every_s = every_s
        self._next = 0.0

    def lasts(self, now: float) -> bool:
        """Note that the problem lasts. Return True if a line is due."""
        if self.since is None:
            self.since = now
            self._next = now + self._after_s
        if now < self._next:
            return False
        self._next = now + self._every_s
        self.is_logged = True
        return True

    def seconds(self, now: float) -> float:
        """Return how long it has lasted."""
        return 0.0 if self.since is None else now - self.since

    def duration(self, now: float) -> str:
        """Return how long it has lasted, for a line; empty at its beginning."""
        seconds = self.seconds(now)
        return f" for {seconds:.0f} s" if seconds >= 1 else ""


_MOST_LISTED = 20


def listed(names: Iterable[object]) -> str:
    """Return the first names, separated by commas, and how many more there are."""
    every = [str(name) for name in names]
    more = len(every) - _MOST_LISTED
    shown = ", ".join(every[:_MOST_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module, as ``logging.getLogger`` does."""
    logger = logging.getLogger(name)
    logger.addFilter(_PRINTABLE)  # adds it once
    return logger

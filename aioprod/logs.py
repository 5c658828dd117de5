"""Loggers whose lines can be shown, whatever names and texts of others are their arguments."""

from __future__ import annotations

import logging

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


def get_logger(name: str) -> logging.Logger:
    """Return the logger of a module, as ``logging.getLogger`` does."""
    logger = logging.getLogger(name)
    logger.addFilter(_PRINTABLE)  # adds it once
    return logger

"""Parsing of the commands' arguments, and errors about invalid ones."""

from __future__ import annotations

import argparse
import difflib
import math
import re
from collections.abc import Sequence
from typing import NoReturn

from aioprod.foreign_text import escaped

USAGE_ERROR = 2
INTERRUPTED = 130

Commands = argparse._SubParsersAction


class Parser(argparse.ArgumentParser):
    """An argument parser whose error about an unknown option or command names the known ones."""

    def option_names(self) -> list[str]:
        """The long options."""
        return [
            name
            for action in self._actions
            for name in action.option_strings
            if name.startswith("--")
        ]

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line on standard error."""
        self.exit(USAGE_ERROR, escaped(f"{self.prog}: {message}") + "\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            kind = f"value of {action.option_strings[-1]}:" if action.option_strings else "command"
            self.error(unknown_text(kind, str(value), list(map(str, action.choices))))


def name_choices(commands: Commands[Parser]) -> None:
    """Make errors and help name all commands."""
    commands.metavar = "{" + ",".join(commands.choices) + "}"


def unknown_text(kind: str, given: str, right: Sequence[str]) -> str:
    """Return the error text for an unknown option or command."""
    name = given.split("=", 1)[0]
    nearest = difflib.get_close_matches(name, right, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"unknown {kind} {name}{hint} (known: {', '.join(right)})"


def positive_int(text: str) -> int:
    """Parse a whole number of at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text!r}")
    return int(text)


def positive_float(text: str) -> float:
    """Parse a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, not {text!r}")
    return value


def port(text: str) -> int:
    """Parse a port; 0 means any free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, not {text!r}")
    return int(text)


def natural_int(text: str) -> int:
    """Parse a whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 0, not {text!r}")
    return int(text)


def assignment(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``. The error does not show the text: it may contain a password."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError("must be NAME=VALUE")
    return name.strip(), value


def separator(text: str) -> str:
    r"""Parse text with C escapes, such as ``\t``."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return unescape(text)


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def bytes_of(argument: str) -> bytes:
    """Return an argument as bytes: those that are not UTF-8 are surrogates in it."""
    return argument.encode("utf-8", "surrogateescape")


def unescape(text: str) -> str:
    """Replace each escape, a backslash and what follows, by its character; keep unknown ones."""
    return re.sub(
        r"\\(?:x([0-9a-fA-F]{2})|([ntr0\\]))",
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES[found[2]],
        text,
    )

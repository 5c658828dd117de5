"""Parsing of the commands' arguments, and errors about invalid ones."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from aioprod.foreign_text import escaped, nearest

USAGE_ERROR = 2
INTERRUPTED = 130

if TYPE_CHECKING:
    from pathlib import Path

Commands = argparse._SubParsersAction

# Options of Kafka's tools and of other command lines, and our names for them.
_NAMES_ELSEWHERE = {
    "--command-config": "--config-file",
    "--delete-config": "--unset",
    "--execute": "--yes",
    "--force": "--yes",
    "--from-beginning": "--from",
    "--max-messages": "--count",
    "--validate-only": "--dry-run",
}


class Parser(argparse.ArgumentParser):
    """An argument parser whose error about an unknown option or command names the known ones.

    Its arguments may be added when it is first used (:meth:`complete_by`).
    """

    _add_arguments: Callable[[Parser], None] | None = None

    def __init__(self, **settings: Any) -> None:
        # Each argument is formatted for a check. The width of the terminal is not needed for that,
        # and to ask for it loads modules for archives.
        super().__init__(formatter_class=partial(argparse.HelpFormatter, width=80), **settings)

    def complete_by(self, add_arguments: Callable[[Parser], None]) -> None:
        """Set the function that adds the arguments before the first ones are parsed, after
        ``--help``: even that takes its time in a parser that is not used.
        """
        self._add_arguments = add_arguments

    def complete(self) -> None:
        """Add the arguments, unless they were added before."""
        add_arguments, self._add_arguments = self._add_arguments, None
        if add_arguments is not None:
            text = "show this help message and exit"
            self.add_argument("-h", "--help", action="help", default=argparse.SUPPRESS, help=text)
            add_arguments(self)

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Parse arguments, as ``ArgumentParser`` does."""
        self.complete()
        return super().parse_known_args(*given, **named)

    def commands(self) -> Iterator[Parser]:
        """The parsers of the commands below this one."""
        for action in self._actions:
            if isinstance(action, Commands):
                yield from action.choices.values()

    def option_names(self) -> list[str]:
        """The long options."""
        return [
            name
            for action in self._actions
            for name in action.option_strings
            if name.startswith("--")
        ]

    def format_help(self) -> str:
        """Return the help, with examples."""
        from aioprod.cli.examples import EXAMPLES

        self.formatter_class = argparse.HelpFormatter
        lines = EXAMPLES.get(self.prog.partition(" ")[2], ())
        examples = "".join(f"  {line}\n" for line in lines)
        return super().format_help() + (f"\nexamples:\n{examples}" if lines else "")

    def error(self, message: str) -> NoReturn:
        """End with status 2 and one line on standard error."""
        self.exit(USAGE_ERROR, escaped(f"{self.prog}: {message}") + "\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            kind = f"value of {action.option_strings[-1]}:" if action.option_strings else "command"
            self.error(unknown_text(kind, str(value), list(map(str, action.choices))))


def name_choices(commands: Commands[Parser]) -> None:
    """Make errors and help list all commands."""
    commands.metavar = "{" + ",".join(commands.choices) + "}"


def unknown_text(kind: str, given: str, right: Sequence[str]) -> str:
    """Return the error text for an unknown option or command."""
    name = given.split("=", 1)[0]
    others = (_NAMES_ELSEWHERE.get(name), nearest(name, right, similarity=0.5))
    meant = [known for known in others if known in right]
    hint = f"; did you mean {meant[0]}?" if meant else ""
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


def path(text: str) -> Path:
    """Parse the path of a file or directory."""
    from pathlib import Path  # takes milliseconds to import, and few commands need it

    return Path(text)


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
    """Return an argument as bytes; surrogates stand for bytes that are not UTF-8."""
    return argument.encode("utf-8", "surrogateescape")


def unescape(text: str) -> str:
    """Replace each escape (a backslash and what follows) by its character; keep unknown ones."""
    return re.sub(
        r"\\(?:x([0-9a-fA-F]{2})|([ntr0\\]))",
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES[found[2]],
        text,
    )

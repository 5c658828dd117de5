"""Confirmation. Each command that deletes or changes something shows its plan and asks first;
``--yes`` skips the question, ``--dry-run`` only shows the plan.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from aioprod.cli.client import CommandError, UsageError
from aioprod.cli.output import note, say, table
from aioprod.cli.parser import Parser

_MOST_OF_ANSWER = 1024


def add_confirmation(parser: Parser) -> None:
    """Add the options ``--yes`` and ``--dry-run``."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("-y", "--yes", action="store_true", help="don't ask for confirmation")
    add_dry_run(how)


def add_dry_run(parser: argparse._ActionsContainer) -> None:
    """Add the option ``--dry-run``."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be done, and change nothing"
    )


def check_can_ask(options: argparse.Namespace) -> None:
    """Raise UsageError if a confirmation is needed and standard input is not a terminal."""
    if not (options.yes or options.dry_run or sys.stdin.isatty()):
        raise UsageError(
            "standard input is not a terminal: give --yes to do it, or --dry-run to see what would "
            "be done"
        )


async def confirmed(
    options: argparse.Namespace, plan: Sequence[Sequence[object]], question: str
) -> bool:
    """Return whether to do it: show the plan and ask, unless an option answers.

    Args:
        options: those of :func:`add_confirmation`.
        plan: the rows of a table, with the names of its columns first; not shown with ``--yes``,
            or if it is empty.
        question: without the question mark, such as ``delete 2 topics``.

    Raises:
        UsageError: if standard input is not a terminal.
        CommandError: if the answer is no.
    """
    from aioprod.threads import in_thread

    check_can_ask(options)
    if options.yes:
        return True
    if plan:
        say(table(plan))
    if options.dry_run:
        note("dry run: nothing was changed")
        return False
    note(f"{question}? [y/N] ", end="")
    answer = await in_thread(partial(os.read, sys.stdin.fileno(), _MOST_OF_ANSWER))
    if answer.strip().lower() not in (b"y", b"yes"):
        raise CommandError("nothing was changed")
    return True

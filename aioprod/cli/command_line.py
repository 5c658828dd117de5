"""The entry point: parses the command and runs it."""

from __future__ import annotations

import argparse
import atexit
import gc
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module

from aioprod.cli.output import say
from aioprod.cli.parser import Parser, name_choices, unknown_text

#: What each command does. The module of the same name adds its arguments and runs it; it is
#: imported only for its own command, as importing all of them takes longer than most commands.
_COMMANDS = {
    "demo": "send real flights through Kafka and Spark and draw their delays",
    "pipeline": "create a project for a Spark pipeline",
    "spark": "inspect the checkpoint of a Spark query",
    "broker": "run the embedded broker for development (keeps everything in memory)",
    "topics": "list, create, describe, alter and delete topics",
    "groups": "list, describe and delete groups, watch their lag, and set their offsets",
    "acls": "list, add and remove access control lists (ACLs)",
    "users": "list, add, change and remove SCRAM users",
    "tokens": "list, create, renew and expire delegation tokens",
    "cluster": "show a cluster's brokers",
    "top": "watch groups, lag and throughput",
    "produce": "send lines to a topic",
    "consume": "print a topic's records",
    "dlq": "list dead letters, send them again exactly once, or drop them",
    "outbox": "send the rows of a database's outbox to Kafka, exactly once",
    "copy": "copy topics to another cluster, or within one, exactly once",
    "completion": "print a script that completes commands and options in a shell",
}


_NEW_OBJECTS_BEFORE_COLLECTION = 50_000


class _Version(argparse.Action):
    """Prints the versions of aioprod and Python, and whether the accelerator is in use."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import platform

        from aioprod import native
        from aioprod._version import __version__

        code = "native" if native.in_use else f"pure Python: {native.reason_not_in_use}"
        python = f"{platform.python_implementation()} {platform.python_version()}"
        say(f"aioprod {__version__} ({code}), {python}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the entry point ``aioprod``.

    Args:
        arguments: by default those of this process, which then only runs this command.

    Returns:
        The exit status: 0 on success, 1 on failure, 2 for wrong usage, 130 after Ctrl-C.
    """
    if arguments is None:
        _collect_garbage_seldom()
    options, unknown = _parser().parse_known_args(arguments)
    if unknown:
        parser: Parser = options.parser
        parser.error(
            unknown_text(
                "option" if unknown[0].startswith("-") else "argument",
                unknown[0],
                parser.option_names(),
            )
        )
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _collect_garbage_seldom() -> None:
    """Leave out the collections of garbage during the imports of a short command, and at its end.
    They would find nothing, and take a tenth of its time.
    """
    gc.set_threshold(_NEW_OBJECTS_BEFORE_COLLECTION)
    atexit.register(gc.freeze)


def command_parser() -> Parser:
    """Return the parser of the whole command line, with the arguments of all commands."""
    parser = _parser()
    for each in parser.commands():
        each.complete()
    return parser


def _parser() -> Parser:
    """Return a parser that adds the arguments of a command when it parses them."""
    parser = Parser(
        prog="aioprod",
        description="The asyncio-native Apache Kafka client for Python.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "-V", "--version", action=_Version, nargs=0, help="print the version, and end"
    )
    parser.set_defaults(whole=command_parser)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for name, meaning in _COMMANDS.items():
        each: Parser = commands.add_parser(name, help=meaning, allow_abbrev=False, add_help=False)
        each.complete_by(partial(_add_arguments, name))
    name_choices(commands)
    return parser


def _add_arguments(name: str, parser: Parser) -> None:
    import_module(f"aioprod.cli.{name}").add_arguments(parser)

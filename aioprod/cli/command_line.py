"""The entry point: parses the command and runs it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from aioprod.cli.acls import add_acls
from aioprod.cli.broker import add_broker
from aioprod.cli.cluster import add_cluster
from aioprod.cli.completion import add_completion
from aioprod.cli.consume import add_consume
from aioprod.cli.copy import add_copy
from aioprod.cli.demo import add_demo
from aioprod.cli.groups import add_groups
from aioprod.cli.parser import Parser, name_choices, unknown_text
from aioprod.cli.pipeline import add_pipeline
from aioprod.cli.produce import add_produce
from aioprod.cli.tokens import add_tokens
from aioprod.cli.top import add_top
from aioprod.cli.topics import add_topics
from aioprod.cli.users import add_users

_COMMANDS = (
    add_demo,
    add_pipeline,
    add_broker,
    add_topics,
    add_groups,
    add_acls,
    add_users,
    add_tokens,
    add_cluster,
    add_top,
    add_produce,
    add_consume,
    add_copy,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the entry point ``aioprod``.

    Returns:
        The exit status: 0 on success, 1 on failure, 2 for wrong usage, 130 after Ctrl-C.
    """
    options, unknown = command_parser().parse_known_args(arguments)
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


def command_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="aioprod",
        description="The asyncio-native Apache Kafka client for Python.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    for add in _COMMANDS:
        add(commands)
    add_completion(commands, parser)
    name_choices(commands)
    return parser

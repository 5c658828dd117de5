"""``aioprod copy``."""

from __future__ import annotations

import argparse
import asyncio
import re
from typing import TYPE_CHECKING

from aioprod.cli.client import UsageError, client_settings, command
from aioprod.cli.consume import Start
from aioprod.cli.parser import (
    Parser,
    assignment,
    path,
    positive_float,
    positive_int,
)

if TYPE_CHECKING:
    from aioprod.admin import Admin
    from aioprod.cli.copy_report import CopyReport
    from aioprod.cli.copy_topic import TopicCopy

_TOPICS_AT_ONCE = 16


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod copy``."""
    parser.description = (
        "Copies the committed records of topics with their keys, values, headers, timestamps "
        "and partitions, until Ctrl-C or --once. A copy that was stopped or killed continues "
        "after its last transaction: no record is lost or copied twice. -b, -X, "
        "--profile and --config-file are for the source cluster."
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC")
    _add_names(parser)
    parser.add_argument(
        "-f",
        "--from",
        dest="start",
        type=Start.parse,
        metavar="WHERE",
        help="where to begin in partitions without progress of this copy: beginning, end, an "
        "offset, -N for the last N of each partition, or a time such as 2026-01-31T08:00:00Z "
        "(default: beginning, and only into partitions without records)",
    )
    parser.add_argument(
        "--once", action="store_true", help="end at the partitions' end offsets as of the start"
    )
    parser.add_argument(
        "--skip-deleted",
        action="store_true",
        help="continue at the oldest record if records were deleted before they were copied",
    )
    parser.add_argument(
        "--transaction-records",
        type=positive_int,
        default=50_000,
        metavar="N",
        help="most records of a topic in a transaction, which ends after a second at the latest "
        "(default: %(default)s)",
    )
    _add_output(parser)
    command(parser, _copy)
    _add_target(parser)


def _add_names(parser: Parser) -> None:
    parser.add_argument(
        "--matching",
        type=_pattern,
        metavar="REGEX",
        help="copy all topics whose whole name matches, as of the start",
    )
    name = parser.add_mutually_exclusive_group()
    name.add_argument("--to-topic", metavar="NAME", help="name of the only topic in the target")
    name.add_argument(
        "--prefix", default="", metavar="TEXT", help="put this before the names in the target"
    )


def _add_output(parser: Parser) -> None:
    parser.add_argument(
        "--interval",
        type=positive_float,
        default=5.0,
        metavar="SECONDS",
        help="time between two lines about speed and lag (default: 5)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON, a line for each interval and one at the end",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="don't print speed and lag")


def _add_target(parser: Parser) -> None:
    target = parser.add_argument_group("target cluster", "by default the source cluster")
    target.add_argument(
        "--to-bootstrap-servers",
        metavar="HOST:PORT",
        help="bootstrap servers of the target, comma-separated",
    )
    target.add_argument(
        "--to-profile", metavar="NAME", help="servers and security of the target, by a profile"
    )
    target.add_argument(
        "--to-config",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a client setting for the target, such as compression.type=zstd; may be repeated",
    )
    target.add_argument(
        "--to-config-file",
        type=path,
        metavar="FILE",
        help="a properties file with client settings for the target",
    )
    target.add_argument(
        "--replication-factor",
        type=positive_int,
        default=-1,
        metavar="N",
        help="replicas of each partition of new topics (default: the broker's)",
    )
    target.add_argument(
        "--set",
        type=assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of new topics, which otherwise have those of the source; may be repeated",
    )


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"is not a regular expression: {error}") from None


async def _copy(options: argparse.Namespace) -> int:
    from aioprod.cli.copy_plan import plan
    from aioprod.cli.copy_report import CopyReport
    from aioprod.cli.copy_topic import TopicCopy
    from aioprod.config.consumer import CONSUMER
    from aioprod.config.producer import PRODUCER
    from aioprod.config.properties_file import warn_of_secrets

    _check(options)
    warn_of_secrets(dict(options.to_config), "--to-config", "--to-config-file")
    target_options = _of_target(options)
    reading = client_settings(options, CONSUMER, {"isolation.level": "read_committed"}, shared=True)
    writing = client_settings(target_options, PRODUCER, shared=True)
    async with _admin(options) as source, _admin(target_options) as target:
        pairs = await plan(source, target, options)
        copies = [TopicCopy(pair, reading, writing, target, options) for pair in pairs]
        with CopyReport(copies, options) as report:
            await _together(copies, report, once=options.once)
    return 0


def _check(options: argparse.Namespace) -> None:
    if bool(options.topics) == (options.matching is not None):
        raise UsageError("give either topics or --matching REGEX")
    if options.to_topic is not None and len(options.topics) != 1:
        raise UsageError("--to-topic needs exactly one topic; use --prefix for several")


def _of_target(options: argparse.Namespace) -> argparse.Namespace:
    """Return the options for connecting to the target cluster."""
    given = (options.to_bootstrap_servers, options.to_profile, options.to_config_file)
    if not any((*given, options.to_config)):
        return options
    return argparse.Namespace(
        profile=options.to_profile,
        bootstrap_servers=options.to_bootstrap_servers,
        config=options.to_config,
        config_file=options.to_config_file,
    )


def _admin(options: argparse.Namespace) -> Admin:
    from aioprod.admin import Admin
    from aioprod.config.admin import ADMIN

    return Admin.from_config(client_settings(options, ADMIN, shared=True))


async def _together(copies: list[TopicCopy], report: CopyReport, *, once: bool) -> None:
    """Run all copies until they end. The first failure cancels the others, and is raised."""
    slots = asyncio.Semaphore(_TOPICS_AT_ONCE if once else len(copies))

    async def run(copy: TopicCopy) -> None:
        async with slots:
            await copy.run()

    try:
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(report.run())
            await asyncio.wait([group.create_task(run(copy)) for copy in copies])
            reporting.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None

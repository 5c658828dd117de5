"""``aioprod top``."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from aioprod.cli.client import CommandError, UsageError, command, text_of
from aioprod.cli.cluster import admin_client
from aioprod.cli.cluster_load import ClusterLoad, Sample, compare, take
from aioprod.cli.output import say, show, table
from aioprod.cli.parser import Commands, Parser, positive_float
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin

Tables = tuple[tuple[Sequence[str], Sequence[Sequence[str]]], ...]

_GROUPS = ("GROUP", "STATE", "MEMBERS", "LAG", "READ/S", "CAUGHT UP IN")
_TOPICS = ("TOPIC", "PARTITIONS", "WRITTEN/S")


def add_top(commands: Commands[Parser]) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "top",
        help="watch groups, lag and throughput",
        description=(
            "Shows consumer groups with their lag, and topics, with records per second; refreshed "
            "until Ctrl-C. Speeds are those of committed offsets and of the ends of partitions."
        ),
        allow_abbrev=False,
    )
    parser.add_argument(
        "--interval",
        type=positive_float,
        default=2.0,
        metavar="SECONDS",
        help="time between two samples (default: 2)",
    )
    for name in ("group", "topic"):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar=name.upper(),
            help=f"only this {name}; may be repeated",
        )
    parser.add_argument("--once", action="store_true", help="print one interval, and end")
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each interval")
    command(parser, _top)


async def _top(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        if options.once:
            before = await take(admin, options.group, options.topic)
            await asyncio.sleep(options.interval)
            _print(options, compare(before, await take(admin, options.group, options.topic)))
        elif options.json:
            async for load in watch(admin, options.interval, options.group, options.topic):
                if isinstance(load, ClusterLoad):
                    _print(options, load)
                else:
                    raise CommandError(load)
        else:
            await show_live(
                watch(admin, options.interval, options.group, options.topic),
                lambda load: (
                    _heading(load),
                    (_GROUPS, _group_rows(load)),
                    (_TOPICS, _topic_rows(load)),
                ),
            )
    return 0


def _print(options: argparse.Namespace, load: ClusterLoad) -> None:
    if options.json:
        show(_as_json(load), indent=None)
        return
    say(escaped(_heading(load)))
    for names, rows in ((_GROUPS, _group_rows(load)), (_TOPICS, _topic_rows(load))):
        say("\n" + table([names, *rows]))


async def show_live(
    loads: AsyncIterator[ClusterLoad | str], drawn: Callable[[ClusterLoad], tuple[str, *Tables]]
) -> None:
    """Draw loads on the whole terminal until Ctrl-C.

    Args:
        loads: of :func:`watch`.
        drawn: returns a heading, and tables: the names of the columns, and the rows.
    """
    try:
        from rich.live import Live

        from aioprod.cli.top_screen import TopScreen
    except ModuleNotFoundError as error:
        raise UsageError('the live view needs rich: pip install "aioprod[top]"') from error
    if not sys.stdout.isatty():
        raise UsageError("standard output is not a terminal: give --once or --json")
    screen = TopScreen()
    with Live(screen, screen=True, auto_refresh=False) as live:
        async for load in loads:
            if isinstance(load, ClusterLoad):
                screen.draw(*drawn(load))
            else:
                screen.note(load)
            live.refresh()


async def watch(
    admin: Admin, interval_s: float, groups: Collection[str], topics: Collection[str]
) -> AsyncIterator[ClusterLoad | str]:
    """The load of each interval; the text of an error if the cluster does not answer."""
    from aioprod.errors import KafkaError

    before: Sample | None = None
    while True:
        try:
            after = await take(admin, groups, topics)
        except KafkaError as error:
            yield text_of(error)
        else:
            yield compare(before or after, after)
            before = after
        await asyncio.sleep(interval_s)


def _heading(load: ClusterLoad) -> str:
    lag = sum(group.lag for group in load.groups)
    written = sum(topic.written_per_s for topic in load.topics)
    return (
        f"cluster {load.cluster_id}  {counted(load.brokers, 'broker')}  "
        f"{counted(len(load.groups), 'group')}  lag {lag:,}  written/s {written:,.0f}"
    )


def _group_rows(load: ClusterLoad) -> list[tuple[str, ...]]:
    return [
        (
            each.group,
            each.state,
            str(each.members),
            f"{each.lag:,}",
            f"{each.consumed_per_s:,.0f}",
            "-" if each.catches_up_in_s is None else f"{each.catches_up_in_s:,.0f} s",
        )
        for each in load.groups
    ]


def _topic_rows(load: ClusterLoad) -> list[tuple[str, ...]]:
    return [
        (each.topic, str(each.partitions), f"{each.written_per_s:,.0f}") for each in load.topics
    ]


def _as_json(load: ClusterLoad) -> dict[str, Any]:
    return {
        **load._asdict(),
        "groups": [
            {**each._asdict(), "partitions": [part._asdict() for part in each.partitions]}
            for each in load.groups
        ],
        "topics": [each._asdict() for each in load.topics],
    }

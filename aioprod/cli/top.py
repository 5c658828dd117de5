"""``aioprod top``."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from aioprod.cli.client import CommandError, UsageError, command, text_of
from aioprod.cli.cluster import admin_client
from aioprod.cli.cluster_load import ClusterLoad, Sample, compare, take
from aioprod.cli.keyboard import has_keyboard, keyboard
from aioprod.cli.output import say, show, table
from aioprod.cli.parser import Parser, positive_float
from aioprod.cli.top_layout import Column, Table
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin

_GROUPS = (
    Column("GROUP", is_name=True),
    Column("STATE", is_name=True, dropped=2),
    Column("MEMBERS", dropped=1),
    Column("LAG"),
    Column("READ/S", dropped=4),
    Column("CAUGHT UP IN", dropped=3),
)
_TOPICS = (Column("TOPIC", is_name=True), Column("PARTITIONS", dropped=1), Column("WRITTEN/S"))


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod top``."""
    parser.description = (
        "Shows consumer groups with their lag, and topics, with records per second; refreshed "
        "until q or Ctrl-C. Speeds are those of committed offsets and of the ends of partitions."
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
                lambda load: (_heading(load), *_tables(load)),
            )
    return 0


def _print(options: argparse.Namespace, load: ClusterLoad) -> None:
    if options.json:
        show(_as_json(load), indent=None)
        return
    say(escaped(_heading(load)))
    for columns, rows in _tables(load):
        say("\n" + table([[column.name for column in columns], *rows]))


def _tables(load: ClusterLoad) -> tuple[Table, ...]:
    return Table(_GROUPS, _group_rows(load)), Table(_TOPICS, _topic_rows(load))


async def show_live(
    loads: AsyncIterator[ClusterLoad | str],
    drawn: Callable[[ClusterLoad], tuple[str, *tuple[Table, ...]]],
) -> None:
    """Draw loads on the whole terminal until the user presses q or Ctrl-C.

    Args:
        loads: the loads that :func:`watch` yields.
        drawn: returns a heading, and tables.
    """
    try:
        from rich.live import Live

        from aioprod.cli.top_screen import TopScreen
    except ModuleNotFoundError as error:
        raise UsageError('the live view needs rich: pip install "aioprod[top]"') from error
    if not sys.stdout.isatty():
        raise UsageError("standard output is not a terminal: give --once or --json")
    has_keys = has_keyboard()
    screen = TopScreen(has_keys=has_keys)
    quitting = asyncio.Event()

    async def update() -> None:
        async for load in loads:
            if isinstance(load, ClusterLoad):
                screen.draw(*drawn(load))
            else:
                screen.note(load)
            live.refresh()

    def press(key: str) -> None:
        if key == "quit":
            quitting.set()
        else:
            screen.scroll(key)
            live.refresh()

    with (
        keyboard(press) if has_keys else nullcontext(),  # before the screen shows the keys
        Live(screen, screen=True, auto_refresh=False) as live,
        _on_resize(live.refresh),
    ):
        live.refresh()
        await _until(quitting, update())


@contextmanager
def _on_resize(refresh: Callable[[], None]) -> Iterator[None]:
    resized: int | None = getattr(signal, "SIGWINCH", None)  # not on Windows
    loop = asyncio.get_running_loop()
    if resized is not None:
        loop.add_signal_handler(resized, refresh)
    try:
        yield
    finally:
        if resized is not None:
            loop.remove_signal_handler(resized)


async def _until(quitting: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until the event is set."""
    from aioprod.running_loop import start_task

    tasks = (
        start_task(work, name="aioprod-top"),
        start_task(quitting.wait(), name="aioprod-top-quits"),
    )
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def watch(
    admin: Admin, interval_s: float, groups: Collection[str], topics: Collection[str]
) -> AsyncIterator[ClusterLoad | str]:
    """Yield the load of each interval, or the text of an error if the cluster does not answer."""
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

"""``aioprod groups lag``."""

from __future__ import annotations

import argparse

from aioprod.cli.client import CommandError
from aioprod.cli.cluster import admin_client
from aioprod.cli.cluster_load import ClusterLoad, GroupLoad, PartitionLoad, compare, take
from aioprod.cli.output import note, say, show, table
from aioprod.cli.top import show_live, watch
from aioprod.cli.top_layout import Column, Table
from aioprod.counts import counted
from aioprod.foreign_text import escaped

_COLUMNS = (
    Column("GROUP", is_name=True),
    Column("TOPIC", is_name=True),
    Column("PARTITION"),
    Column("COMMITTED", dropped=2),
    Column("END", dropped=3),
    Column("LAG"),
    Column("CLIENT", is_name=True, dropped=1),
)


async def show_lag(options: argparse.Namespace) -> int:
    """Run the command."""
    async with admin_client(options) as admin:
        if not options.watch:
            sample = await take(admin, options.groups, options.topic)
            return _print_once(options, compare(sample, sample))
        loads = watch(admin, options.interval, options.groups, options.topic)
        if options.json:
            async for load in loads:
                if not isinstance(load, ClusterLoad):
                    raise CommandError(load)
                _print_json(options, load)
        else:
            await show_live(
                loads, lambda load: (_heading(options, load), Table(_COLUMNS, _rows(options, load)))
            )
    return 0


def _print_once(options: argparse.Namespace, load: ClusterLoad) -> int:
    if options.json:
        _print_json(options, load)
    elif rows := _rows(options, load):
        say(table([[column.name for column in _COLUMNS], *rows]))
    for each in load.groups:
        if each.group in options.groups and not _partitions(options, each):
            of = " in these topics" if options.topic else ""
            text = f"group {each.group} has no offset{of} yet"
            note(escaped(f"{options.parser.prog}: {text}"))
    missing = [name for name in options.groups if all(name != each.group for each in load.groups)]
    for name in missing:
        note(escaped(f"{options.parser.prog}: group {name} does not exist"))
    return 1 if missing else 0


def _print_json(options: argparse.Namespace, load: ClusterLoad) -> None:
    groups = [
        {
            "group": each.group,
            "type": each.type,
            "state": each.state,
            "members": each.members,
            "lag": _total(options, each),
            "partitions": [part._asdict() for part in _partitions(options, each)],
        }
        for each in load.groups
    ]
    show(groups, indent=None)


def _heading(options: argparse.Namespace, load: ClusterLoad) -> str:
    lag = sum(_total(options, each) for each in load.groups)
    return f"cluster {load.cluster_id}  {counted(len(load.groups), 'group')}  lag {lag:,}"


def _rows(options: argparse.Namespace, load: ClusterLoad) -> list[tuple[str, ...]]:
    return [
        (
            each.group,
            *("-" if cell is None else str(cell) for cell in part),
        )
        for each in load.groups
        for part in _partitions(options, each)
    ]


def _partitions(options: argparse.Namespace, group: GroupLoad) -> list[PartitionLoad]:
    return [each for each in group.partitions if not options.topic or each.topic in options.topic]


def _total(options: argparse.Namespace, group: GroupLoad) -> int:
    return sum(each.lag or 0 for each in _partitions(options, group))

"""``aioprod groups``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from aioprod.cli import share_groups
from aioprod.cli.client import command
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import note, say, show, table
from aioprod.cli.parser import Commands, Parser, name_choices, positive_float
from aioprod.cli.reset_offsets import add_reset_offsets
from aioprod.cli.share_groups import find_share_groups, share_group_offsets
from aioprod.cli.topics import report
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin, GroupDescription, MemberDescription
    from aioprod.types import TopicPartition


# Listing them here keeps `aioprod.admin` out of the parser.
STATES = (
    *("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),
)
TYPES = ("classic", "consumer", "share", "streams")


def add_arguments(parser: Parser) -> None:
    """Add the arguments of ``aioprod groups``."""
    actions = parser.add_subparsers(dest="action", required=True, parser_class=Parser)
    _add_list(actions)
    _add_describe(actions)
    _add_lag(actions)
    add_reset_offsets(actions)
    _add_delete(actions)
    name_choices(actions)


def _add_list(actions: Commands[Parser]) -> None:
    parser = actions.add_parser("list", help="print all groups", allow_abbrev=False)
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        type=_in_any_case(STATES),
        metavar="STATE",
        help=f"only groups in this state, one of {', '.join(STATES)}; may be repeated",
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        choices=TYPES,
        type=str.lower,
        metavar="TYPE",
        help=f"only groups of this type, one of {', '.join(TYPES)}; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _list)


def _in_any_case(names: tuple[str, ...]) -> Callable[[str], str]:
    known = {name.lower(): name for name in names}
    return lambda text: known.get(text.lower(), text)


def _add_describe(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "describe", help="show groups' members, offsets and lag", allow_abbrev=False
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _describe)


def _add_lag(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "lag",
        help="show the lag of groups in each partition, once or live",
        description=(
            "Shows for each group and partition the committed offset (of a share group the start "
            "offset), the end offset and the lag; the groups with the largest lag come first."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="only partitions of this topic; may be repeated",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="refresh the table until q or Ctrl-C")
    how.add_argument("--once", action="store_true", help="print one table, and exit (the default)")
    parser.add_argument(
        "--interval",
        type=positive_float,
        default=2.0,
        metavar="SECONDS",
        help="time between two tables (default: 2)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --watch a line for each interval"
    )
    command(parser, _lag)


def _add_delete(actions: Commands[Parser]) -> None:
    parser = actions.add_parser(
        "delete", help="delete groups without members, with their offsets", allow_abbrev=False
    )
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    add_confirmation(parser)
    command(parser, _delete)


async def _list(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        listed = await admin.list_groups(states=options.state, types=options.type)
    if options.json:
        show(
            [
                {
                    "group": each.group_id,
                    "type": each.type,
                    "protocol_type": each.protocol_type,
                    "state": each.state,
                }
                for each in listed.values()
            ]
        )
    elif listed:
        rows = [
            (each.group_id, each.type, each.protocol_type, each.state) for each in listed.values()
        ]
        say(table([("GROUP", "TYPE", "PROTOCOL", "STATE"), *rows]))
    return 0


async def _lag(options: argparse.Namespace) -> int:
    from aioprod.cli.groups_lag import show_lag

    return await show_lag(options)


async def _delete(options: argparse.Namespace) -> int:
    check_can_ask(options)
    async with admin_client(options) as admin:
        if not options.yes:
            listed = await admin.list_groups()
            found = [listed[name] for name in dict.fromkeys(options.groups) if name in listed]
            plan = [("GROUP", "TYPE", "STATE"), *((g.group_id, g.type, g.state) for g in found)]
            question = f"delete {counted(len(found), 'group')} with all offsets"
            if not found or not await confirmed(options, plan, question):
                return _missing(options, listed)
        deleted = await admin.delete_consumer_groups(options.groups)
    return report(options, deleted.errors.values())


def _missing(options: argparse.Namespace, listed: Collection[str]) -> int:
    missing = [name for name in dict.fromkeys(options.groups) if name not in listed]
    for name in missing:
        note(escaped(f"{options.parser.prog}: group {name} does not exist"))
    return 1 if missing else 0


class _Progress(NamedTuple):
    """A group's progress in a partition; None if unknown."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The number of records not read yet."""
        return (
            None
            if self.committed is None or self.end is None
            else max(0, self.end - self.committed)
        )


async def _describe(options: argparse.Namespace) -> int:
    async with admin_client(options) as admin:
        described = await admin.describe_consumer_groups(options.groups)
        errors = dict(described.errors)
        shared = await find_share_groups(admin, errors) if errors else {}
        texts: list[str] = []
        objects: list[dict[str, object]] = []
        for name in dict.fromkeys(options.groups):
            if (share_group := shared.get(name)) is not None:
                errors.pop(name)
                offsets = await share_group_offsets(admin, share_group)
                texts.append(share_groups.as_text(share_group, offsets))
                objects.append(share_groups.as_json(share_group, offsets))
            elif name not in errors:
                group = described[name]
                progress = await _progress(admin, group)
                texts.append(_as_text(group, progress))
                objects.append(_as_json(group, progress))
    if options.json:
        show(objects)
    else:
        say("\n\n".join(texts), end="\n" if texts else "")
    return report(options, errors.values())


async def _progress(admin: Admin, group: GroupDescription) -> list[_Progress]:
    """Return the progress of each partition with a committed offset or an assigned member."""
    from aioprod.admin import OffsetSpec

    readers = {partition: member for member in group.members for partition in member.assignment}
    committed = (await admin.list_consumer_group_offsets(group.group_id)).check()
    partitions = sorted({*readers, *committed})
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    missing = ends.errors  # a topic may have been deleted
    return [
        _Progress(
            partition,
            at.offset if (at := committed.get(partition)) is not None else None,
            None if partition in missing else ends[partition].offset,
            readers.get(partition),
        )
        for partition in partitions
    ]


def _as_text(group: GroupDescription, progress: list[_Progress]) -> str:
    heading = escaped(
        f"{group.group_id}  {group.type}  {group.state}  {counted(len(group.members), 'member')}"
        + (f"  {group.assignor}" if group.assignor else "")
    )
    rows = [
        (
            *each.partition,
            each.committed,
            each.end,
            each.lag,
            each.member and each.member.client_id,
            each.member and each.member.host,
        )
        for each in progress
    ]
    return heading + (
        "\n" + table([("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "HOST"), *rows])
        if rows
        else ""
    )


def _as_json(group: GroupDescription, progress: list[_Progress]) -> dict[str, object]:
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": sorted(each.assignment),
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member_id": each.member and each.member.member_id,
            }
            for each in progress
        ],
    }

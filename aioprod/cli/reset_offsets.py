"""``aioprod groups reset-offsets``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioprod.cli.client import UsageError, command
from aioprod.cli.cluster import admin_client
from aioprod.cli.confirm import add_confirmation, check_can_ask, confirmed
from aioprod.cli.output import say, show, table
from aioprod.cli.parser import Commands, Parser, natural_int
from aioprod.cli.share_groups import find_share_groups
from aioprod.cli.topics import partitions_of, report

if TYPE_CHECKING:
    from aioprod.admin import Admin, Results
    from aioprod.types import TopicPartition

_TOPIC = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")


def add_reset_offsets(actions: Commands[Parser]) -> None:
    """Add the command."""
    parser = actions.add_parser(
        "reset-offsets",
        help="set the offsets of a group without members",
        description=(
            "Shows the offsets that a group would get, and asks whether to commit them. The group "
            "must have no members. A share group starts there, with new delivery counts."
        ),
        allow_abbrev=False,
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:N,N]",
        help="partitions to reset; may be repeated (default: all with a committed offset)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first existing record")
    where.add_argument(
        "--to-latest", action="store_true", help="the end, so that only new records are read"
    )
    where.add_argument(
        "--to-offset",
        type=natural_int,
        metavar="N",
        help="this offset, or the nearest existing one",
    )
    where.add_argument(
        "--to-datetime",
        type=timestamp,
        metavar="TIME",
        help="the first record at or after this time, such as 2026-01-31T08:00:00Z",
    )
    where.add_argument(
        "--shift-by",
        type=_whole_number,
        metavar="N",
        help="forward by N offsets, or back if N is negative",
    )
    add_confirmation(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    command(parser, _reset)


def timestamp(text: str) -> int:
    """Parse an ISO 8601 time to milliseconds since 1970; without a UTC offset it is local time."""
    from datetime import UTC, datetime

    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        now = datetime.now(UTC).isoformat(timespec="seconds")
        raise argparse.ArgumentTypeError(f"must be a time such as {now}, not {text!r}") from None


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


async def _reset(options: argparse.Namespace) -> int:
    check_can_ask(options)
    async with admin_client(options) as admin:
        is_shared = bool(await find_share_groups(admin, [options.group]))
        now = await (_share_offsets if is_shared else _offsets)(admin, options.group)
        partitions = await _partitions(admin, options.topic) or list(now)
        if not partitions:
            raise UsageError(
                f"group {options.group} has no offsets: name the partitions by --topic"
            )
        target = await _targets(admin, options, sorted(partitions), now)
        _print(options, now, target)
        question = f"commit these offsets of group {options.group}"
        if not await confirmed(options, (), question):
            return 0
        altered: Results[TopicPartition, None]
        if is_shared:
            altered = await admin.alter_share_group_offsets(options.group, target)
        else:
            altered = await admin.alter_consumer_group_offsets(options.group, target)
    return report(options, altered.errors.values())


def _print(
    options: argparse.Namespace,
    now: Mapping[TopicPartition, int],
    target: Mapping[TopicPartition, int],
) -> None:
    if options.json:
        show(
            [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "from": now.get(partition),
                    "to": offset,
                }
                for partition, offset in target.items()
            ]
        )
    else:
        rows = [(*partition, now.get(partition), offset) for partition, offset in target.items()]
        say(table([("TOPIC", "PARTITION", "FROM", "TO"), *rows]))


async def _offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    committed = (await admin.list_consumer_group_offsets(group)).check()
    return {tp: at.offset for tp, at in committed.items() if at is not None}


async def _share_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    listed = (await admin.list_share_group_offsets(group)).check()
    return {tp: at.start_offset for tp, at in listed.items() if at is not None}


async def _partitions(admin: Admin, wanted: list[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for text in wanted:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise UsageError(f"--topic {text}: must be TOPIC or TOPIC:N,N")
        found += await partitions_of(
            admin, match[1], [int(number) for number in match[2].split(",")] if match[2] else None
        )
    return found


async def _targets(
    admin: Admin,
    options: argparse.Namespace,
    partitions: list[TopicPartition],
    now: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, within its existing records."""
    from aioprod.admin import OffsetSpec

    async def offsets(spec: int) -> dict[TopicPartition, int]:
        found = (await admin.list_offsets(dict.fromkeys(partitions, spec))).check()
        return {partition: place.offset for partition, place in found.items()}

    begins, ends = await offsets(OffsetSpec.EARLIEST), await offsets(OffsetSpec.LATEST)
    if options.to_datetime is not None:
        found = await offsets(options.to_datetime)
        return {
            partition: found[partition] if found[partition] >= 0 else ends[partition]
            for partition in partitions
        }
    wanted: Callable[[TopicPartition], int]
    if options.to_earliest:
        wanted = begins.__getitem__
    elif options.to_latest:
        wanted = ends.__getitem__
    elif options.to_offset is not None:
        wanted = lambda partition: options.to_offset  # noqa: E731
    else:
        without = [partition for partition in partitions if partition not in now]
        if without:
            raise UsageError(
                f"--shift-by: group {options.group} has no offset of "
                f"{without[0].topic}-{without[0].partition}"
            )
        wanted = lambda partition: now[partition] + options.shift_by  # noqa: E731
    return {
        partition: min(max(wanted(partition), begins[partition]), ends[partition])
        for partition in partitions
    }

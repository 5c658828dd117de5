"""Share groups (KIP-932) in ``aioprod groups``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aioprod.cli.output import table
from aioprod.counts import counted
from aioprod.foreign_text import escaped

if TYPE_CHECKING:
    from aioprod.admin import Admin, ShareGroupDescription, ShareGroupOffset
    from aioprod.types import TopicPartition

    Offsets = dict[TopicPartition, ShareGroupOffset | None]


async def find_share_groups(
    admin: Admin, group_ids: Iterable[str]
) -> dict[str, ShareGroupDescription]:
    """Return the groups that are share groups."""
    found = await admin.describe_share_groups(group_ids)
    others = found.errors  # the groups are of another type, or the cluster has no share groups
    return {name: found[name] for name in found if name not in others}


async def share_group_offsets(admin: Admin, group: ShareGroupDescription) -> Offsets:
    """Return a group's offsets in all partitions that it has read, or that a member is assigned."""
    assigned = {tp for member in group.members for tp in member.assignment}
    known = dict((await admin.list_share_group_offsets(group.group_id)).check())
    missing = sorted(assigned - known.keys())
    if missing:
        known |= (await admin.list_share_group_offsets(group.group_id, missing)).check()
    return dict(sorted(known.items()))


def as_text(group: ShareGroupDescription, offsets: Offsets) -> str:
    """Return a heading and a table."""
    heading = escaped(
        f"{group.group_id}  share  {group.state}  {counted(len(group.members), 'member')}  "
        f"{group.assignor}"
    ).rstrip()
    rows = [
        (
            *tp,
            at and at.start_offset,
            at and at.lag,
            ", ".join(sorted(_clients(group, tp))) or None,
        )
        for tp, at in offsets.items()
    ]
    names = ("TOPIC", "PARTITION", "START", "LAG", "CLIENTS")
    return "\n".join([heading, *([table([names, *rows])] if rows else [])])


def as_json(group: ShareGroupDescription, offsets: Offsets) -> dict[str, object]:
    """Return the same for JSON."""
    return {
        "group": group.group_id,
        "type": "share",
        "state": group.state,
        "assignor": group.assignor,
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": sorted(each.assignment),
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": at and at.start_offset,
                "lag": at and at.lag,
                "clients": sorted(_clients(group, tp)),
            }
            for tp, at in offsets.items()
        ],
    }


def _clients(group: ShareGroupDescription, tp: TopicPartition) -> list[str]:
    return [member.client_id for member in group.members if tp in member.assignment]

"""Conversion of groups with ``group.consumer.migration.policy=bidirectional``. A classic group
becomes a group of the consumer protocol when a member with this protocol joins, and a classic group
again when the last such member has left.
"""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.errors import ProtocolError
from aioprod.protocol.consumer_protocol import decode_assignment, decode_subscription
from aioprod.protocol.messages.join_group import JoinGroupResponse
from aioprod.protocol.messages.sync_group import SyncGroupResponse
from aioprod.testing.broker.epoch_groups.classic_members import assignment_of, with_ids
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import ClassicSide, EpochMember
from aioprod.testing.broker.epoch_groups.modern import Topics
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import CONSUMER, Group, GroupState
from aioprod.testing.broker.groups.member import Member


def upgrade(group: Group, topics: Topics, now: float) -> EpochGroup:
    """Return a group of the consumer protocol with the members and the last assignment of a classic
    group, whose generation is its epoch.

    Raises:
        RequestError: if its members are not consumers (GROUP_ID_NOT_FOUND).
    """
    if group.protocol_type != CONSUMER:
        raise RequestError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
        )
    made = EpochGroup(group.group_id, group.generation_id, group.generation_id)
    for member in group.members.values():
        try:
            converted = _as_epoch_member(group, member, topics)
        except ProtocolError as error:
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {group.group_id} to consumer group because the "
                f"embedded consumer protocol is malformed: {error}",
            ) from None
        made.add(converted)
        made.targets[member.member_id] = converted.assigned
        if converted.classic is not None:
            made.renew_classic_session(converted, converted.classic, now)
    return made


def _as_epoch_member(group: Group, member: Member, topics: Topics) -> EpochMember:
    side = ClassicSide(member.session_timeout_ms, member.protocols)
    name = group.protocol_name or side.protocol_name
    subscription = decode_subscription(member.protocols[name])
    return EpochMember(
        member.member_id,
        member.instance_id,
        subscription.rack,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        frozenset(subscription.topics),
        epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=with_ids(decode_assignment(member.assignment).partitions, topics),
        classic=side,
    )


def answer_waiting(group: Group) -> None:
    """Make the members rejoin that wait for responses of an upgraded group."""
    code = ErrorCode.REBALANCE_IN_PROGRESS
    for member in group.members.values():
        member.answer_join(JoinGroupResponse(error_code=code, member_id=member.member_id))
        member.answer_sync(SyncGroupResponse(error_code=code))


def downgrade(group: EpochGroup, generation_id: int, topics: Topics, now: float) -> Group:
    """Return a classic group with the members and targets of a group of the consumer protocol, if
    all members use the classic protocol.
    """
    made = Group(group.group_id, GroupState.STABLE, GroupState.STABLE, generation_id)
    for each in group.members.values():
        assert each.classic is not None, "the caller has checked it"
        member = Member(
            *(each.member_id, each.instance_id, each.client_id, each.client_host),
            *(each.classic.protocols, each.classic.session_timeout_ms, each.rebalance_timeout_ms),
            is_new=False,
        )
        made.add(member, CONSUMER)
        made.renew_session(member, now)
    made.protocol_name = made.select_protocol()
    for member in made.members.values():
        target, metadata = group.target_of(member.member_id), made.metadata_of(member)
        member.assignment = assignment_of(target, metadata, topics)
    made.store()
    return made

"""The way from one generation to the next: all members join again, the leader is told of them, and
hands out the assignment.

The decisions are those of Kafka's group coordinator, so that clients meet the same codes at the
same moments.
"""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.join_group import JoinGroupResponse
from aioprod.protocol.messages.sync_group import SyncGroupResponse
from aioprod.testing.broker.groups.group import JOIN_DEADLINE, SYNC_DEADLINE, Group, GroupState
from aioprod.testing.broker.groups.member import Member
from aioprod.testing.broker.groups.settings import GroupSettings

_REBALANCES_FROM = (GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE)


def rebalance_or_go_on(group: Group, settings: GroupSettings, now: float) -> None:
    """Something about the members has changed: begin a rebalance, or see whether the present one
    can end.
    """
    if group.state in _REBALANCES_FROM:
        begin_rebalance(group, settings, now)
    else:
        end_joining_if_complete(group, now)


def begin_rebalance(group: Group, settings: GroupSettings, now: float) -> None:
    """Have all members join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        hand_out(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.deadlines.pop(SYNC_DEADLINE, None)
    group.pending_syncs.clear()
    is_initial = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE)
    if is_initial:
        delay_ms = settings.initial_rebalance_delay_ms
        group.new_member_added = False
        group.initial_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.deadlines[JOIN_DEADLINE] = now + delay_ms / 1000
    elif group.all_joined:
        end_joining(group, now)
    else:
        group.deadlines[JOIN_DEADLINE] = now + group.rebalance_timeout_ms / 1000


def end_joining_if_complete(group: Group, now: float) -> None:
    """Go on to the next generation if nobody is waited for any more."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.all_joined
        and not group.is_rebalancing_from_empty
    ):
        end_joining(group, now)


def joining_timed_out(group: Group, settings: GroupSettings, now: float) -> None:
    """The time to join is over; only the delay of the first rebalance is extended as long as
    members arrive.
    """
    if not (group.is_rebalancing_from_empty and group.new_member_added and group.initial_left_ms):
        end_joining(group, now)
        return
    group.new_member_added = False
    delay_ms = min(settings.initial_rebalance_delay_ms, group.initial_left_ms)
    group.initial_left_ms = max(group.initial_left_ms - settings.initial_rebalance_delay_ms, 0)
    group.deadlines[JOIN_DEADLINE] = now + delay_ms / 1000


def end_joining(group: Group, now: float) -> None:
    """Begin the next generation with those who joined. Static members stay, as long as their
    session lasts.
    """
    group.deadlines.pop(JOIN_DEADLINE, None)
    for member in list(group.members.values()):
        if not member.joins and member.instance_id is None:
            group.remove(member.member_id)
    if group.members and not _elect_leader(group):
        group.deadlines[JOIN_DEADLINE] = (
            now + group.rebalance_timeout_ms / 1000
        )  # until the sessions of all static members are over
        return
    group.generation_id += 1
    if not group.members:
        group.protocol_name = None
        group.move_to(GroupState.EMPTY)
        group.store()
        return
    group.protocol_name = group.select_protocol()
    group.move_to(GroupState.COMPLETING_REBALANCE)
    for member in group.members.values():
        answer_join(group, member, with_members=group.leader_id == member.member_id)
        group.renew_session(member, now)
        member.is_new = False
        group.pending_syncs[member.member_id] = None
    group.deadlines[SYNC_DEADLINE] = now + group.rebalance_timeout_ms / 1000


def _elect_leader(group: Group) -> bool:
    """Make sure that the leader is somebody who joined; False where nobody did."""
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.joins:
        return True
    joined = next((member.member_id for member in group.members.values() if member.joins), None)
    if joined is not None:
        group.leader_id = joined
    return joined is not None


def answer_join(
    group: Group,
    member: Member,
    *,
    with_members: bool = False,
    skip_assignment: bool = False,
    leader_id: str | None = None,
) -> None:
    """Tell a member of the present generation; ``leader_id`` is the one to be named where it is not
    the present one.
    """
    member.answer_join(
        JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=(leader_id or group.leader_id) or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=group.listed_members() if with_members else [],
        )
    )


def hand_out(group: Group, assignments: Mapping[str, bytes], code: ErrorCode, now: float) -> None:
    """Set all members' assignments, and answer those who wait for theirs."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if member.syncs:
            member.answer_sync(
                assignment_of(group, member) if not code else SyncGroupResponse(error_code=code)
            )
            group.renew_session(member, now)


def assignment_of(group: Group, member: Member) -> SyncGroupResponse:
    """Tell a member what it is to do."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def sync_timed_out(group: Group, settings: GroupSettings, now: float) -> None:
    """Do without the members that never asked for their assignment."""
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
    begin_rebalance(group, settings, now)


def remove_member(group: Group, member: Member) -> None:
    """Forget a member that left or fell silent, and tell its requests that wait."""
    member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)

"""Rebalances: all members rejoin, and the leader gets their metadata and sends the assignment.

The decisions are those of Kafka's group coordinator, so that clients get the same error codes at
the same times.
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


def rebalance_or_continue(group: Group, settings: GroupSettings, now: float) -> None:
    """Begin a rebalance after a change of members, or end the current one if it is complete."""
    if group.state in _REBALANCES_FROM:
        begin_rebalance(group, settings, now)
    else:
        end_joining_if_complete(group, now)


def begin_rebalance(group: Group, settings: GroupSettings, now: float) -> None:
    """Make all members rejoin."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        send_assignments(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, now)
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
    """Begin the next generation if all members have rejoined."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.all_joined
        and not group.is_rebalancing_from_empty
    ):
        end_joining(group, now)


def joining_timed_out(group: Group, settings: GroupSettings, now: float) -> None:
    """End the join phase. Only the delay of the first rebalance is extended while members
    arrive.
    """
    if not (group.is_rebalancing_from_empty and group.new_member_added and group.initial_left_ms):
        end_joining(group, now)
        return
    group.new_member_added = False
    delay_ms = min(settings.initial_rebalance_delay_ms, group.initial_left_ms)
    group.initial_left_ms = max(group.initial_left_ms - settings.initial_rebalance_delay_ms, 0)
    group.deadlines[JOIN_DEADLINE] = now + delay_ms / 1000


def end_joining(group: Group, now: float) -> None:
    """Begin the next generation with the members that have rejoined. Static members stay until
    their sessions expire.
    """
    group.deadlines.pop(JOIN_DEADLINE, None)
    for member in list(group.members.values()):
        if not member.joins and member.instance_id is None:
            group.remove(member.member_id)
    if group.members and not _elect_leader(group):
        # Until the sessions of all static members have expired.
        group.deadlines[JOIN_DEADLINE] = now + group.rebalance_timeout_ms / 1000
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
    """Choose a member that has rejoined as the leader. Return False if there is none."""
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
    """Send a member the current generation. ``leader_id`` overrides the leader in the response."""
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


def send_assignments(
    group: Group, assignments: Mapping[str, bytes], code: ErrorCode, now: float
) -> None:
    """Set the assignments, and send them to the members that wait for theirs."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if member.syncs:
            member.answer_sync(
                assignment_of(group, member) if not code else SyncGroupResponse(error_code=code)
            )
            group.renew_session(member, now)


def assignment_of(group: Group, member: Member) -> SyncGroupResponse:
    """Return the response with a member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def sync_timed_out(group: Group, settings: GroupSettings, now: float) -> None:
    """Remove the members that have not requested their assignment."""
    for member_id in list(group.pending_syncs):
        group.remove(member_id)
    begin_rebalance(group, settings, now)


def remove_member(group: Group, member: Member) -> None:
    """Remove a member that left or expired, and respond to its pending requests."""
    member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    member.answer_sync(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)

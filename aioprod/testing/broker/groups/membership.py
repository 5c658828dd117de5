"""Handles requests of members that have joined, and expired sessions."""

from __future__ import annotations

from collections.abc import Mapping

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupResponse
from aioprod.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import JOIN_DEADLINE, SYNC_DEADLINE, Group, GroupState
from aioprod.testing.broker.groups.member import Member, SyncReply
from aioprod.testing.broker.groups.rebalance import (
    assignment_of,
    begin_rebalance,
    end_joining,
    end_joining_if_complete,
    joining_timed_out,
    rebalance_or_continue,
    remove_member,
    send_assignments,
    sync_timed_out,
)
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.offsets import Committer


def sync(group: Group, request: SyncGroupRequest, now: float, reply: SyncReply) -> None:
    """Respond with the assignment, or wait until the leader has sent it; raise RequestError if the
    sender is not a member of this generation.
    """
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise RequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group's protocol is {group.protocol_type}/{group.protocol_name}",
        )
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")
    group.pending_syncs.pop(member.member_id, None)
    if not group.pending_syncs:
        group.deadlines.pop(SYNC_DEADLINE, None)
    if group.state is GroupState.STABLE:
        reply(assignment_of(group, member))
        return
    member.syncs.append(reply)
    if group.leader_id == member.member_id:
        send_assignments(
            group,
            {each.member_id: each.assignment for each in request.assignments},
            ErrorCode.NONE,
            now,
        )
        group.move_to(GroupState.STABLE)
        group.store()


def heartbeat(group: Group, request: HeartbeatRequest, now: float) -> ErrorCode:
    """Renew a member's session, and return whether it has to rejoin; raise RequestError if the
    sender is not a member of this generation.
    """
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    group.renew_session(member, now)
    return (
        ErrorCode.REBALANCE_IN_PROGRESS
        if group.state is GroupState.PREPARING_REBALANCE
        else ErrorCode.NONE
    )


def leave(
    group: Group, leaving: list[MemberIdentity], settings: GroupSettings, now: float
) -> list[MemberResponse]:
    """Remove members, and return a result for each. An administrator identifies static members only
    by their instance ids.
    """
    results = [
        MemberResponse(each.member_id, each.group_instance_id, _leave(group, each))
        for each in leaving
    ]
    if any(not result.error_code for result in results):
        _rebalance_without(group, settings, now)
    return results


def _leave(group: Group, leaving: MemberIdentity) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id and leaving.group_instance_id is not None:
        member_id = group.static_members.get(leaving.group_instance_id, "")
    if member_id in group.pending_joins:
        group.remove(member_id)
        return ErrorCode.NONE
    try:
        remove_member(group, group.check_member(member_id, leaving.group_instance_id))
    except RequestError as error:
        return error.code
    return ErrorCode.NONE


def _rebalance_without(group: Group, settings: GroupSettings, now: float) -> None:
    """Rebalance after members have left."""
    if group.state is GroupState.PREPARING_REBALANCE:
        end_joining_if_complete(group, now)
    elif group.state is not GroupState.EMPTY:
        rebalance_or_continue(group, settings, now)


# -- offsets ---------------------------------------------------------------------------------------


def check_commit(group: Group, committer: Committer, *, in_transaction: bool) -> None:
    """Raise RequestError if the sender is not allowed to commit offsets. A client that is not a
    member is allowed to if the group is empty, or in a transaction.
    """
    if committer.generation_id < 0 and group.state is GroupState.EMPTY:
        return
    if committer.is_member:
        group.check_member(committer.member_id, committer.group_instance_id)
        group.check_generation(committer.generation_id)
    elif not in_transaction:
        raise RequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and the sender is not one of them"
        )
    if not in_transaction and group.state is GroupState.COMPLETING_REBALANCE:
        raise RequestError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            "the group is rebalancing: its members have no assignment yet",
        )


def commit_keeps_session(group: Group, committer: Committer, now: float) -> None:
    """Renew a member's session after a commit, as after a heartbeat."""
    member = group.members.get(committer.member_id)
    if member is not None:
        group.renew_session(member, now)


# -- time ------------------------------------------------------------------------------------------


def expire(group: Group, settings: GroupSettings, now: float) -> None:
    """Handle the deadlines that have passed, oldest first."""
    while due := sorted(
        (when, deadline) for deadline, when in group.deadlines.items() if when <= now
    ):
        deadline = due[0][1]
        del group.deadlines[deadline]
        if deadline == JOIN_DEADLINE:
            joining_timed_out(group, settings, now)
        elif deadline == SYNC_DEADLINE:
            sync_timed_out(group, settings, now)
        else:
            _session_over(group, deadline.member_id, settings, now)


def _session_over(group: Group, member_id: str, settings: GroupSettings, now: float) -> None:
    member = group.members.get(member_id)
    if member is None:
        group.remove(member_id)  # a member id that was never used
        _end_joining_if_all_joined(group, now)
    elif not member.may_be_silent:  # otherwise its session restarts with the response
        _remove_silent(group, member, settings, now)


def _remove_silent(group: Group, member: Member, settings: GroupSettings, now: float) -> None:
    remove_member(group, member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        begin_rebalance(group, settings, now)
    _end_joining_if_all_joined(group, now)


def _end_joining_if_all_joined(group: Group, now: float) -> None:
    """Begin the next generation, even during the delay of the first rebalance, as Kafka does."""
    if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
        end_joining(group, now)


def expire_member(group: Group, member_id: str, settings: GroupSettings, now: float) -> None:
    """End a member's session, even if the member waits for a response; raise RequestError if the
    member does not exist.
    """
    _remove_silent(group, group.check_member(member_id, None), settings, now)


def rebalance(group: Group, settings: GroupSettings, now: float) -> None:
    """Make all members rejoin, unless a rebalance is in progress."""
    if not group.members:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id!r} has no members")
    if group.state is not GroupState.PREPARING_REBALANCE:
        begin_rebalance(group, settings, now)


def move(group: Group, now: float) -> None:
    """Move a group to another coordinator: clients must resend pending requests to it, and it
    starts with the stored state.
    """
    for member in group.members.values():
        member.answer_join(
            JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, member_id=member.member_id)
        )
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
    group.restore(now)


def set_members(group: Group, generation_id: int, members: Mapping[str, str | None]) -> None:
    """Set the members of a group without clients: the group.instance.id, or None, of each member
    id.
    """
    group.deadlines.clear()
    for member in list(group.members.values()):
        remove_member(group, member)
    group.generation_id, group.protocol_name = generation_id, "range"
    for member_id, instance_id in members.items():
        group.add(
            Member(member_id, instance_id, "", "", {"range": b""}, 0, 0, is_new=False), "consumer"
        )
    group.move_to(GroupState.STABLE if members else GroupState.EMPTY)
    group.store()

"""Handles members that join a group: new ones, those that rejoin, and restarted static members."""

from __future__ import annotations

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.sync_group import SyncGroupResponse
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.member import Caller, JoinReply, Member, protocols_of
from aioprod.testing.broker.groups.rebalance import (
    answer_join,
    begin_rebalance,
    end_joining_if_complete,
    rebalance_or_continue,
)
from aioprod.testing.broker.groups.settings import GroupSettings

# KIP-394: from this version on, clients rejoin with the member id of the response.
KNOWN_ID_FROM = 4
# KIP-814: from this version on, the response can ask the leader to keep the assignment.
_SKIPS_FROM = 9
# How long a new member, which can't send heartbeats yet, may wait for the others.
_NEW_MEMBER_TIMEOUT_MS = 300_000


class Joining:
    """One JoinGroup request."""

    def __init__(
        self,
        group: Group,
        request: JoinGroupRequest,
        caller: Caller,
        settings: GroupSettings,
        now: float,
        reply: JoinReply,
    ) -> None:
        self._group = group
        self._request = request
        self._caller = caller
        self._settings = settings
        self._now = now
        self._reply = reply

    def run(self, new_member_id: str) -> None:
        """Respond at once, or let the request wait for other members. ``new_member_id`` is for a
        client without an id.
        """
        group, request = self._group, self._request
        if not self._has_room():
            group.remove(request.member_id)
            self._reply(JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(request.protocol_type, protocols_of(request)):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id:
            self._join_again()
        elif request.group_instance_id is not None:
            self._join_as_instance(request.group_instance_id, new_member_id)
        elif self._caller.api_version >= KNOWN_ID_FROM:
            group.pending_joins[new_member_id] = None
            group.start_session(new_member_id, request.session_timeout_ms, self._now)
            self._reply(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_member_id)
            )
        else:
            self._add(new_member_id)

    def _has_room(self) -> bool:
        group, limit = self._group, self._settings.max_size
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(self._request.member_id)
        # If the limit is too low for all members, the last ones to rejoin are refused.
        if group.state is GroupState.PREPARING_REBALANCE:
            waiting = sum(1 for each in group.members.values() if each.joins)
            return (member is not None and bool(member.joins)) or waiting < limit
        return member is not None or len(group.members) < limit

    def _refuse(self, code: ErrorCode) -> None:
        self._reply(JoinGroupResponse(error_code=code, member_id=self._request.member_id))

    def _add(self, member_id: str) -> None:
        group = self._group
        if group.is_rebalancing_from_empty:
            group.new_member_added = True
        member = Member.of(member_id, self._request, self._caller)
        member.joins.append(self._reply)
        group.add(member, self._request.protocol_type)
        group.start_session(member_id, _NEW_MEMBER_TIMEOUT_MS, self._now)
        rebalance_or_continue(group, self._settings, self._now)

    def _join_again(self) -> None:
        group, request = self._group, self._request
        if request.member_id in group.pending_joins:
            self._add(request.member_id)
            return
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except RequestError as error:
            self._refuse(error.code)
            return
        is_leader = group.leader_id == member.member_id
        is_same = list(member.protocols.items()) == list(protocols_of(request).items())
        if (group.state is GroupState.COMPLETING_REBALANCE and is_same) or (
            group.state is GroupState.STABLE and is_same and not is_leader
        ):
            member.joins.append(self._reply)  # the client may have missed the response
            answer_join(group, member, with_members=is_leader)
            return
        member.update(request)
        member.joins.append(self._reply)
        rebalance_or_continue(group, self._settings, self._now)

    # -- static members (KIP-345) ------------------------------------------------------------------

    def _join_as_instance(self, instance_id: str, member_id: str) -> None:
        group = self._group
        known = group.static_members.get(instance_id)
        if known is None:
            self._add(member_id)
            return
        leader_before = group.leader_id
        old = group.members[known]
        old.answer_join(JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=known))
        old.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member = group.rename(old, member_id)
        group.renew_session(member, self._now)
        member.update(self._request)
        member.joins.append(self._reply)
        if group.state is GroupState.STABLE and group.select_protocol() == group.protocol_name:
            self._take_over(member, leader_before)
        elif group.state is GroupState.PREPARING_REBALANCE:
            end_joining_if_complete(group, self._now)
        else:  # the assignment that the leader is computing is for the old id
            begin_rebalance(group, self._settings, self._now)

    def _take_over(self, member: Member, leader_before: str | None) -> None:
        """Take over the old member's assignment without a rebalance."""
        group = self._group
        group.store()
        if self._caller.api_version >= _SKIPS_FROM:
            is_leader = group.leader_id == member.member_id
            answer_join(group, member, with_members=is_leader, skip_assignment=is_leader)
        else:  # a member that sees another leader does not compute an assignment
            answer_join(group, member, leader_id=leader_before)

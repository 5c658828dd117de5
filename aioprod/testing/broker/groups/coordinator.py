"""All groups of the broker: classic ones, those of the consumer protocol (KIP-848) and share groups
(KIP-932). Finds the group of a request, and keeps the responses that requests wait for.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aioprod.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.cluster import NO_NODE, Cluster
from aioprod.testing.broker.epoch_groups import classic_members
from aioprod.testing.broker.epoch_groups.checks import check_heartbeat, leaves
from aioprod.testing.broker.epoch_groups.conversion import answer_waiting, downgrade, upgrade
from aioprod.testing.broker.epoch_groups.group import EpochGroup
from aioprod.testing.broker.epoch_groups.member import JOIN_EPOCH, LEAVE_EPOCH
from aioprod.testing.broker.epoch_groups.modern import Beat, ModernGroup, Topics
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups import membership
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.joining import Joining
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.registry import AnyGroup, GroupRegistry
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.offsets import Committer
from aioprod.testing.broker.settings.group_configs import GroupConfigs
from aioprod.testing.broker.share_groups.group import ShareGroup
from aioprod.testing.broker.share_groups.group import check_heartbeat as check_share_heartbeat

_SESSION_TIMEOUT = "consumer.session.timeout.ms"
_HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
T = TypeVar("T")


class GroupCoordinator(GroupRegistry):
    """Handles the requests of groups.

    Args:
        topics: a function that returns all existing topics.
        configs: the settings of groups that clients set.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: GroupSettings,
        new_uuid: Callable[[], uuid.UUID],
        topics: Callable[[], Topics],
        configs: GroupConfigs,
    ) -> None:
        super().__init__(cluster)
        self.settings = settings
        self._new_uuid = new_uuid
        self._topics = topics
        self._configs = configs

    # -- requests ----------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: Caller) -> asyncio.Future[JoinGroupResponse]:
        """Add a member to a group or let it rejoin. The response may wait for other members."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[JoinGroupResponse] = loop.create_future()
        if (
            not self.settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self.settings.max_session_timeout_ms
        ):
            answer.set_result(
                JoinGroupResponse(
                    error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id
                )
            )
            return answer
        refusal = self._refuse_join(request)
        if refusal:
            answer.set_result(JoinGroupResponse(error_code=refusal, member_id=request.member_id))
            return answer
        present = self.groups.get(request.group_id)
        if isinstance(present, EpochGroup) and present.members:
            answer.set_result(self._join_epoch_group(present, request, caller))
            return answer
        group = self._classic(request.group_id)
        new_member_id = (
            ""
            if request.member_id
            else f"{request.group_instance_id or caller.client_id}-{self._new_uuid()}"
        )
        Joining(group, request, caller, self.settings, loop.time(), _setter(answer)).run(
            new_member_id
        )
        self.changed(group)
        return answer

    def _refuse_join(self, request: JoinGroupRequest) -> ErrorCode:
        group = self.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and (group is None or not (isinstance(group, Group) or group.members)):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _join_epoch_group(
        self, group: EpochGroup, request: JoinGroupRequest, caller: Caller
    ) -> JoinGroupResponse:
        now = asyncio.get_running_loop().time()
        new_id, settings = str(self._new_uuid()), self.settings
        try:
            return classic_members.join(
                group, request, new_id, caller, self._topics(), settings, now
            )
        except RequestError as error:
            return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
        finally:
            if group.is_classic_only:  # the last other member was a static one
                self._replace(group, downgrade(group, group.epoch, self._topics(), now))
            else:
                self.changed(group)

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        """Return a member's assignment. The leader's request contains those of all members.

        Raises:
            RequestError: if the sender is not a member of this generation.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SyncGroupResponse] = loop.create_future()
        group = self._of_consumers(request.group_id)
        if isinstance(group, EpochGroup):
            answer.set_result(classic_members.sync(group, request, self._topics(), loop.time()))
        else:
            membership.sync(group, request, loop.time(), _setter(answer))
        self.changed(group)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Renew a member's session, and return whether it has to rejoin.

        Raises:
            RequestError: if the sender is not a member of this generation.
        """
        group, now = self._of_consumers(request.group_id), asyncio.get_running_loop().time()
        code = (
            classic_members.heartbeat(group, request, now)
            if isinstance(group, EpochGroup)
            else membership.heartbeat(group, request, now)
        )
        self._arm(group)
        return code

    def leave(self, group_id: str, leaving: list[MemberIdentity]) -> list[MemberResponse]:
        """Remove members, and return a result for each; raise RequestError if the group does not
        exist.
        """
        group, now = self._of_consumers(group_id), asyncio.get_running_loop().time()
        if isinstance(group, EpochGroup):
            results = classic_members.leave(group, leaving)
            self._removed(group)
        else:
            results = membership.leave(group, leaving, self.settings, now)
            self.changed(group)
        return results

    def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Beat:
        """Let a member of the consumer protocol join, move to its target assignment, or leave. An
        empty classic group is converted to the consumer protocol.

        Raises:
            RequestError: if the request is invalid, or its epoch is not the current one.
        """
        check_heartbeat(request, caller.api_version)
        group = self.groups.get(request.group_id)
        joins = request.member_epoch == JOIN_EPOCH
        now = asyncio.get_running_loop().time()
        if isinstance(group, Group) and joins and group.state is GroupState.EMPTY:
            self._forget(group)
            group = None
        classic = group if isinstance(group, Group) and joins else None
        if classic is not None:
            group = upgrade(classic, self._topics(), now)
        if isinstance(group, Group | ShareGroup):
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group."
            )
        if group is None and not joins:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        group = group or self._add(EpochGroup(request.group_id))
        try:
            if leaves(request):
                return group.leave(request)
            new_member_id = "" if request.member_id else str(self._new_uuid())
            settings = self.settings_of(group.group_id)
            beat = group.heartbeat(request, new_member_id, caller, self._topics(), settings, now)
            if classic is not None:  # only now, because a refused member must not change anything
                self._replace(classic, group)
                answer_waiting(classic)
            return beat
        finally:
            if self.groups.get(group.group_id) is group:
                self._removed(group)

    def share_heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller) -> Beat:
        """Let a member of a share group join, get its partitions, or leave.

        Raises:
            RequestError: if the request is invalid, or its epoch is not the current one.
        """
        check_share_heartbeat(request)
        group = self.groups.get(request.group_id)
        if group is None and request.member_epoch != JOIN_EPOCH:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if group is not None and not isinstance(group, ShareGroup):
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a share group."
            )
        group = group or self._add(ShareGroup(request.group_id))
        now = asyncio.get_running_loop().time()
        settings = self._configs.share(request.group_id)
        try:
            if request.member_epoch == LEAVE_EPOCH:
                return group.leave(request.member_id)
            return group.heartbeat(request, caller, self._topics(), settings, now)
        finally:
            self.changed(group)

    def empty_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group without members. Create it if it does not exist.

        Raises:
            RequestError: if it has members, or is of another type.
        """
        if group_id not in self.groups:
            self._add(ShareGroup(group_id))
        return self.existing_empty_share_group(group_id)

    def existing_empty_share_group(self, group_id: str) -> ShareGroup:
        """Return a share group without members.

        Raises:
            RequestError: if it has members, does not exist, or is of another type.
        """
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        return group

    def check_commit(self, group_id: str, committer: Committer, *, in_transaction: bool) -> None:
        """Raise RequestError if the sender is not allowed to commit offsets now. Create the group
        if it does not exist.
        """
        group = self.groups.get(group_id)
        if group is None:
            if committer.generation_id >= 0:
                raise RequestError(
                    ErrorCode.ILLEGAL_GENERATION,
                    (f"there is no group {group_id!r} in generation {committer.generation_id}"),
                )
            group = self._classic(group_id)
        if isinstance(group, ModernGroup):
            group.check_commit(committer, in_transaction=in_transaction)
            return
        membership.check_commit(group, committer, in_transaction=in_transaction)
        if not in_transaction and self._home(group) != NO_NODE:
            membership.commit_keeps_session(group, committer, asyncio.get_running_loop().time())
            self._arm(group)

    # -- groups ------------------------------------------------------------------------------------

    def settings_of(self, group_id: str) -> GroupSettings:
        """Return the settings of a group of the consumer protocol."""
        own = self._configs.overrides(group_id)
        session, interval = own.get(_SESSION_TIMEOUT), own.get(_HEARTBEAT_INTERVAL)
        return replace(
            self.settings,
            consumer_session_timeout_ms=int(session or self.settings.consumer_session_timeout_ms),
            consumer_heartbeat_interval_ms=int(
                interval or self.settings.consumer_heartbeat_interval_ms
            ),
        )

    def _classic(self, group_id: str) -> Group:
        """Return a classic group. Create it if it does not exist, replacing a group of the consumer
        protocol.
        """
        group = self.groups.get(group_id)
        if isinstance(group, Group):
            return group
        if group is not None:
            self._forget(group)
        return self._add(Group(group_id))

    def _removed(self, group: EpochGroup | ShareGroup) -> None:
        """Handle a change that may have removed members. If a group of the consumer protocol has
        only classic members left, it is converted to a classic group, and they rejoin.
        """
        if isinstance(group, EpochGroup) and group.is_classic_only:
            now = asyncio.get_running_loop().time()
            classic = downgrade(group, group.epoch - 1, self._topics(), now)
            self._replace(group, classic)
            membership.rebalance(classic, self.settings, now)
            self.changed(classic)
            return
        self.changed(group)

    def delete(self, group_id: str) -> None:
        """Delete a group; raise RequestError if it does not exist or has members."""
        group = self.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.state != GroupState.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        self._forget(group)
        self._wake()

    def set_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a group: the group.instance.id, or None, of each member id. They have
        no sessions, so they never expire.
        """
        group = self._classic(group_id)
        membership.set_members(group, generation_id, members)
        self.changed(group)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once; raise RequestError if it does not exist."""
        present = self.groups.get(group_id)
        if isinstance(present, ModernGroup):
            present.member(member_id)
            present.remove(member_id)
            self._removed(present)
            return
        group = self._find_with_members(group_id)
        membership.expire_member(group, member_id, self.settings, asyncio.get_running_loop().time())
        self.changed(group)

    def rebalance(self, group_id: str) -> None:
        """Make all members rejoin, or begin a new epoch; raise RequestError if the group has no
        members.
        """
        present = self.groups.get(group_id)
        if isinstance(present, ModernGroup):
            present.assign_again()
            self.changed(present)
            return
        group = self._find_with_members(group_id)
        membership.rebalance(group, self.settings, asyncio.get_running_loop().time())
        self.changed(group)

    def _of_consumers(self, group_id: str) -> Group | EpochGroup:
        group = self.groups.get(group_id)
        return group if isinstance(group, EpochGroup) else self._find_with_members(group_id)

    def _find_with_members(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if not isinstance(group, Group):
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"there is no classic group {group_id!r}"
            )
        return group

    # -- time --------------------------------------------------------------------------------------

    def _expire(self, group: AnyGroup, now: float) -> None:
        if isinstance(group, ModernGroup):
            group.expire(now)
            self._removed(group)
        else:
            membership.expire(group, self.settings, now)
            self.changed(group)

    def _move(self, group: AnyGroup, now: float) -> None:
        if isinstance(group, EpochGroup):
            group.begin_sessions(self.settings_of(group.group_id), now)
        elif isinstance(group, ShareGroup):
            group.begin_sessions(self._configs.share(group.group_id), now)
        else:
            membership.move(group, now)


def _setter(answer: asyncio.Future[T]) -> Callable[[T], None]:
    def reply(response: T) -> None:
        if not answer.done():  # the client may have disconnected
            answer.set_result(response)

    return reply

"""All consumer groups of the broker: finds the group of a request, runs its timer, and keeps the
responses that requests wait for.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from typing import TypeVar

from aioprod.error_codes import ErrorCode
from aioprod.protocol.messages.heartbeat import HeartbeatRequest
from aioprod.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from aioprod.protocol.messages.leave_group import MemberIdentity, MemberResponse
from aioprod.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from aioprod.testing.broker.cluster import GROUP, NO_NODE, Cluster
from aioprod.testing.broker.errors import RequestError
from aioprod.testing.broker.groups import membership
from aioprod.testing.broker.groups.group import Group, GroupState
from aioprod.testing.broker.groups.joining import Joining
from aioprod.testing.broker.groups.member import Caller
from aioprod.testing.broker.groups.settings import GroupSettings
from aioprod.testing.broker.offsets import Committer

T = TypeVar("T")


class GroupCoordinator:
    """The groups of all nodes, each coordinated by one of them.

    Attributes:
        groups: the groups by id. Call :meth:`changed` after changing one.
    """

    def __init__(
        self, cluster: Cluster, settings: GroupSettings, new_uuid: Callable[[], uuid.UUID]
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.settings = settings
        self._cluster = cluster
        self._new_uuid = new_uuid
        self._homes: dict[str, int] = {}  # the coordinator of each group
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._watchers: set[asyncio.Future[None]] = set()
        cluster.watchers.append(self._follow_cluster)

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
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            answer.set_result(
                JoinGroupResponse(
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id
                )
            )
            return answer
        group = group or self.create(request.group_id)
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

    def sync(self, request: SyncGroupRequest) -> asyncio.Future[SyncGroupResponse]:
        """Return a member's assignment; the leader sends those of all members.

        Raises:
            RequestError: if the sender is not a member of this generation.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[SyncGroupResponse] = loop.create_future()
        group = self._find_with_members(request.group_id)
        membership.sync(group, request, loop.time(), _setter(answer))
        self.changed(group)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Renew a member's session, and tell whether it has to rejoin.

        Raises:
            RequestError: if the sender is not a member of this generation.
        """
        group = self._find_with_members(request.group_id)
        code = membership.heartbeat(group, request, asyncio.get_running_loop().time())
        self._arm(group)
        return code

    def leave(self, group_id: str, leaving: list[MemberIdentity]) -> list[MemberResponse]:
        """Remove members, each with its own result; raise RequestError if the group does not
        exist.
        """
        group = self._find_with_members(group_id)
        results = membership.leave(group, leaving, self.settings, asyncio.get_running_loop().time())
        self.changed(group)
        return results

    def check_commit(self, group_id: str, committer: Committer, *, in_transaction: bool) -> None:
        """Raise RequestError unless the sender may commit offsets now. Create the group if it does
        not exist.
        """
        group = self.groups.get(group_id)
        if group is None:
            if committer.generation_id >= 0:
                raise RequestError(
                    ErrorCode.ILLEGAL_GENERATION,
                    (f"there is no group {group_id!r} in generation {committer.generation_id}"),
                )
            group = self.create(group_id)
        membership.check_commit(group, committer, in_transaction=in_transaction)
        if not in_transaction and self._home(group) != NO_NODE:
            membership.commit_keeps_session(group, committer, asyncio.get_running_loop().time())
            self._arm(group)

    # -- groups ------------------------------------------------------------------------------------

    def create(self, group_id: str) -> Group:
        """Return a group, creating it without members if it does not exist."""
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id)
            self._homes[group_id] = self._cluster.coordinator_node(GROUP, group_id)
        return self.groups[group_id]

    def delete(self, group_id: str) -> None:
        """Delete a group; raise RequestError if it does not exist or has members."""
        group = self.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if group.state is not GroupState.EMPTY:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        group.deadlines.clear()
        group.move_to(GroupState.DEAD)
        self._arm(group)
        del self.groups[group_id], self._homes[group_id]
        self._wake()

    def set_members(
        self, group_id: str, generation_id: int, members: Mapping[str, str | None]
    ) -> None:
        """Set the members of a group: group.instance.id or None by member id. They have no
        sessions, so they never expire.
        """
        group = self.create(group_id)
        membership.set_members(group, generation_id, members)
        self.changed(group)

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session at once; raise RequestError if it does not exist."""
        group = self._find_with_members(group_id)
        membership.expire_member(group, member_id, self.settings, asyncio.get_running_loop().time())
        self.changed(group)

    def rebalance(self, group_id: str) -> None:
        """Make all members rejoin; raise RequestError if the group has none."""
        group = self._find_with_members(group_id)
        membership.rebalance(group, self.settings, asyncio.get_running_loop().time())
        self.changed(group)

    def _find_with_members(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    # -- time --------------------------------------------------------------------------------------

    def changed(self, group: Group) -> None:
        """Set the group's timer, and wake the tasks that wait for a change."""
        self._arm(group)
        self._wake()

    async def wait_for_change(self, timeout_seconds: float) -> None:
        """Wait for the next change of any group, or until the timeout."""
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.add(change)
        try:
            await asyncio.wait([change], timeout=timeout_seconds)
        finally:
            self._watchers.discard(change)

    def _wake(self) -> None:
        for watcher in self._watchers:
            if not watcher.done():
                watcher.set_result(None)

    def _arm(self, group: Group) -> None:
        present = self._timers.get(group.group_id)
        due = min(group.deadlines.values(), default=None) if self._home(group) != NO_NODE else None
        if present is not None and (due is None or due < present.when()):
            present.cancel()
            del self._timers[group.group_id]
            present = None
        # Heartbeats only postpone deadlines, so a timer that fires too early is set again.
        if due is not None and present is None:
            self._timers[group.group_id] = asyncio.get_running_loop().call_at(
                due, self._fire, group, due
            )

    def _fire(self, group: Group, due: float) -> None:
        del self._timers[group.group_id]
        # The clock may be a tick behind its timers.
        membership.expire(group, self.settings, max(due, asyncio.get_running_loop().time()))
        self.changed(group)

    def _home(self, group: Group) -> int:
        return self._homes.get(group.group_id, NO_NODE)

    def _follow_cluster(self) -> None:
        """Move groups to their new coordinators after nodes started or stopped. A new coordinator
        has only the state that would be in the log.
        """
        for group in self.groups.values():
            node_id = self._cluster.coordinator_node(GROUP, group.group_id)
            if node_id != self._home(group):
                self._homes[group.group_id] = node_id
                membership.move(group, asyncio.get_running_loop().time())
                self.changed(group)


def _setter(answer: asyncio.Future[T]) -> Callable[[T], None]:
    def reply(response: T) -> None:
        if not answer.done():  # the client may have disconnected
            answer.set_result(response)

    return reply

"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. The rules are those of
Java's ConsumerCoordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.assignors import RebalanceProtocol, make_assignors, rebalance_protocol
from aioprod.consumer.group.assignors.calls import notify_assignor
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi
from aioprod.consumer.group.heartbeats import Heartbeats
from aioprod.consumer.group.joining import Joined, Joining
from aioprod.consumer.group.leading import Leadership
from aioprod.consumer.group.leaving import send_leave
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.member_state import Generation, JoinStage, MemberState
from aioprod.consumer.group.offsets import Committer, OnCommit
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError, KafkaError, RebalanceInProgressError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.net.refusals import explain
from aioprod.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aioprod.running_loop import start_task
from aioprod.types import ConsumerGroupMetadata

log: Logger = get_logger(__name__)

_SEVERAL_LEAVE_FROM = 3
# The share of the close timeout for which close() waits for the end of a rebalance.
_REBALANCE_SHARE = 0.5


class ClassicMember(GroupMember):
    """See :class:`aioprod.consumer.membership.Membership`.

    It joins in a separate task. Before that, inside a call of the application, it revokes
    partitions: all in an eager group, those of topics that are no longer subscribed in a
    cooperative one. Afterwards, inside another call, it adopts the new ones.
    """

    needs_attention: bool

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        runtime: ClientRuntime,
        partitions: GroupPartitions,
        on_attention: Callable[[], None],
        on_commit: OnCommit,
    ) -> None:
        super().__init__(config, subscription, runtime, partitions, on_attention, on_commit)
        assignors = make_assignors(config.partition_assignment_strategy)
        self._protocol = rebalance_protocol(assignors)
        self._state = MemberState()
        self._joining = Joining(
            config,
            self._connections,
            self._state,
            assignors,
            runtime.metadata,
            subscription,
            self._synced,
            self.note_problem,
        )
        self._heartbeats = Heartbeats(
            config, self._connections, self._state, self, self._keep_topics, self._poll_watch
        )
        self._join_task: asyncio.Task[Joined | None] | None = None
        self._joined: Joined | None = None  # an assignment to adopt
        self._leadership: Leadership | None = None
        self._rejoin_reason: str | None = None
        self._prepared = False  # partitions are revoked that had to be before joining
        self._leaving: asyncio.Task[None] | None = None
        self._present = Generation()  # of the current assignment

    @property
    def rebalancing(self) -> bool:
        """True if the group rebalances."""
        return self._in_group and (
            self._rejoin_reason is not None
            or self._joined is not None
            or self._state.stage is not JoinStage.STABLE
        )

    @property
    def _is_lost(self) -> bool:
        return self._state.is_lost

    # -- events from the consumer ------------------------------------------------------------------

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Handle a new snapshot: it may have new topics that match the pattern, and new partitions
        for the leader to assign.
        """
        super().metadata_changed(snapshot)
        if self._leadership is not None and self._leadership.is_outdated(snapshot):
            self._leadership = None
            self._rejoin("the number of partitions of a topic has changed")

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member in the generation of its assignment."""
        return ConsumerGroupMetadata(
            self._connections.group_id,
            self._present.generation_id,
            self._present.member_id,
            self._config.group_instance_id,
        )

    def _topics_changed(self, reason: str) -> None:
        self._rejoin(reason)

    def _keep_topics(self) -> None:
        """Keep the group's topics in the metadata, which drop unused topics."""
        for topic in (
            self._subscription.topics if self._leadership is None else self._leadership.topics
        ):
            self._metadata.touch(topic)

    def _rejoin(self, reason: str) -> None:
        if self._rejoin_reason is None:
            self._rejoin_reason = reason
            self._partitions.rebalance_began()
            who, group = self._config.client_id, self._connections.group_id
            log.info("%s: group %r: joining: %s", who, group, reason)
        self._attend()

    # -- inside calls of the application -----------------------------------------------------------

    async def _step(self, deadline: float) -> None:
        while True:
            if self._joined is not None and not self._state.is_lost:
                if not await self._take_over(self._joined, deadline):
                    self.needs_attention = True
                    return
            elif self._join_task is not None:
                if not self._join_task.done():
                    return
                self._end_joining(self._join_task)
            elif self._rejoin_reason is None or not self._topics_known:
                return
            elif not self._prepared:
                self._prepared = await self._prepare(deadline)
                if not self._prepared:
                    self.needs_attention = True
                    return
            else:
                self._begin_joining(self._rejoin_reason)
                return

    async def _prepare(self, deadline: float) -> bool:
        """Revoke partitions before joining; return whether that is done."""
        self._joined = None
        owned = self._partitions.owned
        if self._state.is_lost:
            if owned:
                await self._partitions.lose(owned)
            return True
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            owned = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
        return not owned or await self._revoke(owned, deadline)

    def _begin_joining(self, reason: str) -> None:
        self._heartbeats.stop()
        self._partitions.rebalance_began()
        self._leadership = None
        self._rejoin_reason = None
        self._state.begin_joining()
        self._join_task = start_task(self._joining.run(reason), name="aioprod-join-group")
        self._join_task.add_done_callback(self._tried_to_join)

    def _end_joining(self, task: asyncio.Task[Joined | None]) -> None:
        """Store the result of joining; raise its error."""
        self._join_task = None
        self._prepared = False
        self._problem = None
        if task.cancelled() or task.exception() is not None or task.result() is None:
            # Other members may have its partitions by now.
            self._rejoin_reason = self._rejoin_reason or "the last attempt has failed"
            self._state.lose(keep_member_id=True)
            self._partitions.rebalance_ended(_join_error(task))
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BrokerError) and error.code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(error)
        if error is not None:
            raise error
        self._joined = None if task.cancelled() else task.result()

    async def _take_over(self, joined: Joined, deadline: float) -> bool:
        """Adopt an assignment; return whether that is done."""
        if stray := {tp.topic for tp in joined.partitions} - joined.topics:
            self._joined = None
            self._rejoin(
                "the leader assigned partitions of topics that are not subscribed: "
                f"{', '.join(sorted(stray))}"
            )
            return True
        # As in Java: the listener of a cooperative member may commit the partitions that it revokes
        # in a transaction, in the generation that revokes them.
        self._present = joined.generation
        owned = self._partitions.owned
        if revoked := owned - joined.partitions:
            self._rejoin(
                "the assignment revoked partitions of this member; other members get them next"
            )
            if not await self._revoke(revoked, deadline):
                return False
            if (
                self._joined is not joined or self._state.is_lost
            ):  # the listener or the coordinator has ended the membership
                return True
        self._joined = None
        self._leadership = joined.leadership
        notify_assignor(joined.assignor, joined.partitions, joined.generation.generation_id)
        self._auto_commit.reset(asyncio.get_running_loop().time())
        if joined.topics != self._subscription.topics:
            self._rejoin("the subscription has changed")
        elif joined.leadership is not None and joined.leadership.is_outdated(
            self._metadata.snapshot
        ):
            self._rejoin("the number of partitions of a topic has changed")
        await self._partitions.assign(joined.partitions)
        return True

    # -- events from tasks -------------------------------------------------------------------------

    def _tried_to_join(self, task: asyncio.Task[Joined | None]) -> None:
        if not task.cancelled():
            task.exception()  # raised in a call of the application
        if task is self._join_task:
            self._attend()

    def note_problem(self, problem: KafkaError | None) -> None:
        """See :class:`aioprod.consumer.group.heartbeats.HeartbeatEvents`."""
        self._problem = problem

    def _synced(self) -> None:
        self._heartbeats.start()
        self._poll_watch.begin()

    def heartbeat_said(self, action: ErrorAction, code: ErrorCode, generation: Generation) -> None:
        """See :class:`aioprod.consumer.group.heartbeats.HeartbeatEvents`."""
        if action is ErrorAction.REJOIN:
            if self._rejoin_reason is None and self._state.stage is JoinStage.STABLE:
                self._rejoin("the group rebalances")
        elif generation == self._state.generation:
            self._act(action, code, "Heartbeat")

    def heartbeats_failed(self, error: KafkaError) -> None:
        """See :class:`aioprod.consumer.group.heartbeats.HeartbeatEvents`. The next call of the
        application raises the error; then the member joins again.
        """
        self._pending_error = error
        self._lose(keep_member_id=True, reason=str(error))

    def _act(self, action: ErrorAction, code: ErrorCode, what: str) -> None:
        error = BrokerError(code, f"{what} in group {self._connections.group_id!r}")
        explain(error, what, self._connections.principal)
        if action is ErrorAction.FENCED:
            self._heartbeats.stop()
            self._state.lose(keep_member_id=False)
            self._fail(error)
        elif action in (ErrorAction.LOST_GENERATION, ErrorAction.LOST_MEMBER):
            self._lose(keep_member_id=action is ErrorAction.LOST_GENERATION, reason=str(error))
        else:
            self.heartbeats_failed(error)

    def _lose(self, *, keep_member_id: bool, reason: str) -> None:
        self._heartbeats.stop()
        self._state.lose(keep_member_id=keep_member_id)
        self._prepared = False
        self._leadership = None
        self._rejoin(reason)

    def _poll_overdue(self) -> None:
        if self._state.stage is JoinStage.UNJOINED:
            return
        log.warning(
            "%s: group %r: no poll for max_poll_interval_ms=%s; the consumer leaves the group. "
            "Process fewer records between polls (max_poll_records), or increase "
            "max_poll_interval_ms",
            self._config.client_id,
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        generation = self._state.generation
        if self._join_task is not None:
            self._abandon_joining()
        self._lose(keep_member_id=False, reason="the application has not polled in time")
        # A static member stays until its session times out.
        if self._config.group_instance_id is None:
            self._leaving = start_task(
                self._send_leave(generation, "consumer poll timeout has expired"),
                name="aioprod-leave-group",
            )

    # -- commits -----------------------------------------------------------------------------------

    def committer(self, before: Committer | None = None) -> Committer:
        """Return this member in its generation; no member if partitions were assigned."""
        if not self._in_group and before in (None, Committer()):
            return Committer()
        generation = self._state.generation
        now = Committer(
            generation.generation_id, generation.member_id, self._config.group_instance_id
        )
        # In an eager group the positions belong to the previous generation until the new assignment
        # is adopted.
        void = self._joined is not None and self._protocol is RebalanceProtocol.EAGER
        if (
            self._in_group
            and self._state.stage is JoinStage.STABLE
            and before in (None, now)
            and not void
        ):
            return now
        raise self._not_now(rebalancing=void)

    def commit_refused(
        self, action: ErrorAction, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """Handle the refusal of a commit, and return the error for the caller."""
        if committer.generation_id < 0:
            return CommitFailedError(
                f"group {self._connections.group_id!r} has members ({code.name}): a consumer with "
                "assign() can't commit to it; use another group_id, or subscribe()"
            )
        generation = self._state.generation
        if (committer.generation_id, committer.member_id) != generation[:2]:
            return self._not_now()
        if action is ErrorAction.REJOIN:
            self._rejoin("the group rebalances")
            return self._not_now(rebalancing=True)
        self._act(action, code, "OffsetCommit")
        return self.failure or self._not_now()

    def _not_now(self, *, rebalancing: bool = False) -> KafkaError:
        if rebalancing or self._state.joining:
            return RebalanceInProgressError(
                f"group {self._connections.group_id!r} rebalances: offsets can't be "
                "committed now; poll for records, then commit again"
            )
        return CommitFailedError(
            f"group {self._connections.group_id!r} has rebalanced without this member: offsets "
            "were not committed, and the records may be read again, by this member or another. The "
            "usual cause is no poll within max_poll_interval_ms="
            f"{self._config.max_poll_interval_ms}"
        )

    # -- leaving -----------------------------------------------------------------------------------

    async def _give_up_partitions(self, deadline: float) -> None:
        await self._end_rebalance(deadline)
        await super()._give_up_partitions(deadline)

    async def _end_rebalance(self, deadline: float) -> None:
        """Wait for the end of a rebalance, so that offsets can be committed.

        A cooperative member reads while the group rebalances, but can commit only afterwards:
        until then the coordinator may begin the next generation at any time, and refuse the commit.
        """
        if self._joined is not None:
            self._present = self._joined.generation
        task = self._join_task
        if task is None:
            return
        if self._partitions.owned and not task.done():
            left = deadline - asyncio.get_running_loop().time()
            await asyncio.wait([task], timeout=max(0.0, left * _REBALANCE_SHARE))
        if not task.done():
            self._abandon_joining()
            return
        self._join_task = None
        joined = None if task.cancelled() or task.exception() is not None else task.result()
        if joined is None:
            self._state.lose(keep_member_id=True)
        else:
            self._present = joined.generation

    def _abandon_joining(self) -> None:
        assert self._join_task is not None
        task, self._join_task = self._join_task, None
        task.cancel()
        self._connections.hang_up()
        self._state.give_up_joining()

    async def _leave(self, *, notify: bool) -> None:
        generation = self._state.generation
        # Without time to wait for the end of a rebalance, JoinGroup is still in flight, and the
        # coordinator reads LeaveGroup only after it on the same connection.
        if self._join_task is not None and not self._join_task.done():
            self._abandon_joining()
        self._stop_tasks()
        self._state.lose(keep_member_id=not notify)
        self._present = Generation()
        self._joined = self._leadership = self._rejoin_reason = None
        self._prepared = False
        if notify:
            await self._send_leave(generation, "the consumer is being closed")

    async def _send_leave(self, generation: Generation, reason: str) -> None:
        """Send LeaveGroup; if it fails, the session timeout removes the member later."""
        if not generation.member_id:
            return
        member = MemberIdentity(generation.member_id, self._config.group_instance_id, reason)

        def prepare(connection: Connection) -> tuple[LeaveGroupRequest, int]:
            version = connection.pick_version(LeaveGroupRequest)
            if version < _SEVERAL_LEAVE_FROM:
                return LeaveGroupRequest(self._connections.group_id, generation.member_id), version
            return LeaveGroupRequest(self._connections.group_id, members=[member]), version

        group = f"group {self._connections.group_id!r}"
        await send_leave(self._connections, GroupApi.LEAVE, prepare, group)

    def _stop_tasks(self) -> None:
        self._heartbeats.stop()
        tasks, self._join_task, self._leaving = (self._join_task, self._leaving), None, None
        for task in tasks:
            if task is not None:
                task.cancel()


def _join_error(task: asyncio.Task[Joined | None]) -> BaseException:
    """Return why a task that tried to join has no assignment."""
    error = None if task.cancelled() else task.exception()
    return error or KafkaError("the coordinator has removed this member")

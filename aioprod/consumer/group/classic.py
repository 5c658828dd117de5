"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. The rules are those of
Java's ConsumerCoordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.assignors import RebalanceProtocol, make_assignors, rebalance_protocol
from aioprod.consumer.group.assignors.calls import tell_assignor
from aioprod.consumer.group.heartbeats import Heartbeats
from aioprod.consumer.group.identity import Generation, Identity, State
from aioprod.consumer.group.joining import Joined, Joining
from aioprod.consumer.group.leading import Leadership
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.offsets import Committer, Offsets
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.verdicts import Api, Verdict, judge
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError, KafkaError, RebalanceInProgressError
from aioprod.net.connection import Connection
from aioprod.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aioprod.types import ConsumerGroupMetadata

log = logging.getLogger(__name__)

_SEVERAL_LEAVE_FROM = 3
# Of the time for leaving, how much of it may be spent waiting for a rebalance that is under way.
_REBALANCE_SHARE = 0.5


class ClassicMember(GroupMember):
    """See :class:`aioprod.consumer.membership.Membership`.

    It joins in a task of its own. Before that, in the application's call, partitions are given up
    (all of them in an eager group, those of topics that are not read any more in a cooperative
    one); after it, again in a call, the new ones are taken over.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        runtime: ClientRuntime,
        partitions: GroupPartitions,
        on_attention: Callable[[], None],
        on_commit: Callable[[Offsets], None],
    ) -> None:
        super().__init__(config, subscription, runtime, partitions, on_attention, on_commit)
        assignors = make_assignors(config.partition_assignment_strategy)
        self._protocol = rebalance_protocol(assignors)
        self._identity = Identity()
        self._joining = Joining(
            config,
            self._connections,
            self._identity,
            assignors,
            runtime.metadata,
            subscription,
            self._synced,
            self._note,
        )
        self._heartbeats = Heartbeats(
            config, self._connections, self._identity, self, self._keep_topics
        )
        self._join_task: asyncio.Task[Joined | None] | None = None
        self._joined: Joined | None = None  # an assignment that is not taken over yet
        self._leadership: Leadership | None = None
        self._rejoin_reason: str | None = None
        self._prepared = False  # what had to be given up before joining has been
        self._leaving: asyncio.Task[None] | None = None
        self._present = Generation()  # the one that the assignment belongs to

    @property
    def rebalancing(self) -> bool:
        """Whether partitions are on their way."""
        return self._in_group and (
            self._rejoin_reason is not None
            or self._joined is not None
            or self._identity.state is not State.STABLE
        )

    @property
    def _is_lost(self) -> bool:
        return self._identity.is_lost

    # -- what the consumer tells -------------------------------------------------------------------

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """There is a new snapshot of the cluster: new topics for a pattern, and for the leader
        other partitions of a topic.
        """
        super().metadata_changed(snapshot)
        if self._leadership is not None and self._leadership.is_outdated(snapshot):
            self._leadership = None
            self._rejoin("the group's topics have other partitions now")

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this is, in the generation that the present assignment belongs to."""
        return ConsumerGroupMetadata(
            self._connections.group_id,
            self._present.generation_id,
            self._present.member_id,
            self._config.group_instance_id,
        )

    def _topics_changed(self, reason: str) -> None:
        self._rejoin(reason)

    def _keep_topics(self) -> None:
        """Metadata forgets topics that nobody asks for."""
        for topic in (
            self._subscription.topics if self._leadership is None else self._leadership.topics
        ):
            self._metadata.touch(topic)

    def _rejoin(self, reason: str) -> None:
        if self._rejoin_reason is None:
            self._rejoin_reason = reason
            log.info("group %r: joining: %s", self._connections.group_id, reason)
        self._attend()

    # -- in the application's own calls ------------------------------------------------------------

    async def _step(self, deadline: float) -> None:
        while True:
            if self._joined is not None and not self._identity.is_lost:
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
        """Give up what has to be given up before joining; returns whether that is done."""
        self._joined = None
        owned = self._partitions.owned
        if self._identity.is_lost:
            if owned:
                await self._partitions.lose(owned)
            return True
        if self._protocol is RebalanceProtocol.COOPERATIVE:
            owned = frozenset(tp for tp in owned if tp.topic not in self._subscription.topics)
        return not owned or await self._revoke(owned, deadline)

    def _begin_joining(self, reason: str) -> None:
        self._heartbeats.stop()
        self._leadership = None
        self._rejoin_reason = None
        self._identity.begin_joining()
        self._join_task = asyncio.get_running_loop().create_task(
            self._joining.run(reason), name="aioprod-join-group"
        )
        self._join_task.add_done_callback(self._tried_to_join)

    def _end_joining(self, task: asyncio.Task[Joined | None]) -> None:
        """Look at what came of it. Raises what keeps this member from joining."""
        self._join_task = None
        self._prepared = False
        self.problem = None
        if task.cancelled() or task.exception() is not None or task.result() is None:
            # Whatever it still has may be others' by now.
            self._rejoin_reason = self._rejoin_reason or "the last try has failed"
            self._identity.lose(keep_member_id=True)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BrokerError) and error.code is ErrorCode.FENCED_INSTANCE_ID:
            self._fail(error)
        if error is not None:
            raise error
        self._joined = None if task.cancelled() else task.result()

    async def _take_over(self, joined: Joined, deadline: float) -> bool:
        """Have the partitions of an assignment; returns whether that is done."""
        if stray := {tp.topic for tp in joined.partitions} - joined.topics:
            self._joined = None
            self._rejoin(
                "the leader gave partitions of topics that are not subscribed: "
                f"{', '.join(sorted(stray))}"
            )
            return True
        owned = self._partitions.owned
        if revoked := owned - joined.partitions:
            self._rejoin(
                "partitions were taken from this member, others get them in the next rebalance"
            )
            if not await self._revoke(revoked, deadline):
                return False
            if (
                self._joined is not joined or self._identity.is_lost
            ):  # the listener has ended the membership, or the coordinator has
                return True
        self._joined = None
        self._present = joined.generation
        self._leadership = joined.leadership
        tell_assignor(joined.assignor, joined.partitions, joined.generation.generation_id)
        self._auto_commit.reset(asyncio.get_running_loop().time())
        if joined.topics != self._subscription.topics:
            self._rejoin("the subscription has changed")
        elif joined.leadership is not None and joined.leadership.is_outdated(
            self._metadata.snapshot
        ):
            self._rejoin("the group's topics have other partitions now")
        await self._partitions.assign(joined.partitions)
        return True

    # -- what tasks find out -----------------------------------------------------------------------

    def _tried_to_join(self, task: asyncio.Task[Joined | None]) -> None:
        if not task.cancelled():
            task.exception()  # raised in the application's call, if there is one
        if task is self._join_task:
            self._attend()

    def _note(self, problem: KafkaError | None) -> None:
        self.problem = problem

    def _synced(self) -> None:
        self._heartbeats.start()
        self._poll_watch.begin()

    def heartbeat_said(self, verdict: Verdict, code: ErrorCode, generation: Generation) -> None:
        """See :class:`aioprod.consumer.group.heartbeats.HeartbeatEvents`."""
        if verdict is Verdict.REJOIN:
            if self._rejoin_reason is None and self._identity.state is State.STABLE:
                self._rejoin("the group rebalances")
        elif generation == self._identity.generation:
            self._act(verdict, code, "Heartbeat")

    def heartbeats_failed(self, error: KafkaError) -> None:
        """See :class:`aioprod.consumer.group.heartbeats.HeartbeatEvents`. The application hears of
        it once; then the member joins anew.
        """
        self._pending_error = error
        self._lose(keep_member_id=True, reason=str(error))

    def _act(self, verdict: Verdict, code: ErrorCode, what: str) -> None:
        error = BrokerError(code, f"{what} in group {self._connections.group_id!r}")
        if verdict is Verdict.FENCED:
            self._heartbeats.stop()
            self._identity.lose(keep_member_id=False)
            self._fail(error)
        elif verdict in (Verdict.LOST_GENERATION, Verdict.LOST_MEMBER):
            self._lose(keep_member_id=verdict is Verdict.LOST_GENERATION, reason=str(error))
        else:
            self.heartbeats_failed(error)

    def _lose(self, *, keep_member_id: bool, reason: str) -> None:
        self._heartbeats.stop()
        self._identity.lose(keep_member_id=keep_member_id)
        self._prepared = False
        self._leadership = None
        self._rejoin(reason)

    def _poll_overdue(self) -> None:
        if self._identity.state is State.UNJOINED:
            return
        log.warning(
            "group %r: the application has not asked for records for "
            "max_poll_interval_ms=%s, so this consumer leaves the group. Ask more often, "
            "with smaller batches (max_poll_records), or raise the setting",
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        generation = self._identity.generation
        if self._join_task is not None:
            self._abandon_joining()
        self._lose(keep_member_id=False, reason="records were not asked for in time")
        # A static member's session runs out by itself.
        if self._config.group_instance_id is None:
            self._leaving = asyncio.get_running_loop().create_task(
                self._tell_leaving(generation, "consumer poll timeout has expired"),
                name="aioprod-leave-group",
            )

    # -- commits -----------------------------------------------------------------------------------

    def committer(self, before: Committer | None = None) -> Committer:
        """This member in its generation; somebody from outside where partitions were assigned by
        hand.
        """
        if not self._in_group:
            return Committer()
        generation = self._identity.generation
        now = Committer(
            generation.generation_id, generation.member_id, self._config.group_instance_id
        )
        # In an eager group what was read belongs to the generation before, until the new assignment
        # is taken over.
        void = self._joined is not None and self._protocol is RebalanceProtocol.EAGER
        if self._identity.state is State.STABLE and before in (None, now) and not void:
            return now
        raise self._not_now(rebalancing=void)

    def commit_refused(
        self, verdict: Verdict, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """What a refused commit means for the member, and the error for whoever commits."""
        if committer.generation_id < 0:
            return CommitFailedError(
                f"group {self._connections.group_id!r} has members, and this consumer, which "
                f"uses assign(), is none of them ({code.name})"
            )
        generation = self._identity.generation
        if (committer.generation_id, committer.member_id) != generation[:2]:
            return self._not_now()
        if verdict is Verdict.REJOIN:
            self._rejoin("the group rebalances")
            return self._not_now(rebalancing=True)
        self._act(verdict, code, "OffsetCommit")
        return self.failure or self._not_now()

    def _not_now(self, *, rebalancing: bool = False) -> KafkaError:
        if rebalancing or self._identity.joining:
            return RebalanceInProgressError(
                f"group {self._connections.group_id!r} rebalances: offsets can't be "
                "committed now; ask for records, then commit again"
            )
        return CommitFailedError(
            f"group {self._connections.group_id!r} has gone on without this member, and "
            "others have its partitions: offsets were not committed. "
            "Mostly records were not asked for within "
            f"max_poll_interval_ms={self._config.max_poll_interval_ms}"
        )

    # -- the end -----------------------------------------------------------------------------------

    async def _give_up_partitions(self, deadline: float) -> None:
        await self._end_rebalance(deadline)
        await super()._give_up_partitions(deadline)

    async def _end_rebalance(self, deadline: float) -> None:
        """Have a place in the group from which partitions can be given up.

        A cooperative member reads on while the group rebalances. What it has read since can be
        committed only when that is over: before, the coordinator may be a generation further at any
        moment, and refuse it.
        """
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
        if task.cancelled() or task.exception() is not None or task.result() is None:
            self._identity.lose(keep_member_id=True)

    def _abandon_joining(self) -> None:
        assert self._join_task is not None
        task, self._join_task = self._join_task, None
        task.cancel()
        self._connections.hang_up()
        self._identity.give_up_joining()

    async def _leave(self, *, tell: bool) -> None:
        generation = self._identity.generation
        self._stop_tasks()
        self._identity.lose(keep_member_id=not tell)
        self._present = Generation()
        self._joined = self._leadership = self._rejoin_reason = None
        self._prepared = False
        if tell:
            await self._tell_leaving(generation, "the consumer is being closed")

    async def _tell_leaving(self, generation: Generation, reason: str) -> None:
        """LeaveGroup; where that can't be had the end of the session does the same, later."""
        if not generation.member_id:
            return
        member = MemberIdentity(generation.member_id, self._config.group_instance_id, reason)

        def prepare(connection: Connection) -> tuple[LeaveGroupRequest, int]:
            version = connection.pick_version(LeaveGroupRequest)
            if version < _SEVERAL_LEAVE_FROM:
                return LeaveGroupRequest(self._connections.group_id, generation.member_id), version
            return LeaveGroupRequest(self._connections.group_id, members=[member]), version

        try:
            reply = await self._connections.ask(prepare)
            if judge(Api.HEARTBEAT, ErrorCode.of(reply.error_code)) is Verdict.NEW_COORDINATOR:
                self._connections.forget_coordinator()
                await self._connections.ask(prepare)
        except KafkaError as error:
            log.info("group %r: leaving could not be told: %s", self._connections.group_id, error)

    def _stop_tasks(self) -> None:
        self._heartbeats.stop()
        tasks, self._join_task, self._leaving = (self._join_task, self._leaving), None, None
        for task in tasks:
            if task is not None:
                task.cancel()

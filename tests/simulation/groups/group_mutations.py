"""Known bugs of consumers in groups, each a patch that plants one. The simulation must find each of
them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from typing import Any

from aioprod.consumer.background import Background
from aioprod.consumer.calls.records import RecordCalls
from aioprod.consumer.fetch_sessions import FetchSession
from aioprod.consumer.group import error_actions, heartbeats, leading
from aioprod.consumer.group.assignors import CooperativeStickyAssignor, MemberSubscription
from aioprod.consumer.group.auto_commit import AutoCommit
from aioprod.consumer.group.classic import ClassicMember
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction, GroupApi
from aioprod.consumer.group.heartbeats import Heartbeats
from aioprod.consumer.group.offsets import GroupOffsets
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.reconciling import ReconcilingMember
from aioprod.consumer.group.session import MemberEpochs
from aioprod.consumer.positions import PositionFinder
from aioprod.consumer.records import Records
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.types import OffsetAndMetadata, TopicPartition
from tests.simulation.planting import Mutation, Patch, into

GROUP_MUTATIONS: list[Mutation] = []
EPOCH_MUTATIONS: list[Mutation] = []  # found in groups of the consumer protocol (KIP-848)
mutation = into(GROUP_MUTATIONS)
epoch_mutation = into(EPOCH_MUTATIONS)


# -- positions -------------------------------------------------------------------------------------


@mutation("committed-unread", found_by=2)
def the_next_record_is_committed(patch: Patch) -> None:
    original = SubscriptionState.consumed

    def consumed(self: SubscriptionState, partitions: Any = None) -> dict[TopicPartition, Any]:
        return {
            tp: OffsetAndMetadata(given.offset + 1)
            for tp, given in original(self, partitions).items()
        }

    patch.setattr(SubscriptionState, "consumed", consumed)


@mutation("committed-unfinished", found_by=2)
def records_are_committed_before_the_next_call(patch: Patch) -> None:
    original = RecordCalls.getmany

    async def getmany(self: RecordCalls, *arguments: Any) -> Records:
        records = await original(self, *arguments)
        member: Any = self._membership
        if records and member._auto_commit.enabled:
            task = asyncio.ensure_future(_commit_soon(member, self._subscription.consumed()))
            task.add_done_callback(lambda _: None)
        return records

    patch.setattr(RecordCalls, "getmany", getmany)


async def _commit_soon(member: Any, offsets: Any) -> None:
    await asyncio.sleep(0.001)
    with contextlib.suppress(KafkaError):
        await member.commit(offsets, asyncio.get_running_loop().time() + 0.1)


@mutation("nonmonotonic-poll", found_by=2)
def the_committed_offset_is_not_looked_up(patch: Patch) -> None:
    def initialize(self: PositionFinder, states: Any, now: float) -> None:
        self._without_committed(states, now)

    patch.setattr(PositionFinder, "_initialize", initialize)


@mutation("poll-skip", "committed-unread", found_by=2)
def a_cancelled_call_loses_its_records(patch: Patch) -> None:
    original = RecordCalls.getmany

    async def getmany(self: RecordCalls, *arguments: Any) -> Records:
        records = await original(self, *arguments)
        await asyncio.sleep(0.001 if records else 0)
        return records

    patch.setattr(RecordCalls, "getmany", getmany)


@mutation("lost-commit", found_by=2)
def a_commit_is_confirmed_before_it_is_sent(patch: Patch) -> None:
    original = GroupOffsets.commit

    async def commit(self: GroupOffsets, offsets: Any, deadline: float) -> None:
        task = asyncio.ensure_future(original(self, offsets, deadline))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    patch.setattr(GroupOffsets, "commit", commit)


# -- partitions ------------------------------------------------------------------------------------


@mutation("two-owners", "unbalanced-callbacks", found_by=2)
def an_eager_member_keeps_its_partitions(patch: Patch) -> None:
    async def prepare(self: ClassicMember, deadline: float) -> bool:
        return True

    patch.setattr(ClassicMember, "_prepare", prepare)


@mutation("two-owners", found_by=3)
def the_leader_moves_partitions_at_once(patch: Patch) -> None:
    """A cooperative assignor must not, before their owner has revoked them."""
    original = CooperativeStickyAssignor.assign

    def assign(
        self: CooperativeStickyAssignor, topics: Any, members: Sequence[MemberSubscription]
    ) -> Any:
        shares = original(self, topics, members)
        given = {tp for share in shares.values() for tp in share}
        for topic, count in topics.items():
            for number in range(count):
                tp = TopicPartition(topic, number)
                takers = [each.member_id for each in members if topic in each.topics]
                if tp not in given and takers:
                    least = min(takers, key=lambda member_id: len(shares.get(member_id, ())))
                    shares = {**shares, least: [*shares.get(least, ()), tp]}
        return shares

    patch.setattr(CooperativeStickyAssignor, "assign", assign)


@mutation("double-assignment", found_by=3)
def the_leader_assigns_a_partition_twice(patch: Patch) -> None:
    original = CooperativeStickyAssignor.assign

    def assign(
        self: CooperativeStickyAssignor, topics: Any, members: Sequence[MemberSubscription]
    ) -> Any:
        shares = original(self, topics, members)
        given = [tp for share in shares.values() for tp in share]
        return {**shares, members[0].member_id: given}

    patch.setattr(CooperativeStickyAssignor, "assign", assign)
    patch.setattr(leading, "_check", lambda *arguments: None)


@mutation("unbalanced-callbacks", found_by=3)
def lost_partitions_are_dropped_silently(patch: Patch) -> None:
    async def lose(self: GroupPartitions, partitions: Collection[TopicPartition]) -> None:
        await self._drop("lost", partitions, None)

    patch.setattr(GroupPartitions, "lose", lose)


@mutation("unowned-read", "poll-skip", "nonmonotonic-poll")
def records_of_revoked_partitions_are_returned(patch: Patch) -> None:
    original = SubscriptionState._replace

    def replace(self: SubscriptionState, partitions: Any, **settings: Any) -> None:
        original(self, [*partitions, *self.partitions], **settings)

    patch.setattr(SubscriptionState, "_replace", replace)


# -- membership ------------------------------------------------------------------------------------


@mutation("not-live", "wrong-assignment", "troubled")
def a_member_does_not_learn_of_rebalances(patch: Patch) -> None:
    patch.setattr(ClassicMember, "heartbeat_said", lambda *arguments: None)


@mutation("not-live", "troubled", found_by=3)
def heartbeats_come_too_seldom(patch: Patch) -> None:
    patch.setattr(heartbeats, "_PER_POLL_INTERVAL", 1e-6)


@mutation("not-live", "troubled", found_by=12)
def the_former_coordinator_is_asked_forever(patch: Patch) -> None:
    patch.setattr(GroupConnections, "forget_coordinator", lambda self: None)


@mutation("not-left", "not-live", found_by=2)
def a_member_does_not_leave(patch: Patch) -> None:
    async def send_leave(self: ClassicMember, *arguments: Any) -> None:
        pass

    patch.setattr(ClassicMember, "_send_leave", send_leave)


@mutation("not-left", found_by=8)
def a_member_that_commits_does_not_leave(patch: Patch) -> None:
    async def finish(self: Background, deadline: float, timeout: asyncio.Timeout) -> None:
        self._ready.take_back()
        await self._commits.finish(deadline)
        with self._guard.closing_call(timeout):
            await self._membership.close(deadline, leave=True)

    patch.setattr(Background, "finish", finish)


@mutation("leak", found_by=3)
def heartbeats_never_end(patch: Patch) -> None:
    def stop(self: Heartbeats) -> None:
        if self._task is not None:
            self._task.remove_done_callback(self._ended)
            self._task = None

    patch.setattr(Heartbeats, "stop", stop)


@mutation("troubled", found_by=2)
def the_end_of_a_partition_that_comes_back_is_unknown(patch: Patch) -> None:
    original = FetchSession.begin
    patch.setattr(FetchSession, "begin", lambda self, wanted, unanswered=(): original(self, wanted))


# -- the consumer protocol -------------------------------------------------------------------------


@epoch_mutation("two-owners", found_by=8)
def partitions_are_given_up_before_the_listener_has_ended(patch: Patch) -> None:
    original = MemberEpochs.request

    def request(self: MemberEpochs, group_id: str, wishes: Any, owned: Any) -> Any:
        return original(self, group_id, wishes, frozenset(owned) & (self.target or frozenset()))

    patch.setattr(MemberEpochs, "request", request)


@epoch_mutation("unbalanced-callbacks", found_by=2)
def the_target_is_adopted_without_a_revocation(patch: Patch) -> None:
    async def revoke(self: ReconcilingMember, *arguments: Any) -> bool:
        return True

    patch.setattr(ReconcilingMember, "_revoke", revoke)


@epoch_mutation("poll-failed", "two-owners", "unbalanced-callbacks", found_by=2)
def a_member_that_was_put_out_keeps_its_partitions(patch: Patch) -> None:
    original = ReconcilingMember._put_out

    def put_out(self: ReconcilingMember) -> None:
        original(self)
        self._lost = False

    patch.setattr(ReconcilingMember, "_put_out", put_out)


@epoch_mutation("not-live", "troubled", "wrong-assignment", found_by=10)
def a_fenced_epoch_is_sent_again(patch: Patch) -> None:
    rules = error_actions._RULES[GroupApi.CONSUMER_HEARTBEAT]
    patch.setitem(rules, ErrorCode.FENCED_MEMBER_EPOCH, ErrorAction.RETRY)
    patch.setitem(rules, ErrorCode.UNKNOWN_MEMBER_ID, ErrorAction.RETRY)


@epoch_mutation("needless-duplicate", found_by=76)
def the_last_commit_is_that_of_an_earlier_revocation(patch: Patch) -> None:
    original = AutoCommit.commit_before_giving_up

    async def commit(self: AutoCommit, partitions: Any, deadline: float, limit_s: float) -> bool:
        if self._last is not None and self._last.task.done():
            self._last = None
            return True
        return await original(self, partitions, deadline, limit_s)

    patch.setattr(AutoCommit, "commit_before_giving_up", commit)


@epoch_mutation("not-left", "not-live", found_by=2)
def a_member_with_an_epoch_does_not_leave(patch: Patch) -> None:
    async def send_leave(self: ReconcilingMember) -> None:
        pass

    patch.setattr(ReconcilingMember, "_send_leave", send_leave)


@epoch_mutation("leak", "hang", found_by=1)
def heartbeats_with_an_epoch_never_end(patch: Patch) -> None:
    def stop(self: ReconcilingMember) -> None:
        self._heartbeats = None
        self._poll_watch.heartbeats_stopped()

    patch.setattr(ReconcilingMember, "_stop_heartbeats", stop)

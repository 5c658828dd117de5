"""A group member with ``group_protocol="consumer"`` (KIP-848): the coordinator assigns partitions,
and members reconcile their partitions with the assignment.

A heartbeat sends the partitions of this member, and its response has the assignment. The member
first revokes partitions; when a heartbeat has reported that, the coordinator assigns them to
others.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Callable

from aioprod.cluster.metadata import check_topic_ids
from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.epoch_heartbeats import EpochHeartbeats
from aioprod.consumer.group.error_actions import (
    EPOCH_GROUPS_NEED,
    ErrorAction,
    GroupApi,
    action_for,
    refusal_of,
)
from aioprod.consumer.group.leaving import send_leave
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.offsets import Committer, OnCommit
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.session import JOIN_EPOCH, MemberEpochs, TopicIds, Wishes
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, CommitFailedError, KafkaError, UnsupportedVersionError
from aioprod.logs import Logger, get_logger
from aioprod.net.connection import Connection
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aioprod.running_loop import start_task
from aioprod.types import ConsumerGroupMetadata, SubscriptionPattern, TopicPartition

log: Logger = get_logger(__name__)

_REGEX_FROM = 1


class ReconcilingMember(GroupMember):
    """See :class:`aioprod.consumer.membership.Membership`."""

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
        # 16 random bytes in base 64, as in Java.
        member_id = base64.urlsafe_b64encode(runtime.rng.randbytes(16)).decode().rstrip("=")
        self._session = MemberEpochs(config, member_id)
        self._topic_ids = TopicIds()
        self._heartbeats: asyncio.Task[None] | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._lost = False  # the coordinator has removed the member: others may have its partitions
        self._beats = EpochHeartbeats(
            self._connections,
            self,
            self._poll_watch.heartbeat_sent,
            self._poll_watch.heartbeat_ended,
        )

    @property
    def rebalancing(self) -> bool:
        """True if the group rebalances."""
        return self._in_group and (
            self._session.epoch <= JOIN_EPOCH
            or self._lost
            or self._target() != self._partitions.owned
        )

    @property
    def _is_lost(self) -> bool:
        return self._lost

    @property
    def _pattern_at_broker(self) -> bool:
        return isinstance(self._subscription.pattern, SubscriptionPattern)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member in the current epoch."""
        return ConsumerGroupMetadata(
            self._connections.group_id,
            self._session.epoch or -1,
            self._session.member_id,
            self._config.group_instance_id,
        )

    # -- events from the consumer ------------------------------------------------------------------

    def _topics_changed(self, reason: str) -> None:
        if self._heartbeats is not None:
            self._beats.due.set()
        else:
            self._attend()

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Handle a new snapshot, which may have the names of assigned topic ids."""
        self._topic_ids.learn({name: info.topic_id for name, info in snapshot.topics.items()})
        super().metadata_changed(snapshot)
        if self._heartbeats is not None and self._target() not in (None, self._partitions.owned):
            self._attend()

    # -- inside calls of the application -----------------------------------------------------------

    async def _step(self, deadline: float) -> None:
        if self._lost:
            owned = self._partitions.owned
            if owned:
                await self._partitions.lose(owned)
            self._lost = False
        if self._heartbeats is None:
            if self._topics_known:
                self._join()
            return
        target = self._target()
        owned = self._partitions.owned
        if target is None:
            return
        if target == owned:
            self._partitions.rebalance_ended()
            return
        self._partitions.rebalance_began()
        revoked = owned - target
        if revoked and not await self._revoke(revoked, deadline):
            self.needs_attention = True
            return
        if self._session.target is None:  # the listener or the coordinator has ended the membership
            return
        self._auto_commit.reset(asyncio.get_running_loop().time())
        try:
            if target != self._partitions.owned:
                await self._partitions.assign(target)
        finally:
            self._partitions.rebalance_ended()
            self._beats.due.set()  # the coordinator waits for the acknowledgment

    def _target(self) -> frozenset[TopicPartition] | None:
        """Return the assigned partitions whose topic names are known."""
        if self._session.target is None:
            return None
        named = (
            (self._topic_ids.name(topic_id), number) for topic_id, number in self._session.target
        )
        return frozenset(TopicPartition(name, number) for name, number in named if name is not None)

    # -- heartbeats --------------------------------------------------------------------------------

    def _join(self) -> None:
        log.info(
            "%s: group %r: joining as member %s",
            self._config.client_id,
            self._connections.group_id,
            self._session.member_id,
        )
        self._session.begin()
        self._heartbeats = start_task(self._beats.run(), name="aioprod-heartbeats")
        self._heartbeats.add_done_callback(self._ended)
        self._poll_watch.begin()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is not self._heartbeats:
            return
        self._heartbeats = None
        error = (
            KafkaError("the consumer's heartbeat task was cancelled from outside")
            if task.cancelled()
            else task.exception()
        )
        if error is not None:
            self._pending_error = error
        self._put_out()

    def _put_out(self) -> None:
        """Note that the coordinator has removed this member."""
        self._partitions.rebalance_ended(KafkaError("the coordinator has removed this member"))
        self._stop_heartbeats()
        self._session.begin()
        self._lost = True
        self._attend()

    def prepare(self, connection: Connection) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        try:
            version = connection.pick_version(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{error}: {EPOCH_GROUPS_NEED}") from error
        check_topic_ids(connection, 'group_protocol="consumer"')
        pattern = self._subscription.pattern
        regex = pattern.pattern if isinstance(pattern, SubscriptionPattern) else None
        if regex is not None and version < _REGEX_FROM:
            raise UnsupportedVersionError(
                f"{connection.address} does not support SubscriptionPattern: Kafka 4.0 is needed"
            )
        wishes = Wishes(self._subscription.topics if regex is None else frozenset(), regex)
        owned = self._topic_ids.with_ids(self._partitions.owned)
        return self._session.request(self._connections.group_id, wishes, owned), version

    def unanswered(self, error: KafkaError) -> None:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        self._problem = error
        self._session.unanswered()

    def accept(self, reply: ConsumerGroupHeartbeatResponse) -> ErrorAction:
        """See :class:`aioprod.consumer.group.epoch_heartbeats.Heartbeater`."""
        code = ErrorCode.of(reply.error_code)
        api = GroupApi.CONSUMER_HEARTBEAT
        action = action_for(api, code)
        if action is ErrorAction.DONE:
            self._problem = None
            self._beats.set_interval(reply.heartbeat_interval_ms)
            if self._session.answered(reply):
                self._partitions.rebalance_began()
                self._look_up_names()
                self._attend()
            return action
        group = f"group {self._connections.group_id!r}"
        error = refusal_of(api, code, group, reply.error_message, self._connections.principal)
        self._problem = error
        self._session.unanswered()
        if action is ErrorAction.FENCED:
            self._fail(error)
        if action in (ErrorAction.FENCED, ErrorAction.REFUSED):
            raise error
        return action

    # -- names of topics ---------------------------------------------------------------------------

    def _look_up_names(self) -> None:
        """Look up the names of topics with a known id only."""
        assert self._session.target is not None
        unknown = {
            topic_id
            for topic_id, _ in self._session.target
            if self._topic_ids.name(topic_id) is None
        }
        if unknown and (self._lookup is None or self._lookup.done()):
            self._lookup = start_task(self._learn_names(unknown), name="aioprod-topic-names")

    async def _learn_names(self, unknown: set[uuid.UUID]) -> None:
        failures = 0
        while unknown := {
            topic_id for topic_id in unknown if self._topic_ids.name(topic_id) is None
        }:
            await asyncio.sleep(self._connections.backoff.seconds(failures))
            failures += 1
            try:
                names = await self._connections.topic_names(unknown)
            except KafkaError as error:
                self._problem = error
                continue
            self._topic_ids.learn(names)
            unnamed = ", ".join(sorted(map(str, unknown.difference(names.values()))))
            if unnamed:
                self._problem = BrokerError(
                    ErrorCode.UNKNOWN_TOPIC_ID,
                    f"group {self._connections.group_id!r}: assigned topics {unnamed}",
                )
            for name in names:
                self._metadata.touch(name)
        self._attend()

    # -- leaving -----------------------------------------------------------------------------------

    def _poll_overdue(self) -> None:
        if self._heartbeats is None:
            return
        log.warning(
            "%s: group %r: no poll for max_poll_interval_ms=%s; the consumer leaves the group. "
            "Process fewer records between polls (max_poll_records), or increase "
            "max_poll_interval_ms",
            self._config.client_id,
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        self._put_out()
        self._leaving = start_task(self._send_leave(), name="aioprod-leave-group")

    async def _leave(self, *, notify: bool) -> None:
        joined = self._heartbeats is not None
        self._stop_tasks()
        # Static members send it, too: the coordinator keeps their partitions until the session
        # times out.
        if joined and (notify or self._config.group_instance_id is not None):
            await self._send_leave()
        self._session.begin()
        self._lost = False

    async def _send_leave(self) -> None:
        group_id = self._connections.group_id
        last = self._session.leave(group_id)
        await send_leave(
            self._connections,
            GroupApi.CONSUMER_HEARTBEAT,
            lambda connection: (last, connection.pick_version(ConsumerGroupHeartbeatRequest)),
            f"group {group_id!r}",
        )

    def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
        self._poll_watch.heartbeats_stopped()
        if task is not None:
            task.cancel()

    def _stop_tasks(self) -> None:
        self._stop_heartbeats()
        tasks, self._lookup, self._leaving = (self._lookup, self._leaving), None, None
        for task in tasks:
            if task is not None:
                task.cancel()

    # -- commits -----------------------------------------------------------------------------------

    def committer(self, before: Committer | None = None) -> Committer:
        """Return this member in its present epoch: it keeps its partitions through all epochs of
        a session.
        """
        if not self._in_group and before in (None, Committer()):
            return Committer()
        is_of_former_session = (
            before is not None and before.generation_id < self._session.first_epoch
        )
        if not self._in_group or self._session.epoch <= JOIN_EPOCH or is_of_former_session:
            raise self._not_a_member()
        return Committer(
            self._session.epoch, self._session.member_id, self._config.group_instance_id
        )

    def commit_refused(
        self, action: ErrorAction, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """Handle the refusal of a commit, and return the error for the caller."""
        if action is ErrorAction.STALE_EPOCH and committer.member_id:
            self._beats.due.set()  # the response has the current epoch
            return None
        return self._not_a_member()

    def _not_a_member(self) -> CommitFailedError:
        return CommitFailedError(
            f"group {self._connections.group_id!r}: this consumer is not a member now: offsets "
            "were not committed, and other members may have its partitions. The usual cause is no "
            f"poll within max_poll_interval_ms={self._config.max_poll_interval_ms}"
        )

"""A member of a group of the new protocol (KIP-848): the coordinator says what each member is to
have, and members work towards that.

Heartbeats tell the coordinator what this member has, and bring what it is to have. What it has to
give up goes first; when the coordinator has heard of that, somebody else gets it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import uuid
from collections.abc import Callable

from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.member import GroupMember
from aioprod.consumer.group.offsets import Committer, Offsets
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.session import JOIN_EPOCH, Session, TopicIds, Wishes
from aioprod.consumer.group.verdicts import Api, Verdict, judge
from aioprod.consumer.subscription import SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import (
    AuthenticationError,
    BrokerError,
    CommitFailedError,
    KafkaError,
    UnsupportedVersionError,
)
from aioprod.net.bounds import MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS, bounded
from aioprod.net.connection import Connection
from aioprod.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from aioprod.types import ConsumerGroupMetadata, SubscriptionPattern, TopicPartition

log = logging.getLogger(__name__)

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
        on_commit: Callable[[Offsets], None],
    ) -> None:
        super().__init__(config, subscription, runtime, partitions, on_attention, on_commit)
        # As Java makes them: sixteen random bytes in base 64.
        member_id = base64.urlsafe_b64encode(runtime.rng.randbytes(16)).decode().rstrip("=")
        self._session = Session(config, member_id)
        self._topic_ids = TopicIds()
        self._heartbeats: asyncio.Task[None] | None = None
        self._due = asyncio.Event()  # the next heartbeat does not wait
        self._lookup: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._lost = False  # the member was put out: what it has is others'
        self._interval_s = 5.0  # the broker says how long
        self._put_outs = 0  # since the last heartbeat that was taken

    @property
    def rebalancing(self) -> bool:
        """Whether partitions are on their way."""
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
        """Who this is, in the present epoch."""
        return ConsumerGroupMetadata(
            self._connections.group_id,
            self._session.epoch or -1,
            self._session.member_id,
            self._config.group_instance_id,
        )

    # -- what the consumer tells -------------------------------------------------------------------

    def _topics_changed(self, reason: str) -> None:
        if self._heartbeats is not None:
            self._due.set()
        else:
            self._attend()

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """There is a new snapshot of the cluster: names of topics whose ids the coordinator has
        told may be in it.
        """
        self._topic_ids.learn({name: info.topic_id for name, info in snapshot.topics.items()})
        super().metadata_changed(snapshot)
        if self._heartbeats is not None and self._target() not in (None, self._partitions.owned):
            self._attend()

    # -- in the application's own calls ------------------------------------------------------------

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
        if target is None or target == owned:
            return
        revoked = owned - target
        if revoked and not await self._revoke(revoked, deadline):
            self.needs_attention = True
            return
        if (
            self._session.target is None
        ):  # the listener has ended the membership, or the coordinator has
            return
        self._auto_commit.reset(asyncio.get_running_loop().time())
        try:
            if target != self._partitions.owned:
                await self._partitions.assign(target)
        finally:
            self._due.set()  # the coordinator waits to hear of it

    def _target(self) -> frozenset[TopicPartition] | None:
        """What this member is to have, as far as the topics' names are known."""
        if self._session.target is None:
            return None
        named = (
            (self._topic_ids.name(topic_id), number) for topic_id, number in self._session.target
        )
        return frozenset(TopicPartition(name, number) for name, number in named if name is not None)

    # -- heartbeats --------------------------------------------------------------------------------

    def _join(self) -> None:
        log.info(
            "group %r: joining as member %s", self._connections.group_id, self._session.member_id
        )
        self._session.begin()
        self._heartbeats = asyncio.get_running_loop().create_task(
            self._beat(), name="aioprod-heartbeats"
        )
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
        """The coordinator does not count this member in any more."""
        self._stop_heartbeats()
        self._session.begin()
        self._lost = True
        self._attend()

    async def _beat(self) -> None:
        """One heartbeat after the other, until the member is put out. Raises what keeps it from
        being a member.
        """
        failures = 0
        # After the first time the member joins again at once; a coordinator that puts it out again
        # and again is not flooded.
        await asyncio.sleep(self._connections.backoff.seconds(self._put_outs - 1))
        while True:
            self._due.clear()
            try:
                reply = await self._connections.ask(self._prepare)
            except (AuthenticationError, UnsupportedVersionError):
                raise
            except KafkaError as error:
                if (
                    isinstance(error, BrokerError)
                    and judge(Api.FIND_COORDINATOR, error.code) is Verdict.REFUSED
                ):
                    raise
                verdict, self.problem = Verdict.RETRY, error
                self._session.unanswered()
            else:
                verdict = self._accept(reply)
            if verdict in (Verdict.LOST_GENERATION, Verdict.LOST_MEMBER):
                self._put_outs += 1
                return
            if verdict is Verdict.NEW_COORDINATOR:
                self._connections.forget_coordinator()
            failures = 0 if verdict is Verdict.DONE else failures + 1
            self._put_outs = 0 if verdict is Verdict.DONE else self._put_outs
            if failures:
                await asyncio.sleep(self._connections.backoff.seconds(failures))
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._due.wait()

    def _prepare(self, connection: Connection) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        try:
            version = connection.pick_version(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(
                f'{error}: group_protocol="consumer" needs Kafka 4.0, or 3.7 with it switched on'
            ) from error
        pattern = self._subscription.pattern
        regex = pattern.pattern if isinstance(pattern, SubscriptionPattern) else None
        if regex is not None and version < _REGEX_FROM:
            raise UnsupportedVersionError(
                f"{connection.address} is too old for a SubscriptionPattern: Kafka 4.0 is needed"
            )
        wishes = Wishes(self._subscription.topics if regex is None else frozenset(), regex)
        owned = self._topic_ids.with_ids(self._partitions.owned)
        return self._session.request(self._connections.group_id, wishes, owned), version

    def _accept(self, reply: ConsumerGroupHeartbeatResponse) -> Verdict:
        """Take over an answer. Raises what keeps this consumer from being a member."""
        code = ErrorCode.of(reply.error_code)
        verdict = judge(Api.CONSUMER_HEARTBEAT, code)
        if verdict is Verdict.DONE:
            self.problem = None
            self._interval_s = bounded(
                reply.heartbeat_interval_ms, MIN_HEARTBEAT_MS, MAX_HEARTBEAT_MS
            )
            if self._session.answered(reply):
                self._look_up_names()
                self._attend()
            return verdict
        text = f"group {self._connections.group_id!r}: ConsumerGroupHeartbeat" + (
            f" ({reply.error_message})" if reply.error_message else ""
        )
        error = BrokerError(code, text)
        self.problem = error
        self._session.unanswered()
        if verdict is Verdict.FENCED:
            self._fail(error)
        if verdict in (Verdict.FENCED, Verdict.REFUSED):
            raise error
        return verdict

    # -- names of topics ---------------------------------------------------------------------------

    def _look_up_names(self) -> None:
        """Ask for the names of topics of which only the ids are known."""
        assert self._session.target is not None
        unknown = {
            topic_id
            for topic_id, _ in self._session.target
            if self._topic_ids.name(topic_id) is None
        }
        if unknown and (self._lookup is None or self._lookup.done()):
            self._lookup = asyncio.get_running_loop().create_task(
                self._learn_names(unknown), name="aioprod-topic-names"
            )

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
                self.problem = error
                continue
            self._topic_ids.learn(names)
            for name in names:
                self._metadata.touch(name)
        self._attend()

    # -- the end of membership ---------------------------------------------------------------------

    def _poll_overdue(self) -> None:
        if self._heartbeats is None:
            return
        log.warning(
            "group %r: the application has not asked for records for "
            "max_poll_interval_ms=%s, so this consumer leaves the group. Ask more often, "
            "with smaller batches (max_poll_records), or raise the setting",
            self._connections.group_id,
            self._config.max_poll_interval_ms,
        )
        self._put_out()
        self._leaving = asyncio.get_running_loop().create_task(
            self._tell_leaving(), name="aioprod-leave-group"
        )

    async def _leave(self, *, tell: bool) -> None:
        joined = self._heartbeats is not None
        self._stop_tasks()
        # Static members tell, too: the coordinator keeps their partitions for them, until their
        # session is over.
        if joined and (tell or self._config.group_instance_id is not None):
            await self._tell_leaving()
        self._session.begin()
        self._lost = False

    async def _tell_leaving(self) -> None:
        request = self._session.leave(self._connections.group_id)
        try:
            await self._connections.ask(
                lambda connection: (request, connection.pick_version(ConsumerGroupHeartbeatRequest))
            )
        except KafkaError as error:
            log.info("group %r: leaving could not be told: %s", self._connections.group_id, error)

    def _stop_heartbeats(self) -> None:
        task, self._heartbeats = self._heartbeats, None
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
        """This member in its present epoch: as long as it is the same session, it has its
        partitions in each of them.
        """
        if not self._in_group:
            return Committer()
        if self._session.epoch <= JOIN_EPOCH:
            raise self._not_a_member()
        return Committer(
            self._session.epoch, self._session.member_id, self._config.group_instance_id
        )

    def commit_refused(
        self, verdict: Verdict, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """What a refused commit means for the member, and the error for whoever commits."""
        if verdict is Verdict.STALE_EPOCH and committer.member_id:
            self._due.set()  # brings the present one
            return None
        return self._not_a_member()

    def _not_a_member(self) -> CommitFailedError:
        return CommitFailedError(
            f"group {self._connections.group_id!r}: this consumer is no member now, and "
            "others may have its partitions: offsets were not committed. "
            "Mostly records were not asked for within "
            f"max_poll_interval_ms={self._config.max_poll_interval_ms}"
        )

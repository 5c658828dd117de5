"""The common base of classic and KIP-848 members."""

from __future__ import annotations

import asyncio
import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from aioprod.closing import close_in_turn
from aioprod.cluster.runtime import ClientRuntime
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.auto_commit import AutoCommit
from aioprod.consumer.group.connections import GroupConnections
from aioprod.consumer.group.error_actions import ErrorAction
from aioprod.consumer.group.leaving import LEAVE_LIMIT_S
from aioprod.consumer.group.offsets import Committer, GroupOffsets, Offsets, OnCommit
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.group.poll_watch import PollWatch
from aioprod.consumer.subscription import Mode, SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import KafkaError
from aioprod.logs import Logger, get_logger
from aioprod.running_loop import start_task
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_CLOSE_LIMIT_S = 1.0
# The timeout of LeaveGroup if the deadline has passed.
_LEAVE_GRACE_S = 0.2


class GroupMember(ABC):
    """Implements :class:`aioprod.consumer.membership.Membership`, which documents the calls.

    Partitions change only in :meth:`ensure_active`, :meth:`unsubscribe` and :meth:`close`. Tasks
    only note what these have to do.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        runtime: ClientRuntime,
        partitions: GroupPartitions,
        on_attention: Callable[[], None],
        on_commit: OnCommit,
    ) -> None:
        self.needs_attention: bool = False
        self._on_attention = on_attention
        self._problem: KafkaError | None = None
        self.failure: KafkaError | None = None
        self._config = config
        self._subscription = subscription
        self._metadata = runtime.metadata
        assert config.group_id is not None
        self._connections = GroupConnections(config, config.group_id, runtime)
        self._offsets = GroupOffsets(self._connections, self, self._metadata, on_commit)
        self._auto_commit = AutoCommit(config, subscription, self._offsets)
        self._partitions = partitions
        self._poll_watch = PollWatch(
            config.max_poll_interval_ms / 1000,
            self._poll_overdue,
            self._attend,
            runtime.last_reply_at,
        )
        self._started = False
        self._inside = False  # a listener may call the consumer, which calls this object again
        self._pending_error: BaseException | None = (
            None  # raised once, by the next call of the application
        )
        self._pattern_version = -1  # metadata after this version have all topics

    @property
    def problem(self) -> KafkaError | None:
        """The reason why the group can't be reached or joined now, even while the coordinator is
        looked up.
        """
        return self._problem or self._connections.trouble

    # -- overridden by each kind of member ---------------------------------------------------------

    @property
    @abstractmethod
    def rebalancing(self) -> bool:
        """True if the group rebalances."""

    @property
    @abstractmethod
    def _is_lost(self) -> bool:
        """True if other members may have this member's partitions."""

    @abstractmethod
    async def _step(self, deadline: float) -> None:
        """Do the due work, inside a call of the application."""

    @abstractmethod
    def _topics_changed(self, reason: str) -> None:
        """Handle a change of the subscribed topics."""

    @abstractmethod
    async def _leave(self, *, notify: bool) -> None:
        """End the membership and its tasks; with ``notify`` send LeaveGroup."""

    @abstractmethod
    def _stop_tasks(self) -> None:
        """End all tasks at once."""

    @abstractmethod
    def _poll_overdue(self) -> None:
        """Leave the group: the application has not polled for ``max_poll_interval_ms``."""

    @abstractmethod
    def committer(self, before: Committer | None = None) -> Committer:
        """See :class:`aioprod.consumer.group.offsets.Standing`."""

    @abstractmethod
    def commit_refused(
        self, action: ErrorAction, code: ErrorCode, committer: Committer
    ) -> KafkaError | None:
        """See :class:`aioprod.consumer.group.offsets.Standing`."""

    @abstractmethod
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member."""

    # -- events from the consumer ------------------------------------------------------------------

    def start(self) -> None:
        """Start; must be called in the event loop."""
        self._started = True
        if self._subscription.mode is not Mode.NONE:
            self.subscription_changed()

    def polled(self, now: float) -> bool:
        """Note that the application polls; return whether it may get records."""
        return self._poll_watch.polled(now)

    def maybe_auto_commit(self, now: float) -> None:
        """Start a commit if the interval has passed."""
        if self._subscription.mode is not Mode.NONE:
            self._auto_commit.maybe_commit(now)

    def subscription_changed(self) -> None:
        """Adopt a new subscription."""
        if not self._started:
            return
        by_pattern = self._subscription.mode is Mode.PATTERN
        self._metadata.want_all_topics = by_pattern
        if by_pattern and not self._pattern_at_broker:
            self._pattern_version = self._metadata.request_update()
        else:
            self._pattern_version = -1
            for topic in self._subscription.topics:
                self._metadata.touch(topic)
        if self._in_group:
            self._topics_changed("the subscription has changed")

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Handle a new snapshot of the cluster."""
        if self._partitions.awaits_call:
            self._attend()
        if (
            self._subscription.mode is not Mode.PATTERN
            or self._pattern_at_broker
            or snapshot.version <= self._pattern_version
        ):
            return
        first, self._pattern_version = self._pattern_version >= 0, -1
        pattern = self._subscription.pattern
        assert isinstance(pattern, re.Pattern)
        hidden = _INTERNAL_TOPICS if self._config.exclude_internal_topics else frozenset()
        matching = frozenset(
            name
            for name, info in snapshot.topics.items()
            if info.partitions and name not in hidden and pattern.fullmatch(name)
        )
        if first or matching != self._subscription.topics:
            self._subscription.set_matching_topics(matching)
            self._topics_changed("the topics that match the pattern have changed")

    @property
    def _pattern_at_broker(self) -> bool:
        """True if the broker resolves the pattern (KIP-848)."""
        return False

    @property
    def _in_group(self) -> bool:
        """True if partitions come from the group, not from ``assign``."""
        return self._subscription.mode in (Mode.TOPICS, Mode.PATTERN)

    @property
    def _topics_known(self) -> bool:
        """True if the topics that match the pattern are known."""
        return self._pattern_version < 0

    def _attend(self) -> None:
        """Make the application's next or waiting call run :meth:`ensure_active`."""
        self.needs_attention = True
        self._on_attention()

    def _fail(self, error: KafkaError) -> None:
        """End this member with an error."""
        self.failure = error
        self._poll_watch.stop()
        self._attend()

    # -- inside calls of the application -----------------------------------------------------------

    async def ensure_active(self, deadline: float) -> None:
        """Adopt or revoke partitions, or begin to join. Never wait for other members."""
        if self._inside:
            return
        self._inside = True
        self.needs_attention = False
        try:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            if self._pending_error is not None:
                error, self._pending_error = self._pending_error, None
                raise error
            if self._in_group:
                await self._partitions.call_for_recreated()
                await self._step(deadline)
        except BaseException:
            self.needs_attention = True
            raise
        finally:
            self._inside = False

    async def _revoke(self, partitions: frozenset[TopicPartition], deadline: float) -> bool:
        """Commit and revoke partitions; return whether that is done."""
        self._partitions.stop_reading(partitions)
        if not await self._auto_commit.commit_before_giving_up(
            partitions, deadline, self._config.max_poll_interval_ms / 1000
        ):
            return False
        if self._is_lost:  # a response has said so during the commit
            await self._partitions.lose(partitions)
        else:
            await self._partitions.revoke(partitions)
        return True

    async def commit(self, offsets: Offsets, deadline: float) -> None:
        """Commit, and return when the coordinator has acknowledged it."""
        await self._offsets.commit(offsets, deadline)

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets."""
        return await self._offsets.committed(partitions, deadline)

    async def unsubscribe(self, deadline: float) -> None:
        """Revoke all partitions and leave the group; the next subscription joins again."""
        try:
            await self._give_up(deadline, leave=True)
        finally:
            self._metadata.want_all_topics = False
            self._pattern_version = -1

    async def close(self, deadline: float, *, leave: bool) -> None:
        """Revoke all partitions, leave the group (static members stay), and end all tasks."""
        try:
            await self._give_up(deadline, leave=leave)
        finally:
            self._poll_watch.stop()
            self._stop_tasks()
            # Even if the caller is cancelled now, everything is closed.
            release = start_task(self._release(), name="aioprod-leave")
            await asyncio.wait([release])
            if not release.cancelled():
                release.result()

    async def _release(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_LIMIT_S):
                await close_in_turn(
                    self._auto_commit.close, self._offsets.close, self._connections.close
                )

    async def _give_up(self, deadline: float, *, leave: bool) -> None:
        loop = asyncio.get_running_loop()
        self._inside = True
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                await self._give_up_partitions(deadline)
        except asyncio.CancelledError:
            deadline = loop.time()
            raise
        except TimeoutError:
            if not limit.expired():
                raise
            if leave:  # without leave, the deadline has passed on purpose
                log.warning(
                    (
                        "%s: group %r: committing and revoking partitions took longer than the "
                        "close timeout; records may be read again"
                    ),
                    self._config.client_id,
                    self._connections.group_id,
                )
        finally:
            self._poll_watch.stop()
            self._partitions.rebalance_abandoned()
            try:
                if self._in_group:
                    await self._partitions.release_all(lost=self._is_lost)
            finally:
                self._inside = False
                # Otherwise other members would get the partitions only after the session timeout.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        min(max(deadline - loop.time(), _LEAVE_GRACE_S), LEAVE_LIMIT_S)
                    ):
                        await self._leave(notify=leave and self._config.group_instance_id is None)

    async def _give_up_partitions(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        owned = self._partitions.owned
        if not owned:
            return
        if self._in_group and self._is_lost:
            await self._partitions.lose(owned)
            return
        self._partitions.stop_reading(owned)
        await self._auto_commit.commit_before_giving_up(
            owned, deadline, max(0.0, deadline - loop.time())
        )
        if self._in_group:
            await self._partitions.revoke(owned)

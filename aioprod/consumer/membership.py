"""What a consumer needs of its group, and what there is of it without one."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.group.partitions import GroupPartitions
from aioprod.consumer.subscription import Mode, SubscriptionState
from aioprod.errors import ConsumerStateError, KafkaError
from aioprod.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Membership(Protocol):
    """A member of a group, classic or KIP-848.

    Heartbeats run in a task of its own. What takes partitions away or gives them happens only in
    :meth:`ensure_active` and :meth:`close`, which the consumer calls inside the application's own
    calls. The consumer brings the positions in the subscription up to date before each call.

    Attributes:
        needs_attention: the next poll has to call :meth:`ensure_active`; set by heartbeats, by new
            metadata and by the subscription.
        rebalancing: whether the group is being put together at this moment, for ``consumer.state``.
        problem: why the group can't be reached or joined now, although it is tried on; None where
            all is well.
        failure: why this member can't go on; each poll raises it.
    """

    needs_attention: bool

    @property
    def rebalancing(self) -> bool: ...

    @property
    def problem(self) -> KafkaError | None: ...

    @property
    def failure(self) -> KafkaError | None: ...

    def start(self) -> None:
        """The event loop runs: tasks may be made."""
        ...

    def subscription_changed(self) -> None:
        """Topics or pattern of the subscription are others now, or partitions were assigned."""
        ...

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """There is new metadata: topics may have come, or more partitions."""
        ...

    async def unsubscribe(self, deadline: float) -> None:
        """The application is about to unsubscribe: last auto-commit, the listener's call,
        LeaveGroup. Topics may be subscribed afterwards.
        """
        ...

    async def ensure_active(self, deadline: float) -> None:
        """Join, take over or give up partitions, with the listener's calls, until loop time
        ``deadline``; returns early where more time is needed.

        Safe to cancel anywhere: the next call goes on.
        """
        ...

    def polled(self, now: float) -> None:
        """The application has asked for records (``max.poll.interval.ms``); at least once a second
        while it takes them.
        """
        ...

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets, None where there is none. May be called beside the other
        calls, also from another task.

        Raises:
            KafkaError: there is no answer before ``deadline``, or none that helps.
        """
        ...

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> None:
        """Commit, after what was committed before; returns when the coordinator has it.

        Raises:
            KafkaError: it has not; CommitFailedError where the member has lost its partitions.
        """
        ...

    def maybe_auto_commit(self, now: float) -> None:
        """Begin to commit the positions where ``auto.commit.interval.ms`` has passed."""
        ...

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this is, for ``send_offsets_to_transaction`` (KIP-447)."""
        ...

    async def close(self, deadline: float, *, leave: bool) -> None:
        """Last auto-commit, the listener's call, LeaveGroup (static members stay unless the
        application says so); all within ``deadline``.

        With a deadline that has passed, or when cancelled, its tasks end all the same.
        """
        ...


class NoGroup:
    """A consumer without ``group_id``: nothing is committed, and topics that are subscribed are
    read as a whole.

    Args:
        config, subscription, metadata: the consumer's.
    """

    rebalancing = False
    problem: KafkaError | None = None
    failure: KafkaError | None = None

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: Metadata,
        partitions: GroupPartitions,
        on_attention: Callable[[], None],
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._partitions = partitions
        self._on_attention = on_attention
        self.needs_attention = False

    def start(self) -> None:
        """Nothing runs."""

    def subscription_changed(self) -> None:
        """Ask for the metadata that says which partitions there are."""
        if self._subscription.mode is Mode.PATTERN and not self._metadata.want_all_topics:
            self._metadata.want_all_topics = True
            self._metadata.request_update()
        elif self._subscription.mode is not Mode.PATTERN:
            self._metadata.want_all_topics = False
        self.metadata_changed(self._metadata.snapshot)

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Find out whether there are other partitions than those that are read."""
        if self._subscription.mode in (Mode.TOPICS, Mode.PATTERN) and self._wanted(snapshot) != set(
            self._subscription.partitions
        ):
            self.needs_attention = True
            self._on_attention()

    async def ensure_active(self, deadline: float) -> None:
        """Read all partitions that there are now; the listener is told."""
        self.needs_attention = False
        subscription = self._subscription
        if subscription.mode not in (Mode.TOPICS, Mode.PATTERN):
            return
        wanted, present = self._wanted(self._metadata.snapshot), set(subscription.partitions)
        if subscription.mode is Mode.PATTERN:
            subscription.set_matching_topics(tp.topic for tp in wanted)
        try:
            if present - wanted:
                await self._partitions.lose(present - wanted)
            if wanted - present:
                await self._partitions.assign(wanted)
        except BaseException:
            self.needs_attention = True
            raise

    def _wanted(self, snapshot: ClusterSnapshot) -> set[TopicPartition]:
        subscription = self._subscription
        chosen: set[str] | frozenset[str] = subscription.topics
        if isinstance(subscription.pattern, re.Pattern):
            hidden = INTERNAL_TOPICS if self._config.exclude_internal_topics else ()
            chosen = {
                name
                for name in snapshot.topics
                if name not in hidden and subscription.pattern.fullmatch(name)
            }
        return {
            TopicPartition(name, info.partition)
            for name in chosen
            if name in snapshot.topics
            for info in snapshot.topics[name].partitions
        }

    def polled(self, now: float) -> None:
        """Nobody counts."""

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Raises ConsumerStateError."""
        raise _no_group("committed")

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> None:
        """Raises ConsumerStateError."""
        raise _no_group("commit")

    def maybe_auto_commit(self, now: float) -> None:
        """There is nowhere to commit to."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Raises ConsumerStateError."""
        raise _no_group("group_metadata")

    async def unsubscribe(self, deadline: float) -> None:
        """Tell the listener."""
        if self._partitions.owned and self._subscription.mode is not Mode.ASSIGNED:
            await self._partitions.revoke(self._partitions.owned)

    async def close(self, deadline: float, *, leave: bool) -> None:
        """The same."""
        await self.unsubscribe(deadline)


def _no_group(what: str) -> ConsumerStateError:
    return ConsumerStateError(f"{what}: this consumer has no group; set group_id")

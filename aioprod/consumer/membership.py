"""The consumer's membership in a group, and a substitute for consumers without a group."""

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

    Heartbeats run in a separate task. Partitions are assigned and revoked only in
    :meth:`ensure_active`, :meth:`unsubscribe` and :meth:`close`, which run inside calls of the
    application. Before each of these calls, the positions in the subscription are those of the
    application.

    Attributes:
        needs_attention: whether the next poll has to call :meth:`ensure_active`; set by heartbeats,
            new metadata and changes of the subscription.
        rebalancing: whether the group rebalances now, for ``consumer.state``.
        problem: why the group can't be reached or joined now, while it is retried; else None.
        failure: why this member can't continue; each poll raises it.
    """

    needs_attention: bool

    @property
    def rebalancing(self) -> bool: ...

    @property
    def problem(self) -> KafkaError | None: ...

    @property
    def failure(self) -> KafkaError | None: ...

    def start(self) -> None:
        """Start; must be called in the event loop."""
        ...

    def subscription_changed(self) -> None:
        """Adopt a new subscription or assignment."""
        ...

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Handle new metadata, which may have other topics and partitions."""
        ...

    async def unsubscribe(self, deadline: float) -> None:
        """Auto-commit, call the listener and leave the group, before the application unsubscribes.
        Topics may be subscribed afterwards.
        """
        ...

    async def ensure_active(self, deadline: float) -> None:
        """Join, get and release partitions, and call the listener, until loop time ``deadline``.

        A call that was cancelled, or has reached the deadline, is continued by the next one.
        """
        ...

    def polled(self, now: float) -> bool:
        """Note that the application polls (``max.poll.interval.ms``); called at least once a second
        while it takes records.

        Return whether it may get records: not while the process was suspended for longer than its
        session, until the coordinator has said whether the partitions are still this member's.
        """
        ...

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None for partitions without one. May be called
        during other calls, also from another task.

        Raises:
            KafkaError: if there is no usable response before ``deadline``.
        """
        ...

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> None:
        """Commit after earlier commits; return when the coordinator has acknowledged it.

        Raises:
            CommitFailedError: if the member has lost its partitions.
            KafkaError: if the coordinator has not acknowledged it.
        """
        ...

    def maybe_auto_commit(self, now: float) -> None:
        """Begin to commit the positions if ``auto.commit.interval.ms`` has passed."""
        ...

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member for ``send_offsets_to_transaction`` (KIP-447)."""
        ...

    async def close(self, deadline: float, *, leave: bool) -> None:
        """Auto-commit, call the listener and leave the group (static members stay), before loop
        time ``deadline``.

        Its tasks end even if the deadline has passed or the caller is cancelled.
        """
        ...


class NoGroup:
    """A consumer without ``group_id``: it commits nothing, and reads all partitions of the
    subscribed topics.

    Args:
        on_attention: called when ``needs_attention`` becomes true.
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
        self.needs_attention: bool = False

    def start(self) -> None:
        """Do nothing."""

    def subscription_changed(self) -> None:
        """Request the metadata of the subscribed topics."""
        if self._subscription.mode is Mode.PATTERN and not self._metadata.want_all_topics:
            self._metadata.want_all_topics = True
            self._metadata.request_update()
        elif self._subscription.mode is not Mode.PATTERN:
            self._metadata.want_all_topics = False
        self.metadata_changed(self._metadata.snapshot)

    def metadata_changed(self, snapshot: ClusterSnapshot) -> None:
        """Look for partitions that are new or gone."""
        if self._subscription.mode in (Mode.TOPICS, Mode.PATTERN) and (
            self._partitions.awaits_call
            or self._wanted(snapshot) != set(self._subscription.partitions)
        ):
            self.needs_attention = True
            self._on_attention()

    async def ensure_active(self, deadline: float) -> None:
        """Read all partitions that exist now, and call the listener."""
        self.needs_attention = False
        subscription = self._subscription
        if subscription.mode not in (Mode.TOPICS, Mode.PATTERN):
            return
        await self._partitions.call_for_recreated()
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

    def polled(self, now: float) -> bool:
        """Return True: without a group there is no limit."""
        return True

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Raise ConsumerStateError."""
        raise _no_group("committed")

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> None:
        """Raise ConsumerStateError."""
        raise _no_group("commit")

    def maybe_auto_commit(self, now: float) -> None:
        """Do nothing."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Raise ConsumerStateError."""
        raise _no_group("group_metadata")

    async def unsubscribe(self, deadline: float) -> None:
        """Call the listener."""
        if self._partitions.owned and self._subscription.mode is not Mode.ASSIGNED:
            await self._partitions.revoke(self._partitions.owned)

    async def close(self, deadline: float, *, leave: bool) -> None:
        """Call the listener."""
        await self.unsubscribe(deadline)


def _no_group(what: str) -> ConsumerStateError:
    return ConsumerStateError(f"{what}: this consumer has no group; set group_id")

"""The consumer's calls about what is read and from where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aioprod.arguments import (
    check_partition,
    check_partitions,
    check_pattern,
    check_position,
    check_topics,
)
from aioprod.config.consumer import EARLIEST, LATEST, OffsetReset
from aioprod.consumer.core import ConsumerCore
from aioprod.consumer.subscription import Phase, Position, RebalanceListener
from aioprod.errors import ConfigError, KafkaTimeoutError
from aioprod.types import OffsetAndMetadata, SubscriptionPattern, TopicPartition


class AssignmentCalls(ConsumerCore):
    """Subscribe, assign, seek, pause, and what is known of each partition."""

    # -- what is read ------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches ``pattern``, instead of those before.

        A pattern is one of Python's, or a :class:`SubscriptionPattern` for the broker. With
        ``group_id`` the group shares out their partitions, else all of them are read. It takes
        effect in the next call for records.

        Raises:
            ConsumerStateError: partitions were assigned by hand, or it was subscribed in the other
                way; ``unsubscribe`` first.
            ConfigError: neither topics nor a pattern, both, or one of the arguments is no such
                thing.
        """
        chosen = check_topics(topics)
        if bool(chosen) == (pattern is not None):
            raise ConfigError("subscribe: give topics, or a pattern")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ConfigError(f"listener={listener!r}: must be a RebalanceListener")
        with self._own():
            if pattern is None:
                self._subscription.subscribe(chosen, listener)
            else:
                self._subscription.subscribe_pattern(self._checked_pattern(pattern), listener)
            self._subscription_changed()

    def _checked_pattern(
        self, pattern: str | re.Pattern[str] | SubscriptionPattern
    ) -> re.Pattern[str] | SubscriptionPattern:
        checked = check_pattern(pattern)
        if isinstance(checked, SubscriptionPattern) and (
            self.config.group_id is None or self.config.group_protocol != "consumer"
        ):
            raise ConfigError(
                f"{checked}: only brokers resolve it, for groups with "
                "group_protocol='consumer'; give a pattern of Python's re"
            )
        return checked

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without the group's sharing out; those that were assigned
        before keep their positions.

        Raises:
            ConsumerStateError: topics are subscribed; ``unsubscribe`` first.
            ConfigError: one is no partition.
        """
        chosen = check_partitions(partitions)
        with self._own():
            self._subscription.assign(chosen)
            self._subscription_changed()

    async def unsubscribe(self) -> None:
        """Read nothing more, and leave the group, within ``default_api_timeout_ms``.

        Then ``subscribe`` and ``assign`` are possible.

        What the listener raises comes out of this call, and changes nothing about that.
        """
        async with self._call():
            try:
                await self._membership.unsubscribe(self._deadline(None))
            finally:
                self._subscription.unsubscribe()
                self._subscription_changed()

    def _subscription_changed(self) -> None:
        topics = self._subscription.topics | {tp.topic for tp in self._subscription.partitions}
        self._metrics.keep_topics(topics)
        self._problems.keep(
            lambda what: (
                not isinstance(what, TopicPartition | str)
                or what in self._subscription.partitions
                or what in topics
            )
        )
        if self._started:
            for topic in topics:
                self._metadata.touch(topic)
            self._membership.subscription_changed()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed; with a pattern those that match so far."""
        return self._subscription.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read at this moment."""
        return frozenset(self._subscription.partitions)

    # -- from where --------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read an assigned partition on from ``offset``.

        Raises:
            ConsumerStateError: it is not assigned.
            ConfigError: the offset is no whole number, or below 0.
        """
        tp, place = check_partition(partition), check_position(offset)
        with self._own():
            self._subscription.seek(tp, Position(place.offset, place.leader_epoch))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read these on from their first offset, or all that are assigned.

        Raises:
            ConsumerStateError: one is not assigned.
            KafkaTimeoutError: the offset was not found out within ``default_api_timeout_ms``; it is
                looked for on.
        """
        await self._seek_by(partitions, OffsetReset(EARLIEST))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read only what comes from now on, of these or of all that are assigned.

        Limit (``default_api_timeout_ms``) and errors as of :meth:`seek_to_beginning`.
        """
        await self._seek_by(partitions, OffsetReset(LATEST))

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Read these, or all that are assigned, on from the group's committed offsets; those
        without one stay where they are.

        Raises:
            ConsumerStateError: one is not assigned, or there is no group.
            KafkaError: the offsets could not be had within ``default_api_timeout_ms``.
        """
        async with self._call():
            chosen = self._chosen(partitions)
            committed = await self._membership.committed(chosen, self._deadline(None))
            for tp, offset in committed.items():
                if offset is not None:
                    self._subscription.seek(tp, Position(offset.offset, offset.leader_epoch))
            return committed

    async def _seek_by(self, partitions: tuple[TopicPartition, ...], strategy: OffsetReset) -> None:
        async with self._call():
            chosen = self._chosen(partitions)
            self._subscription.seek_by(chosen, strategy)
            deadline = self._deadline(None)
            for tp in chosen:
                await self._valid_position(tp, deadline)

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        chosen = check_partitions(partitions) or list(self._subscription.partitions)
        for tp in chosen:
            self._subscription[tp]  # raises where it is not assigned
        return chosen

    async def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record that the application gets of an assigned partition; looked
        up where it is not known yet.

        Args:
            timeout_ms: the limit on that; ``default_api_timeout_ms`` where None.

        Raises:
            ConsumerStateError: it is not assigned.
            NoOffsetError, OffsetOutOfRangeError, LogTruncationError: ``auto_offset_reset`` is
            "none", and there is no such offset.
            KafkaTimeoutError: it was not found out in time.
        """
        async with self._call():
            return (
                await self._valid_position(check_partition(partition), self._deadline(timeout_ms))
            ).offset

    async def _valid_position(self, tp: TopicPartition, deadline: float) -> Position:
        while True:
            state = self._subscription[tp]
            if state.failure is not None:
                self._problems.told(tp)
                raise state.failure.with_traceback(None)
            if state.phase is Phase.FETCHING and state.position is not None:
                return state.position
            if not await self._wait(deadline):
                latest = self._problems.latest
                raise KafkaTimeoutError(f"no position of {tp.topic}-{tp.partition} in time") from (
                    latest[0] if latest else None
                )

    # -- pauses ------------------------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out no records of these until ``resume``; what was fetched of them is kept.
        ConsumerStateError: one is not assigned.
        """
        chosen = check_partitions(partitions)
        with self._own():
            self._subscription.pause(chosen)

    def resume(self, *partitions: TopicPartition) -> None:
        """Hand out records of these again. ConsumerStateError: one is not assigned."""
        chosen = check_partitions(partitions)
        with self._own():
            self._subscription.resume(chosen)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        return frozenset(self._subscription.paused())

    # -- what is known -----------------------------------------------------------------------------

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets there are between the position and the end of a partition, as its last
        fetch told; None before the first (KIP-695).

        Raises:
            ConsumerStateError: it is not assigned.
        """
        state = self._subscription[check_partition(partition)]
        end = (
            state.last_stable_offset
            if self.config.isolation_level == "read_committed"
            else state.high_watermark
        )
        self._settle()
        return None if state.position is None or end < 0 else max(end - state.position.offset, 0)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record that all replicas have, as the last fetch told; None
        before the first.
        """
        known = self._subscription[check_partition(partition)].high_watermark
        return known if known >= 0 else None

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the first open transaction, or else the high watermark, as the last fetch
        told; None before the first.
        """
        known = self._subscription[check_partition(partition)].last_stable_offset
        return known if known >= 0 else None

    def metrics(self) -> Mapping[str, float]:
        """Counts and rates under the names of Kafka's ``consumer-fetch-manager-metrics``, and
        ``records-lag-max``.
        """
        self._settle()
        lags = [lag for tp in self._subscription.partitions if (lag := self.lag(tp)) is not None]
        gauges = {
            "records-lag-max": float(max(lags, default=0)),
            "buffered-bytes": float(self._buffer.size),
        }
        return self._metrics.snapshot(
            self._now(),
            {**gauges, "assigned-partitions": float(len(self._subscription.partitions))},
        )

    def metrics_by_topic(self) -> Mapping[str, Mapping[str, float]]:
        """The same by topic."""
        self._settle()
        return self._metrics.snapshot_by_topic(self._now())

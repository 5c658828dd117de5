"""``subscribe``, ``assign``, ``unsubscribe``, ``pause`` and ``resume``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aioprod.arguments import check_partitions, check_pattern, check_topics
from aioprod.cluster.metadata import Metadata
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.calls.guard import CallGuard
from aioprod.consumer.membership import Membership
from aioprod.consumer.problems import Problems
from aioprod.consumer.rebalance_listener import RebalanceListener
from aioprod.consumer.run_state import RunState
from aioprod.consumer.subscription import SubscriptionState
from aioprod.errors import ConfigError
from aioprod.foreign_text import shown
from aioprod.metrics import ConsumerMetrics
from aioprod.types import SubscriptionPattern, TopicPartition

Pattern = re.Pattern[str] | SubscriptionPattern


class SubscriptionCalls:
    """Changes the subscribed topics and assigned partitions."""

    def __init__(
        self,
        config: ConsumerConfig,
        guard: CallGuard,
        run_state: RunState,
        subscription: SubscriptionState,
        membership: Membership,
        metadata: Metadata,
        problems: Problems,
        metrics: ConsumerMetrics,
    ) -> None:
        self._brokers_match_patterns = (
            config.group_id is not None and config.group_protocol == "consumer"
        )
        self._guard = guard
        self._run_state = run_state
        self._subscription = subscription
        self._membership = membership
        self._metadata = metadata
        self._problems = problems
        self._metrics = metrics
        # Only the Consumer refers to this object, so the listener may refer to the Consumer.
        self._listener: RebalanceListener | None = None

    def subscribe(
        self,
        topics: Iterable[str] | str,
        pattern: str | Pattern | None,
        listener: RebalanceListener | None,
    ) -> None:
        """Read these topics, or those that match the pattern."""
        chosen = check_topics(topics)
        if bool(chosen) == (pattern is not None):
            raise ConfigError("subscribe: give topics, or a pattern")
        if listener is not None and not isinstance(listener, RebalanceListener):
            raise ConfigError(f"listener={shown(listener)}: must be a RebalanceListener")
        with self._guard.call():
            if pattern is None:
                self._subscription.subscribe(chosen, listener)
            else:
                self._subscription.subscribe_pattern(self._checked_pattern(pattern), listener)
            self._listener = listener
            self._changed()

    def _checked_pattern(self, pattern: str | Pattern) -> Pattern:
        checked = check_pattern(pattern)
        if isinstance(checked, SubscriptionPattern) and not self._brokers_match_patterns:
            raise ConfigError(
                f"{checked}: only brokers resolve it, for groups with "
                "group_protocol='consumer'; give a pattern of Python's re"
            )
        return checked

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions."""
        chosen = check_partitions(partitions)
        with self._guard.call():
            self._subscription.assign(chosen)
            self._changed()

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        async with self._guard.waiting_call():
            try:
                await self._membership.unsubscribe(self._guard.deadline(None))
            finally:
                self._subscription.unsubscribe()
                self._listener = None
                self._changed()

    def pause(self, partitions: Iterable[TopicPartition], reason: str) -> None:
        """Return no records of these."""
        chosen = check_partitions(partitions)
        with self._guard.call():
            self._subscription.pause(chosen, reason)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these again."""
        chosen = check_partitions(partitions)
        with self._guard.call():
            self._subscription.resume(chosen)

    def _changed(self) -> None:
        topics = self._subscription.all_topics()
        self._metrics.keep_topics(topics)
        self._problems.keep(
            lambda what: (
                not isinstance(what, TopicPartition | str)
                or what in self._subscription.partitions
                or what in topics
            )
        )
        if self._run_state.started:
            for topic in topics:
                self._metadata.touch(topic)
            self._membership.subscription_changed()

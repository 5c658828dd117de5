"""Logs why a subscribed consumer has no partitions: it may wait forever, and no call fails."""

from __future__ import annotations

import logging
import re

from aioprod.cluster.metadata import Metadata
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.membership import Membership
from aioprod.consumer.subscription import Mode, SubscriptionState
from aioprod.counts import counted
from aioprod.logs import LastingProblem, Logger, get_logger

log: Logger = get_logger(__name__)

_AFTER_S = 5.0
_NEVER = float("inf")


class NoPartitions:
    """Logs one line each time that a consumer has had no partitions for some seconds. Topics that
    can't be used have a line of the metadata, and groups that can't be joined one of their
    coordinator.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        membership: Membership,
        metadata: Metadata,
    ) -> None:
        self._config = config
        self._subscription = subscription
        self._membership = membership
        self._metadata = metadata
        self._problem = LastingProblem(_AFTER_S)

    def step(self, now: float) -> float:
        """Log a line if it is due; return the loop time of the next call."""
        subscription = self._subscription
        if subscription.partitions or subscription.mode not in (Mode.TOPICS, Mode.PATTERN):
            self._forget()
            return _NEVER
        found = self._reason()
        if found is None:
            self._forget()
        elif self._problem.lasts(now):
            level, reason = found
            seconds = self._problem.seconds(now)
            log.log(
                level, "%s: still waiting after %.0f s: %s", self._config.client_id, seconds, reason
            )
        if self._problem.is_logged:
            return _NEVER
        return (now if self._problem.since is None else self._problem.since) + _AFTER_S

    def _forget(self) -> None:
        if self._problem.since is not None:
            self._problem = LastingProblem(_AFTER_S)

    def _reason(self) -> tuple[int, str] | None:
        """Return why there are no partitions, and the level of its line; None if that is reported
        elsewhere, or the next call for records may assign some.
        """
        membership, subscription = self._membership, self._subscription
        if membership.rebalancing or membership.problem or membership.failure:
            return None
        if membership.needs_attention:
            return None
        group, pattern = self._config.group_id, subscription.pattern
        if isinstance(pattern, re.Pattern):
            if not subscription.topics:
                what = f"no topic matches the pattern {pattern.pattern!r}"
                return logging.WARNING, f"{what}; create one, or check the pattern"
        elif pattern is not None:
            return logging.WARNING, (
                f"group {group!r} assigned no partitions to this member: no topic matches the "
                f"pattern {pattern.pattern!r}, or other members have them all"
            )
        topics = map(self._metadata.snapshot.topics.get, subscription.topics)
        partitions = sum(len(topic.partitions) for topic in topics if topic is not None)
        if group is None or not partitions:
            return None
        # A member in reserve is nothing to worry about.
        return logging.INFO, (
            f"group {group!r} assigned no partitions to this member; its topics have "
            f"{counted(partitions, 'partition')}, each for one member"
        )

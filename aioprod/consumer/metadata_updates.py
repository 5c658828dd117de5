"""Applies new metadata to a consumer's subscription, positions and fetches."""

from __future__ import annotations

import asyncio

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.consumer.membership import Membership
from aioprod.consumer.problems import Problems
from aioprod.consumer.recreated_topics import RecreatedTopics
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import SubscriptionState


class MetadataUpdates:
    """Applies each snapshot of the cluster."""

    def __init__(
        self,
        metadata: Metadata,
        subscription: SubscriptionState,
        problems: Problems,
        membership: Membership,
        recreated: RecreatedTopics,
        scheduler: Scheduler,
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._problems = problems
        self._membership = membership
        self._recreated = recreated
        self._scheduler = scheduler
        self._snapshot = self._metadata.snapshot

    def topics(self) -> frozenset[str]:
        """Return the topics whose metadata is needed."""
        return self._subscription.all_topics()

    def apply(self, snapshot: ClusterSnapshot) -> None:
        """Apply a snapshot. Partitions that only lacked a leader are read without backoff."""
        before, self._snapshot = self._snapshot, snapshot
        for state in self._subscription.partitions.values():
            if isinstance(snapshot.find_leader(state.tp), PartitionInfo) and not isinstance(
                before.find_leader(state.tp), PartitionInfo
            ):
                state.retry_at = 0.0
        self._recreated.apply(before, snapshot)
        for topic in self.topics():
            self._metadata.touch(topic)
        self._note_topics(snapshot)
        self._membership.metadata_changed(snapshot)
        self._scheduler.wake()

    def _note_topics(self, snapshot: ClusterSnapshot) -> None:
        """Note subscribed topics that do not exist or are not authorized. Errors of partitions from
        ``assign`` are found when they are read.
        """
        now = asyncio.get_running_loop().time()
        for topic in self._subscription.topics:
            error = snapshot.topic_error(topic)
            if error is None:
                self._problems.over(topic)
                continue
            self._problems.add(topic, error, now)
            self._metadata.request_topic(topic)

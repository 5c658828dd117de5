"""Decides which partitions may be fetched now, and from which node each. No I/O."""

import uuid
from collections import defaultdict
from typing import NamedTuple

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import ClusterSnapshot, PartitionInfo
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_results import FetchResults
from aioprod.consumer.scheduler import Scheduler
from aioprod.consumer.subscription import PartitionState, Position, SubscriptionState
from aioprod.types import TopicPartition


class Leader(NamedTuple):
    """The leader of a partition and the id of its topic, as the metadata has them."""

    info: PartitionInfo
    topic_id: uuid.UUID


class DuePartition(NamedTuple):
    """A partition that may be fetched now, and from where."""

    state: PartitionState
    leader: Leader
    start: Position


class FetchRoutes:
    """Finds the node of each partition: its leader, or the follower that the leader has named.

    Args:
        metadata: has the leaders.
        subscription: the partitions.
        buffer: has the data that are fetched already.
        results: notes partitions without a leader.
        scheduler: called if a partition waits for the application.
    """

    def __init__(
        self,
        metadata: Metadata,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        results: FetchResults,
        scheduler: Scheduler,
    ) -> None:
        self._metadata = metadata
        self._subscription = subscription
        self._buffer = buffer
        self._results = results
        self._scheduler = scheduler
        self._snapshot: ClusterSnapshot | None = None  # the metadata of these leaders
        self._leaders: dict[TopicPartition, Leader] = {}

    def due(self, now: float) -> tuple[dict[int, list[DuePartition]], float]:
        """Return the partitions that may be fetched now, by node; and the loop time of the next
        call, at the latest.
        """
        again_at = float("inf")
        by_node: defaultdict[int, list[DuePartition]] = defaultdict(list)
        next_position = self._buffer.next_position
        for state in self._subscription.partitions.values():
            if not state.may_be_fetched:
                continue
            start = next_position(state)
            if start is None:
                self._scheduler.wait_for_read()
                continue
            if state.retry_at > now:
                again_at = min(again_at, state.retry_at)
                continue
            leader = self._leader(state, now)
            if leader is None:
                again_at = min(again_at, state.retry_at)
            elif self._is_confirmed(state, leader.info):
                node_id = self._node_for(state, leader.info, now)
                by_node[node_id].append(DuePartition(state, leader, start))
        return by_node, again_at

    def _leader(self, state: PartitionState, now: float) -> Leader | None:
        """Return the leader of a partition; None if there is none now, so that it is retried."""
        snapshot = self._metadata.snapshot
        if snapshot is not self._snapshot:
            self._snapshot, self._leaders = snapshot, {}
        leader = self._leaders.get(state.tp)
        if leader is None:
            info = snapshot.find_leader(state.tp)
            if not isinstance(info, PartitionInfo):
                self._metadata.request_topic(state.tp.topic)
                self._results.failed(state, info, now)
                return None
            leader = Leader(info, snapshot.topics[state.tp.topic].topic_id)
            self._leaders[state.tp] = leader
        return leader

    def _is_confirmed(self, state: PartitionState, info: PartitionInfo) -> bool:
        """Return whether the position is validated for the current leader (KIP-320); if not, begin
        to validate it.
        """
        if info.leader_epoch > state.validated_epoch:
            assert state.position is not None
            if state.position.leader_epoch >= 0 and state.validated_epoch >= 0:
                state.fetch = None  # the response would be the old leader's
                self._subscription.revalidate(state.tp)
                self._buffer.drop(state.tp)  # records that the new leader may not have
                return False
            state.validated_epoch = info.leader_epoch
        return True

    def _node_for(self, state: PartitionState, info: PartitionInfo, now: float) -> int:
        """Return the leader, or the follower that it named (KIP-392)."""
        if state.preferred_replica < 0:
            return info.leader
        if now < state.preferred_until and state.preferred_replica in self._metadata.snapshot.nodes:
            return state.preferred_replica
        state.preferred_replica = -1
        return info.leader

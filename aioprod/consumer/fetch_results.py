"""Handles the data and errors of each partition in Fetch responses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aioprod.config.consumer import ConsumerConfig
from aioprod.config.offset_reset import NONE
from aioprod.consumer.connections import Connections
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.fetch_sessions import Asked
from aioprod.consumer.fetched_data import FetchedData
from aioprod.consumer.problems import Problems
from aioprod.consumer.readable_batches import AbortedBatches
from aioprod.consumer.record_conversion import RecordConverter
from aioprod.consumer.subscription import PartitionState, Position, SubscriptionState
from aioprod.error_codes import ErrorCode
from aioprod.errors import BrokerError, OffsetOutOfRangeError
from aioprod.logs import Logger, get_logger
from aioprod.metrics import ConsumerMetrics
from aioprod.net.brokers import BrokerAddress
from aioprod.net.refusals import explain
from aioprod.protocol.messages.fetch import FetchResponse, PartitionData
from aioprod.types import TopicPartition

# A quick start: with a broker 250 ms away each step takes that long.
_GROWTH = 4

log: Logger = get_logger(__name__)


@dataclass(slots=True)
class PartitionFetch:
    """One partition of a request to a node. It is void once the partition is fetched from another
    node, or its position has changed.

    Attributes:
        node_id: the node that gets the request.
        state: the partition.
        version: the version of the state when the request was sent.
        start: the requested position.
        asked: the fields of the request.
    """

    node_id: int
    state: PartitionState
    version: int
    start: Position
    asked: Asked


class FetchResults:
    """Puts fetched data into the buffer, and decides what to do about errors."""

    def __init__(
        self,
        config: ConsumerConfig,
        connections: Connections,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        problems: Problems,
        metrics: ConsumerMetrics,
        converter: RecordConverter,
    ) -> None:
        self._config = config
        self._metadata = connections.metadata
        self._subscription = subscription
        self._buffer = buffer
        self._problems = problems
        self._backoff = connections.backoff
        self._metrics = metrics
        self._converter = converter or None  # None: records are not converted

    def take(
        self,
        reply: FetchResponse,
        fetches: Mapping[TopicPartition, PartitionFetch],
        topic_names: Mapping[uuid.UUID, str],
        now: float,
    ) -> bool:
        """Handle a response; return whether there are new records.

        Args:
            reply: a response without a top-level error.
            fetches: the partitions of the request.
            topic_names: names by topic id, which newer versions have in place of names.
            now: loop time.
        """
        leaders: dict[TopicPartition, tuple[int, int]] = {}
        news = False
        answered = set()
        for topic in reply.responses:
            name = topic.topic or topic_names.get(topic.topic_id, "")
            # Leader epochs of a deleted topic would count as newer than those of the new one.
            is_former = self._metadata.snapshot.has_other_topic(name, topic.topic_id)
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                if data.current_leader.leader_epoch >= 0 and not is_former:
                    leaders[tp] = data.current_leader.leader_id, data.current_leader.leader_epoch
                answered.add(tp)
                fetch = fetches.get(tp)
                if fetch is None or not self._is_present(fetch):
                    continue
                if data.error_code:
                    self._refused(fetch, data, now)
                else:
                    news |= self._accept(fetch, data, now)
        if left_out := fetches.keys() - answered:
            self._unchanged([fetches[tp] for tp in left_out])
        if leaders:
            self._metadata.take_leaders(
                leaders,
                [
                    BrokerAddress(node.node_id, node.host, node.port)
                    for node in reply.node_endpoints
                ],
            )
        return news

    def _unchanged(self, fetches: Iterable[PartitionFetch]) -> None:
        """Note success: a broker leaves out partitions that are as they were in its last response
        of the session.
        """
        any_problem = self._problems.latest is not None
        for fetch in fetches:
            state = fetch.state
            if (any_problem or state.failures or state.retry_at) and self._is_present(fetch):
                state.succeeded()
                self._problems.over(state.tp)

    def _is_present(self, fetch: PartitionFetch) -> bool:
        """Return whether the partition is still read from where the request asked."""
        state = fetch.state
        return (
            state.fetch is fetch
            and state.version == fetch.version
            and self._subscription.get(state.tp) is state
        )

    def failed(self, state: PartitionState, error: BrokerError | None, now: float) -> None:
        """Fetch a partition again after a pause; note the error, if any."""
        state.failures += 1
        state.retry_at = now + self._backoff.seconds(state.failures)
        if error is not None:
            self._problems.add(state.tp, error, now)

    def _accept(self, fetch: PartitionFetch, data: PartitionData, now: float) -> bool:
        """Handle one partition's data; return whether there are new records."""
        state, tp = fetch.state, fetch.state.tp
        state.high_watermark, state.last_stable_offset = (
            data.high_watermark,
            data.last_stable_offset,
        )
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        state.succeeded()
        state.resets = 0
        self._problems.over(tp)
        if data.preferred_read_replica >= 0:
            self._prefer(state, data.preferred_read_replica, now)
        present = self._buffer.next_position(state)
        if not data.records or present is None or present.offset != fetch.start.offset:
            return False
        read_committed = self._config.isolation_level == "read_committed"
        aborted = AbortedBatches(data.aborted_transactions or ()) if read_committed else None
        size = len(data.records)
        self._metrics.data_came(tp.topic, size, now)
        # More than half counts as full: some brokers return whole batches only.
        is_full = 2 * size > fetch.asked.max_bytes
        state.fetch_bytes = fetch.asked.max_bytes * (_GROWTH if is_full else 1)
        fetched = FetchedData(
            state,
            data.records,
            fetch.start,
            aborted,
            self._converter,
            check_crcs=self._config.check_crcs,
        )
        self._buffer.add(fetched)
        return True

    def _prefer(self, state: PartitionState, replica: int, now: float) -> None:
        """Fetch from the follower that the leader has named in place of records (KIP-392)."""
        state.preferred_replica = replica
        state.preferred_until = now + self._config.metadata_max_age_ms / 1000
        if replica not in self._metadata.snapshot.nodes:
            # The metadata lacks this follower; until it has it, the leader would name it again.
            self._metadata.request_update()
            self.failed(state, None, now)

    def _refused(self, fetch: PartitionFetch, data: PartitionData, now: float) -> None:
        state, code = fetch.state, ErrorCode.of(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(fetch, now)
            return
        state.preferred_replica = -1
        if code.refresh_metadata or code.retriable:
            self._metadata.request_topic(state.tp.topic)
        where = f"{state.tp.topic}-{state.tp.partition} at offset {fetch.start.offset}"
        error = BrokerError(code, f"fetch from {where}")
        self.failed(state, explain(error, "Fetch", self._metadata.snapshot.principal), now)

    def _out_of_range(self, fetch: PartitionFetch, now: float) -> None:
        state = fetch.state
        if fetch.node_id == state.preferred_replica:
            state.preferred_replica = -1  # a follower may lag: ask the leader
            return
        if state.position is None or fetch.start.offset != state.position.offset:
            # The application has not read the records before that offset; the log may have reached
            # it by then.
            self.failed(state, None, now)
            return
        if self._config.offset_reset.strategy != NONE:
            log.log(
                logging.DEBUG if state.resets else logging.WARNING,
                "%s: %s-%d has no offset %d: auto_offset_reset=%s decides where it continues",
                self._config.client_id,
                *state.tp,
                state.position.offset,
                self._config.offset_reset.strategy,
            )
            self._subscription.seek_by([state.tp], self._config.offset_reset)
            # Backoff for repeated resets: the broker contradicts itself, or deletes records faster
            # than this consumer fetches.
            state.retry_at = now + self._backoff.seconds(state.resets)
            state.resets += 1
            return
        tp, offset = state.tp, state.position.offset
        state.failure = OffsetOutOfRangeError(
            (
                f"{tp.topic}-{tp.partition} has no offset {offset}, and auto_offset_reset is "
                "'none'; seek to the offset at which to continue"
            ),
            tp,
            offset,
        )
        self._problems.report(tp, state.failure, now)

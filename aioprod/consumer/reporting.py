"""Reports what happens in a consumer to its metrics, observers and interceptors."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

from aioprod.config.consumer import ConsumerConfig
from aioprod.errors import KafkaError, copy_of
from aioprod.interceptors import ConsumerInterceptorChain
from aioprod.logs import Logger, get_logger, listed
from aioprod.metrics import (
    CommitDone,
    ConsumerMetrics,
    ConsumerObservers,
    ObservedConsumer,
    ObserverList,
    PartitionsChanged,
    RebalanceDone,
    RecordsReturned,
    RequestDone,
    StallChanged,
    TopicRecreated,
)
from aioprod.metrics.consumer_observers import PartitionsEvent
from aioprod.metrics.reading import ReadingMetrics
from aioprod.types import OffsetAndMetadata, TopicPartition

log: Logger = get_logger(__name__)

MetricsT = TypeVar("MetricsT", bound=ReadingMetrics[Any])


class ReadingReporter(Generic[MetricsT]):
    """The reports of consumers and share consumers: one method for each kind of event. Times are
    loop times in seconds.

    Args:
        metrics: counts.
        observers: the observers, of either kind.
        now: returns the loop time, for events that come without one.

    Attributes:
        now: the same.
    """

    def __init__(
        self, metrics: MetricsT, observers: ObserverList[Any], now: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._observers = observers
        self.now = now
        self._wants_polls = observers.wants("on_poll")
        self._wants_records = observers.wants("on_records")

    def started(self, consumer: ObservedConsumer) -> None:
        """Report that the consumer starts to connect."""
        self._observers.start(consumer)

    def close(self) -> None:
        """Close the observers."""
        self._observers.close()

    def request_done(
        self, node_id: int, api: str, latency_s: float, error: KafkaError | None
    ) -> None:
        """Report that a request was answered, or has failed."""
        if self._observers:
            event = RequestDone(node_id, api, latency_s, for_observers(error))
            self._observers.notify("on_request", event)

    def polled(self, now: float) -> None:
        """Report that the application asks for records."""
        interval_s = self._metrics.polled(now)
        if self._wants_polls and interval_s is not None:
            self._observers.notify("on_poll", interval_s)

    def waited(self, seconds: float, now: float) -> None:
        """Report that a call waited for records."""
        self._metrics.waited(seconds, now)

    def stalled(
        self, partition: TopicPartition | None, reason: str, seconds: float, *, is_over: bool
    ) -> None:
        """Report that a partition is not read, or is read again."""
        event = StallChanged(partition, reason, seconds, is_over)
        self._observers.notify("on_stall", event)

    def connection_changed(
        self, node_id: int, address: str, opened: bool, error: KafkaError | None
    ) -> None:
        """Report a connection that was opened, or was closed because of ``error``."""
        self._metrics.connection_changed(opened, self.now())
        self._observers.notify("on_connection", node_id, address, opened, error)


class ConsumerReporter(ReadingReporter[ConsumerMetrics]):
    """The reports of a consumer.

    Args:
        config: has the observers.
        metrics: counts.
        interceptors: called for commits.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        metrics: ConsumerMetrics,
        interceptors: ConsumerInterceptorChain,
    ) -> None:
        super().__init__(metrics, ConsumerObservers(config.observers), _now)
        self._client_id = config.client_id
        self._interceptors = interceptors
        self._rebalance_began: float | None = None

    # -- reading -----------------------------------------------------------------------------------

    def fetched(self, node_id: int, latency_s: float, error: KafkaError | None, now: float) -> None:
        """Report that a Fetch was answered, or has failed."""
        if error is None:
            self._metrics.fetched(node_id, latency_s, now)
        self.request_done(node_id, "Fetch", latency_s, error)

    def records_returned(self, tp: TopicPartition, records: int, now: float) -> None:
        """Report that the application got records."""
        self._metrics.records_returned(tp.topic, records, now)
        if self._wants_records and records:
            self._observers.notify("on_records", RecordsReturned(*tp, records))

    def records_so_far(self, now: float) -> int:
        """Return how many records the application got."""
        return int(self._metrics.snapshot(now, {})["records-consumed-total"])

    # -- the group ---------------------------------------------------------------------------------

    def commit_done(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        latency_s: float,
        error: KafkaError | None,
    ) -> None:
        """Report that offsets were committed, or were not."""
        self._metrics.commit_done(latency_s, error is not None, self.now())
        if self._observers:
            self._observers.notify(
                "on_commit", CommitDone(offsets, latency_s, for_observers(error))
            )
        if error is None:
            self._interceptors.on_commit(offsets)

    def partitions_changed(
        self, event: PartitionsEvent, partitions: Collection[TopicPartition], listener_s: float
    ) -> None:
        """Report partitions that were assigned, revoked or lost."""
        if partitions:
            log.info("%s: partitions %s: %s", self._client_id, event, partition_names(partitions))
        if event == "lost":
            self._metrics.partitions_lost(len(partitions), self.now())
        change = PartitionsChanged(event, tuple(sorted(partitions)), listener_s)
        self._observers.notify("on_partitions", change)

    def topic_recreated(
        self,
        topic: str,
        partitions: Collection[TopicPartition],
        former_topic_id: uuid.UUID,
        topic_id: uuid.UUID,
    ) -> None:
        """Report that a topic was deleted and created again."""
        event = TopicRecreated(topic, tuple(sorted(partitions)), former_topic_id, topic_id)
        self._observers.notify("on_topic_recreated", event)

    def rebalance_began(self) -> None:
        """Note the beginning of a rebalance, unless one is in progress."""
        if self._rebalance_began is None:
            self._rebalance_began = self.now()

    def rebalance_abandoned(self) -> None:
        """Forget the rebalance that is in progress: the consumer leaves its group."""
        self._rebalance_began = None

    def rebalance_ended(self, error: BaseException | None = None) -> None:
        """Report the end of the rebalance that is in progress, if there is one."""
        if self._rebalance_began is None:
            return
        now = self.now()
        latency_s, self._rebalance_began = now - self._rebalance_began, None
        self._metrics.rebalanced(latency_s, error is not None, now)
        shown = for_observers(error) if isinstance(error, KafkaError) else error
        self._observers.notify("on_rebalance", RebalanceDone(latency_s, shown))


def _now() -> float:
    """Return the time of the running event loop, in which all events happen."""
    return asyncio.get_running_loop().time()


def partition_names(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions for the log."""
    return listed(f"{topic}-{partition}" for topic, partition in sorted(partitions))


def for_observers(error: KafkaError | None) -> KafkaError | None:
    """Return an error for observers: calls of the application may raise the original."""
    return None if error is None else copy_of(error)

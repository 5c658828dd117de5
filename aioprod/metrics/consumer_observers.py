"""Observers of a consumer, which are called for polls, records, commits, rebalances and stalls."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

from aioprod.metrics.observing import ObserverList, RequestDone
from aioprod.public_module import set_module
from aioprod.types import OffsetAndMetadata, TopicPartition

PartitionsEvent = Literal["assigned", "revoked", "lost"]


@set_module("aioprod.metrics")
class RecordsReturned(NamedTuple):
    """Records of one partition that were returned to the application.

    Attributes:
        topic, partition: where they were read.
        records: their number.
    """

    topic: str
    partition: int
    records: int


@set_module("aioprod.metrics")
class CommitDone(NamedTuple):
    """A commit that the coordinator acknowledged, or that failed.

    Attributes:
        offsets: the positions.
        latency_s: seconds from the call to its outcome, including retries.
        error: None if it was acknowledged.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    latency_s: float
    error: Exception | None


@set_module("aioprod.metrics")
class PartitionsChanged(NamedTuple):
    """Partitions that were assigned to this consumer, or revoked or lost.

    Attributes:
        event: ``assigned``, ``revoked``, or ``lost`` (other members may have them already).
        partitions: the partitions.
        listener_s: seconds in the rebalance listener.
    """

    event: PartitionsEvent
    partitions: tuple[TopicPartition, ...]
    listener_s: float


@set_module("aioprod.metrics")
class TopicRecreated(NamedTuple):
    """A topic that was deleted and created again while this consumer read it.

    Attributes:
        topic: its name.
        partitions: its assigned partitions that had a position.
        former_topic_id, topic_id: the ids of the deleted and of the new topic (KIP-516).
    """

    topic: str
    partitions: tuple[TopicPartition, ...]
    former_topic_id: uuid.UUID
    topic_id: uuid.UUID


@set_module("aioprod.metrics")
class RebalanceDone(NamedTuple):
    """A rebalance that ended with a new assignment for this consumer, or failed.

    Attributes:
        latency_s: seconds since the rebalance began for this consumer: since it had to join
            (classic protocol), or since the coordinator sent another assignment (KIP-848).
        error: why it failed; the consumer retries. None if it succeeded.
    """

    latency_s: float
    error: BaseException | None


@set_module("aioprod.metrics")
class StallChanged(NamedTuple):
    """A partition that is stalled (not read although it has records), or is read again.

    Attributes:
        partition: None if the consumer waits for its group.
        reason: the event for which it waits or waited.
        seconds: time without progress.
        is_over: True if it is read again.
    """

    partition: TopicPartition | None
    reason: str
    seconds: float
    is_over: bool


@set_module("aioprod.metrics")
class ObservedConsumer(NamedTuple):
    """Metrics of a consumer or share consumer, which an observer may read at any time, in any
    thread.

    Attributes:
        client_id: the consumer's ``client_id``.
        group_id: its group, or None.
        metrics: see :meth:`aioprod.metrics.ConsumerMetrics.snapshot` and
            :meth:`aioprod.metrics.ShareConsumerMetrics.snapshot`.
        metrics_by_topic: see :meth:`aioprod.metrics.ConsumerMetrics.snapshot_by_topic`.
        metrics_by_partition: metrics of each assigned partition. Consumer: ``records-lag``,
            ``records-lead``, ``paused`` and ``stalled`` (0 or 1). Lag and lead are absent before
            the first fetch. Share consumer: ``records-buffered`` (fetched, and not returned yet)
            and ``stalled``.
        metrics_by_node: see :meth:`aioprod.metrics.ConsumerMetrics.snapshot_by_node`.
    """

    client_id: str
    group_id: str | None
    metrics: Callable[[], Mapping[str, float]]
    metrics_by_topic: Callable[[], Mapping[str, Mapping[str, float]]]
    metrics_by_partition: Callable[[], Mapping[TopicPartition, Mapping[str, float]]]
    metrics_by_node: Callable[[], Mapping[int, Mapping[str, float]]]


@set_module("aioprod.metrics")
class ConsumerObserver:
    """Base class of observers of a consumer; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again, and changes nothing. KeyboardInterrupt and SystemExit are also raised
    by the event loop.
    """

    def on_start(self, consumer: ObservedConsumer) -> None:
        """Called once, when the consumer starts to connect. If it is never started, only ``close``
        is called.
        """

    def on_request(self, event: RequestDone) -> None:
        """Called when a Fetch has received its response or failed."""

    def on_poll(self, interval_s: float) -> None:
        """Called when the application polls, with the seconds since the previous poll, which
        ``max_poll_interval_ms`` limits. While ``async for`` returns buffered records, that is about
        once a second.
        """

    def on_records(self, event: RecordsReturned) -> None:
        """Called when records of a partition were returned to the application; with ``async for``
        and ``getone``, after the last decoded record, or at the next poll.
        """

    def on_commit(self, event: CommitDone) -> None:
        """Called when a commit is acknowledged or has failed."""

    def on_partitions(self, event: PartitionsChanged) -> None:
        """Called when partitions were assigned, revoked or lost, after the rebalance listener."""

    def on_topic_recreated(self, event: TopicRecreated) -> None:
        """Called when a topic was deleted and created again: ``auto_offset_reset`` decides where
        its partitions continue. Records and positions of the deleted topic are discarded.
        """

    def on_rebalance(self, event: RebalanceDone) -> None:
        """Called when a rebalance has completed for this consumer, or failed."""

    def on_stall(self, event: StallChanged) -> None:
        """Called when a partition was not read for ``stall_timeout_ms``, or is read again."""

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        """Called when a connection to ``address`` is opened or closed. ``node_id`` -1 is a
        bootstrap server. A consumer has two connections to each broker that it reads from.
        """

    def close(self) -> None:
        """Called once, last, when the consumer is closed."""


class ConsumerObservers(ObserverList[ConsumerObserver]):
    """The observers of a consumer."""

    def __init__(self, observers: Iterable[ConsumerObserver] = ()) -> None:
        super().__init__(ConsumerObserver, observers)

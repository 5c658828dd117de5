"""Observers of a share consumer, which are called for polls, records, acknowledgements, assignments
and stalls.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aioprod.metrics.consumer_observers import ObservedConsumer, StallChanged
from aioprod.metrics.observing import ObserverList, RequestDone
from aioprod.public_module import set_module
from aioprod.types import AcknowledgeType, ShareRecord, TopicPartition


@set_module("aioprod.metrics")
class RecordsDelivered(NamedTuple):
    """Records of one partition that a share consumer returned to the application.

    Attributes:
        topic, partition: their topic and partition.
        records: the records, in their order. An observer must not keep them for long.
    """

    topic: str
    partition: int
    records: Sequence[ShareRecord]


@set_module("aioprod.metrics")
class AcknowledgementsDone(NamedTuple):
    """Acknowledgements that the broker confirmed, or that failed.

    Attributes:
        topic, partition: topic and partition of the records.
        numbers: the number of records by type; types without records are absent.
        latency_s: seconds from the first of them to the outcome, including retries.
        error: None if they were confirmed; otherwise, the records may be delivered again.
    """

    topic: str
    partition: int
    numbers: Mapping[AcknowledgeType, int]
    latency_s: float
    error: Exception | None


@set_module("aioprod.metrics")
class AssignmentChanged(NamedTuple):
    """A new assignment of this member. Other members may have the same partitions.

    Attributes:
        partitions: all partitions that this member reads from now on.
        added, removed: the differences from the previous assignment.
    """

    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    removed: tuple[TopicPartition, ...]


@set_module("aioprod.metrics")
class ShareConsumerObserver:
    """Base class of observers of a share consumer; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again, and changes nothing. KeyboardInterrupt and SystemExit are also raised
    by the event loop.
    """

    def on_start(self, consumer: ObservedConsumer) -> None:
        """Called once, when the consumer starts to connect. If it is never started, only ``close``
        is called.
        """

    def on_request(self, event: RequestDone) -> None:
        """Called when a ShareFetch or ShareAcknowledge has received its response or failed."""

    def on_poll(self, interval_s: float) -> None:
        """Called when the application polls, with the seconds since the previous poll, which
        ``max_poll_interval_ms`` limits.
        """

    def on_records(self, event: RecordsDelivered) -> None:
        """Called when records of a partition are returned to the application."""

    def on_acknowledged(self, event: AcknowledgementsDone) -> None:
        """Called when acknowledgements of a partition were confirmed or failed, after
        ``acknowledgement_commit_callback``.
        """

    def on_assignment(self, event: AssignmentChanged) -> None:
        """Called when the partitions of this member have changed: the coordinator assigned others,
        or the member has left the group.
        """

    def on_stall(self, event: StallChanged) -> None:
        """Called when a partition was not read for ``stall_timeout_ms``, or is read again."""

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        """Called when a connection to ``address`` is opened or closed. ``node_id`` -1 is a
        bootstrap server. A share consumer has two connections to each broker that it reads from.
        """

    def close(self) -> None:
        """Called once, last, when the consumer is closed."""


class ShareConsumerObservers(ObserverList[ShareConsumerObserver]):
    """The observers of a share consumer."""

    def __init__(self, observers: Iterable[ShareConsumerObserver] = ()) -> None:
        super().__init__(ShareConsumerObserver, observers)

"""Observers of a producer, which are called for each batch, request and connection."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from aioprod.metrics.observing import ObserverList, RequestDone
from aioprod.public_module import set_module


@set_module("aioprod.metrics")
class BatchSent(NamedTuple):
    """A batch that was added to a request.

    Attributes:
        topic, partition, node_id: its destination.
        records: the number of records.
        batch_bytes, uncompressed_bytes: its size, and its size before compression.
        attempt: 1 for the first request with this batch.
        queue_time_s: seconds since the batch was opened.
    """

    topic: str
    partition: int
    node_id: int
    records: int
    batch_bytes: int
    uncompressed_bytes: int
    attempt: int
    queue_time_s: float


@set_module("aioprod.metrics")
class BatchDone(NamedTuple):
    """A batch that was acknowledged or has failed.

    Attributes:
        topic, partition: its destination.
        records: the number of records.
        batch_bytes: its size as sent; its size in memory if it was not sent.
        attempts: the number of requests with this batch; 0 if it was not sent.
        queue_time_s: seconds from its opening to the first request; to its outcome if it was not
            sent.
        latency_s: seconds from its opening to its outcome.
        error: None if it was acknowledged.
    """

    topic: str
    partition: int
    records: int
    batch_bytes: int
    attempts: int
    queue_time_s: float
    latency_s: float
    error: Exception | None


@set_module("aioprod.metrics")
class ObservedProducer(NamedTuple):
    """Metrics of a producer, which an observer may read at any time, in any thread.

    Attributes:
        client_id: the producer's ``client_id``.
        metrics: see :meth:`aioprod.metrics.ProducerMetrics.snapshot`.
        metrics_by_topic: see :meth:`aioprod.metrics.ProducerMetrics.snapshot_by_topic`.
        metrics_by_node: see :meth:`aioprod.metrics.ProducerMetrics.snapshot_by_node`.
    """

    client_id: str
    metrics: Callable[[], Mapping[str, float]]
    metrics_by_topic: Callable[[], Mapping[str, Mapping[str, float]]]
    metrics_by_node: Callable[[], Mapping[int, Mapping[str, float]]]


@set_module("aioprod.metrics")
class ProducerObserver:
    """Base class of observers; override the methods that you need.

    All methods run in the event loop and must not block. An error in a method is logged, once until
    the method succeeds again, and changes nothing. KeyboardInterrupt and SystemExit are also raised
    by the event loop.
    """

    def on_start(self, producer: ObservedProducer) -> None:
        """Called once, when the producer starts to connect. If it is never started, only ``close``
        is called.
        """

    def on_batch_sent(self, event: BatchSent) -> None:
        """Called when a batch is added to a request."""

    def on_batch_done(self, event: BatchDone) -> None:
        """Called when a batch was acknowledged or failed."""

    def on_request(self, event: RequestDone) -> None:
        """Called when a request has received its response or failed."""

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        """Called when a connection to ``address`` is opened or closed. ``node_id`` -1 is a
        bootstrap server.
        """

    def close(self) -> None:
        """Called once, last, when the producer is closed."""


class ProducerObservers(ObserverList[ProducerObserver]):
    """The observers of a producer."""

    def __init__(self, observers: Iterable[ProducerObserver] = ()) -> None:
        super().__init__(ProducerObserver, observers)

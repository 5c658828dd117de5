"""Reports batches, requests and connections to metrics, observers, interceptors and the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aioprod.errors import KafkaError, copy_of
from aioprod.interceptors import InterceptorChain
from aioprod.logs import Logger, get_logger
from aioprod.metrics import BatchDone, BatchSent, ProducerMetrics, ProducerObservers, RequestDone
from aioprod.producer.batch import BatchState, ProducerBatch, place_of
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.types import TopicPartition

log: Logger = get_logger(__name__)

# The number of failing topics to remember; each failure of other topics is logged.
_MAX_FAILING_TOPICS = 10_000


class BatchReporter:
    """Reports the end of each batch.

    Args:
        client_id: the producer's, for the log.

    Attributes:
        wants_records: whether an interceptor needs the records when their batch ends.
    """

    def __init__(
        self,
        client_id: str,
        metrics: ProducerMetrics,
        observers: ProducerObservers,
        interceptors: InterceptorChain,
    ) -> None:
        self._client_id = client_id
        self._metrics = metrics
        self._observers = observers
        self._interceptors = interceptors
        self._observed = bool(observers)
        self._intercepted = bool(interceptors)
        self.wants_records: bool = interceptors.wants_records
        self._failing: dict[str, set[int]] = {}
        self._unseen: set[str] = set()

    def ended(self, batch: ProducerBatch) -> None:
        """Report a batch that was acknowledged or has failed; a split one by its parts."""
        if batch.state is BatchState.SPLIT:
            return
        now = batch.loop.time()
        if batch.error is None:
            self._metrics.batch_succeeded(batch.topic, batch.writer.count, now)
            if self._failing:
                self._note_stored(batch.tp)
        else:
            self._metrics.batch_failed(batch.tp.topic, batch.count, now)
            if batch.state is BatchState.FAILED:
                self._note_given_up(batch)
        if self._observed:
            self._observers.notify("on_batch_done", _summary(batch, now))
        if self._intercepted:
            error = _error_of(batch)
            for index in range(batch.count):
                metadata = batch.place(index)
                self._interceptors.on_acknowledgement(metadata, error)
                if batch.records is not None:
                    self._interceptors.on_delivery(batch.records[index], metadata, error)

    def refused(self, topic: str, count: int, now: float) -> None:
        """Report records that were not accepted; ``now`` is loop time."""
        self._metrics.batch_failed(topic, count, now)

    def dropped(self, batch: ProducerBatch) -> None:
        """Log a failure that no caller has seen: once for each topic, until it recovers."""
        topic = batch.tp.topic
        if topic not in self._unseen:
            if len(self._unseen) < _MAX_FAILING_TOPICS:
                self._unseen.add(topic)
            log.error(
                "%s: delivery to %s failed and no task awaited it (logged once until it recovers): "
                "%s",
                self._client_id,
                place_of(batch.tp),
                batch.error,
            )

    def _note_given_up(self, batch: ProducerBatch) -> None:
        topic, partition = batch.tp
        failing = self._failing.get(topic)
        if failing is None:
            log.warning(
                "%s: delivery to topic %r failed (logged once until it recovers): %s",
                self._client_id,
                topic,
                batch.error,
            )
            if len(self._failing) >= _MAX_FAILING_TOPICS:
                return
            failing = self._failing[topic] = set()
        failing.add(partition)

    def _note_stored(self, tp: TopicPartition) -> None:
        failing = self._failing.get(tp.topic)
        if failing is None:
            return
        failing.discard(tp.partition)
        if not failing:
            del self._failing[tp.topic]
            self._unseen.discard(tp.topic)
            log.info("%s: delivery to topic %r has recovered", self._client_id, tp.topic)


class RequestReporter:
    """Reports Produce requests and the batches in them. Times are loop times in seconds."""

    def __init__(self, metrics: ProducerMetrics, observers: ProducerObservers) -> None:
        self._metrics = metrics
        self._observers = observers
        self._observed = bool(observers)

    def sent(
        self,
        node_id: int,
        batches: Sequence[ProducerBatch],
        buffers: Sequence[bytes | memoryview],
        now: float,
    ) -> None:
        """Report a request that was written."""
        records = 0
        for batch in batches:
            writer = batch.writer
            count, plain_size = writer.count, writer.size + HEADER_SIZE
            size = len(batch.encoded) if batch.encoded is not None else 0
            queue_time_s = now - batch.created_at
            records += count
            self._metrics.batch_sent(batch.topic, count, size, plain_size, queue_time_s, now)
            if self._observed:
                self._observers.notify(
                    "on_batch_sent",
                    BatchSent(
                        batch.topic,
                        batch.partition,
                        node_id,
                        count,
                        size,
                        plain_size,
                        batch.attempts,
                        queue_time_s,
                    ),
                )
        self._metrics.request_sent(node_id, records, sum(map(len, buffers)), now)

    def replied(self, node_id: int, sent_at: float, throttle_time_ms: int, now: float) -> None:
        """Report the reply to a request."""
        if self._observed:
            self._observers.notify(
                "on_request", RequestDone(node_id, "Produce", now - sent_at, None)
            )
        self._metrics.request_done(node_id, now - sent_at, now)
        if throttle_time_ms:
            self._metrics.throttled(node_id, throttle_time_ms, now)

    def failed(self, node_id: int, sent_at: float, error: KafkaError, now: float) -> None:
        """Report a request that gets no reply."""
        if self._observed:
            self._observers.notify(
                "on_request", RequestDone(node_id, "Produce", now - sent_at, error)
            )


class ConnectionReporter:
    """Reports connections that open and close.

    Args:
        now: loop time in seconds.
    """

    def __init__(
        self, metrics: ProducerMetrics, observers: ProducerObservers, now: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._observers = observers
        self._now = now

    def changed(self, node_id: int, address: str, opened: bool, error: KafkaError | None) -> None:
        """Report a connection that was opened, or was closed because of ``error``."""
        if opened:
            self._metrics.connection_opened(self._now())
        else:
            self._metrics.connection_closed(self._now())
        self._observers.notify("on_connection", node_id, address, opened, error)


def _error_of(batch: ProducerBatch) -> KafkaError | None:
    """Return the error for an application that may raise it."""
    return None if batch.error is None else copy_of(batch.error)


def _summary(batch: ProducerBatch, now: float) -> BatchDone:
    first_sent_at = batch.first_sent_at if batch.attempts else now
    return BatchDone(
        topic=batch.tp.topic,
        partition=batch.tp.partition,
        records=batch.count,
        batch_bytes=len(batch.encoded) if batch.encoded is not None else batch.writer.size,
        attempts=batch.attempts,
        queue_time_s=first_sent_at - batch.created_at,
        latency_s=now - batch.created_at,
        error=_error_of(batch),
    )

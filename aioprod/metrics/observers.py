"""The hook for those who want to watch a producer: per batch, request and connection, never per
record.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from aioprod.user_code import surface

log = logging.getLogger(__name__)


class BatchSent(NamedTuple):
    """A batch went into a request.

    Attributes:
        topic, partition, node_id: where to.
        records: how many records.
        batch_bytes, uncompressed_bytes: its size as sent, and before compression.
        attempt: 1 for the first time.
        queue_time_s: seconds since it was opened.
    """

    topic: str
    partition: int
    node_id: int
    records: int
    batch_bytes: int
    uncompressed_bytes: int
    attempt: int
    queue_time_s: float


class BatchDone(NamedTuple):
    """A batch has its outcome.

    Attributes:
        topic, partition: where to.
        records: how many records.
        batch_bytes: its size as sent, or as it was in memory where it never was.
        attempts: how often it was sent; 0 where it failed before.
        queue_time_s: seconds from opening it to sending it first (to the end where it never was).
        latency_s: seconds from opening it to its outcome.
        error: None for success.
    """

    topic: str
    partition: int
    records: int
    batch_bytes: int
    attempts: int
    queue_time_s: float
    latency_s: float
    error: Exception | None


class RequestDone(NamedTuple):
    """A request has its answer, or will have none.

    Attributes:
        node_id: the broker.
        api: the request's name in Kafka's protocol, such as ``"Produce"``.
        latency_s: seconds since it was written.
        error: why there is no answer; None where there is one, whatever it says, and where the
            request was cancelled.
    """

    node_id: int
    api: str
    latency_s: float
    error: Exception | None


class ObservedProducer(NamedTuple):
    """What an observer may ask a producer at any time, from any thread.

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


class ProducerObserver:
    """Hears what a producer does, per batch, request and connection; override what you need.

    The methods run on the event loop in the middle of sending: they must be quick and must not
    block. An error of any kind is logged, once until the method succeeds again, and changes
    nothing. KeyboardInterrupt and SystemExit are raised by the event loop after that.
    """

    def on_start(self, producer: ObservedProducer) -> None:
        """The producer begins to connect; called once, before all others but ``close``, which alone
        hears of one that was never started.
        """

    def on_batch_sent(self, event: BatchSent) -> None:
        """A batch went into a request."""

    def on_batch_done(self, event: BatchDone) -> None:
        """A batch was acknowledged or given up."""

    def on_request(self, event: RequestDone) -> None:
        """A request was answered or lost."""

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        """A connection to ``address`` was made (``opened``), or one that had been made ended; node
        -1 is a bootstrap server.
        """

    def close(self) -> None:
        """The producer is closed; called once, after all others."""


class Observers:
    """Several observers as one; False when there are none, so that no event need be made."""

    def __init__(self, observers: Iterable[ProducerObserver] = ()) -> None:
        self._observers = tuple(observers)
        self._failing: set[tuple[int, str]] = set()
        self._started = False
        # Only those that override a method are called for it.
        self._batch_sent = self._overriding("on_batch_sent")
        self._batch_done = self._overriding("on_batch_done")
        self._request = self._overriding("on_request")
        self._connection = self._overriding("on_connection")

    def __bool__(self) -> bool:
        return bool(self._observers)

    def on_start(self, producer: ObservedProducer) -> None:
        """See :class:`ProducerObserver`, as for the others. A start that is tried again is told of
        once.
        """
        if not self._started:
            self._started = True
            self._tell("on_start", self._observers, producer)

    def on_batch_sent(self, event: BatchSent) -> None:
        self._tell("on_batch_sent", self._batch_sent, event)

    def on_batch_done(self, event: BatchDone) -> None:
        self._tell("on_batch_done", self._batch_done, event)

    def on_request(self, event: RequestDone) -> None:
        self._tell("on_request", self._request, event)

    def on_connection(
        self, node_id: int, address: str, opened: bool, error: Exception | None
    ) -> None:
        self._tell("on_connection", self._connection, node_id, address, opened, error)

    def close(self) -> None:
        self._tell("close", self._observers)

    def _overriding(self, method: str) -> tuple[ProducerObserver, ...]:
        base = getattr(ProducerObserver, method)
        return tuple(
            observer
            for observer in self._observers
            if getattr(type(observer), method, None) is not base
        )

    def _tell(self, method: str, observers: tuple[ProducerObserver, ...], *event: Any) -> None:
        for observer in observers:
            try:
                getattr(observer, method)(*event)
            except BaseException as error:
                self._failed(observer, method, error)
            else:
                if self._failing:
                    self._failing.discard((id(observer), method))

    def _failed(self, observer: ProducerObserver, method: str, error: BaseException) -> None:
        # Once until it works again: a broken observer must not fill the log.
        if (id(observer), method) not in self._failing:
            self._failing.add((id(observer), method))
            name = type(observer).__name__
            log.error("%s.%s failed; sending goes on", name, method, exc_info=error)
            surface(error)

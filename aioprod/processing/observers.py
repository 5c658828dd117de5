"""Observers of a processor, and its metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import NamedTuple

from aioprod import ConsumerRecord, KafkaError, TopicPartition
from aioprod.metrics import ObserverList
from aioprod.processing.scheduling import Item
from aioprod.public_module import set_module

_TOTALS = (
    "records-handled-total",
    "records-retried-total",
    "records-dead-lettered-total",
    "handler-errors-total",
    "commits-total",
)


@set_module("aioprod.processing")
class Handling(NamedTuple):
    """A call of the handler begins.

    Attributes:
        records: the records with keys and values as bytes: one, or those of a batch.
        is_batch: whether the handler is called with a list.
        attempt: the number of the call with the first record, from 1.
    """

    records: Sequence[ConsumerRecord]
    is_batch: bool
    attempt: int


@set_module("aioprod.processing")
class Handled(NamedTuple):
    """A call of the handler succeeded.

    Attributes:
        topic, partition: topic and partition of the first record.
        records: the number of records.
        seconds: the time in the handler.
    """

    topic: str
    partition: int
    records: int
    seconds: float


@set_module("aioprod.processing")
class HandlerFailed(NamedTuple):
    """A call of the handler failed, or a record could not be deserialized.

    Attributes:
        topic, partition, offset: the record's; of a batch, the first record's.
        records: the number of records.
        attempt: the number of the call with this record, from 1.
        error: the error.
        next_step: ``retry``, ``one by one`` (a batch), the name of a retry topic, ``release`` (to
            any member of a share group), ``dead letter``, ``drop`` (the record is skipped) or
            ``stop``.
        seconds: the time in the handler.
    """

    topic: str
    partition: int
    offset: int
    records: int
    attempt: int
    error: BaseException
    next_step: str
    seconds: float


@set_module("aioprod.processing")
class DeadLettered(NamedTuple):
    """A record was sent to the dead-letter topic; with ``exactly_once``, it is visible when the
    transaction is committed.

    Attributes:
        record: the record with key and value as bytes.
        dead_letter_topic: the topic.
        attempts: the number of calls of the handler with it.
        error: the last error.
    """

    record: ConsumerRecord
    dead_letter_topic: str
    attempts: int
    error: BaseException


@set_module("aioprod.processing")
class OffsetsCommitted(NamedTuple):
    """Positions that were committed.

    Attributes:
        offsets: the offset of the next record, by partition.
    """

    offsets: Mapping[TopicPartition, int]


@set_module("aioprod.processing")
class Acknowledged(NamedTuple):
    """Acknowledgements in a share group have an outcome.

    Attributes:
        offsets: the offsets of the acknowledged records, by partition.
        error: None if the broker has confirmed them; otherwise the records may be handled again.
    """

    offsets: Mapping[TopicPartition, frozenset[int]]
    error: KafkaError | None


@set_module("aioprod.processing")
class ObservedProcessor(NamedTuple):
    """Metrics of a processor, which an observer may read at any time, in any thread.

    Attributes:
        client_id: the ``client_id`` of its consumer.
        group_id: its group.
        metrics: see :meth:`Processor.metrics`.
        metrics_by_partition: see :meth:`Processor.metrics_by_partition`.
    """

    client_id: str
    group_id: str
    metrics: Callable[[], Mapping[str, float]]
    metrics_by_partition: Callable[[], Mapping[TopicPartition, Mapping[str, float]]]


@set_module("aioprod.processing")
class ProcessorObserver:
    """Base class of observers: override the methods that you need.

    All methods run in the event loop and must not block. If a method raises an error, it is logged
    (once, until the method succeeds again) and ignored. The event loop also raises
    KeyboardInterrupt and SystemExit.
    """

    def on_start(self, processor: ObservedProcessor) -> None:
        """Called once, when the processor starts to connect. If it is never started, no other
        method is called.
        """

    def handling(self, event: Handling) -> AbstractContextManager[object] | None:
        """Return a context manager for a call of the handler, or None. The handler runs inside it,
        in the same task, and sees context variables that it sets. It exits when the producer has
        the outputs (with ``exactly_once``: when they are kept for the transaction), or with the
        error, which it can't suppress.
        """
        return None

    def on_handled(self, event: Handled) -> None:
        """Called when the handler has succeeded, and its outputs are acknowledged."""

    def on_handler_failed(self, event: HandlerFailed) -> None:
        """Called when the handler or one of its outputs has failed, or a record could not be
        deserialized.
        """

    def on_dead_letter(self, event: DeadLettered) -> None:
        """Called when a record was sent to the dead-letter topic."""

    def on_offsets_committed(self, event: OffsetsCommitted) -> None:
        """Called when positions are committed."""

    def on_acknowledged(self, event: Acknowledged) -> None:
        """Called with the outcome of acknowledgements in a share group."""

    def close(self) -> None:
        """Called once, as the last method, when the processor has ended."""


_NO_SURROUNDINGS = nullcontext()


class _Surroundings:
    """The observers' context managers for one call of the handler."""

    def __init__(self, observers: ObserverList[ProcessorObserver], event: Handling) -> None:
        self._observers = observers
        self._event = event
        self._open: list[tuple[ProcessorObserver, AbstractContextManager[object]]] = []

    def __enter__(self) -> None:
        for observer in self._observers.overriding("handling"):
            try:
                manager = observer.handling(self._event)
                if manager is not None:
                    manager.__enter__()
                    self._open.append((observer, manager))
            except BaseException as error:
                self._observers.failed(observer, "handling", error)
            else:
                self._observers.succeeded(observer, "handling")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for observer, manager in reversed(self._open):
            try:
                manager.__exit__(kind, error, traceback)
            except BaseException as own:
                if own is not error:
                    self._observers.failed(observer, "handling", own)


class ProcessorMetrics:
    """Counts events, and calls the observers.

    Attributes:
        totals: counts since the start.
        handler_seconds: the time in handlers since the start.
        clock: the wall clock, in seconds since 1970.
    """

    def __init__(self, observers: Iterable[ProcessorObserver]) -> None:
        self._observers = ObserverList(ProcessorObserver, observers)
        self.clock: Callable[[], float] = time.time
        self.totals: Counter[str] = Counter()
        self.handler_seconds: float = 0.0

    def started(self, processor: ObservedProcessor) -> None:
        """Call the observers: the processor starts."""
        self._observers.start(processor)

    def close(self) -> None:
        """Close the observers."""
        self._observers.close()

    def handling(self, items: Sequence[Item], is_batch: bool) -> AbstractContextManager[None]:
        """Return the context manager in which the handler is called."""
        if not self._observers.wants("handling"):
            return _NO_SURROUNDINGS
        records = [item.record for item in items]
        return _Surroundings(self._observers, Handling(records, is_batch, items[0].attempt))

    def handled(self, first: ConsumerRecord, records: int, seconds: float) -> None:
        """Count a call that succeeded. The event is created only if an observer wants it: this runs
        once per record.
        """
        self.totals["records-handled-total"] += records
        self.handler_seconds += seconds
        if self._observers.wants("on_handled"):
            event = Handled(first.topic, first.partition, records, seconds)
            self._observers.notify("on_handled", event)

    def failed(self, event: HandlerFailed) -> None:
        self.totals["handler-errors-total"] += 1
        if event.next_step not in ("dead letter", "drop", "stop"):
            self.totals["records-retried-total"] += event.records
        self.handler_seconds += event.seconds
        self._observers.notify("on_handler_failed", event)

    def dead_lettered(self, event: DeadLettered) -> None:
        self.totals["records-dead-lettered-total"] += 1
        self._observers.notify("on_dead_letter", event)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.totals["commits-total"] += 1
        self._observers.notify("on_offsets_committed", OffsetsCommitted(offsets))

    def acknowledged(self, event: Acknowledged) -> None:
        self._observers.notify("on_acknowledged", event)

    def snapshot(self) -> dict[str, float]:
        """Return the counts."""
        counts = {name: float(self.totals[name]) for name in _TOTALS}
        return {**counts, "handler-time-seconds-total": self.handler_seconds}

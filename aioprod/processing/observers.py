"""Observers of a processor, and its figures."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from aioprod import ConsumerRecord, TopicPartition
from aioprod.public_module import set_module
from aioprod.user_code import surface

log = logging.getLogger(__name__)

_TOTALS = (
    "records-handled-total",
    "records-retried-total",
    "records-dead-lettered-total",
    "handler-errors-total",
    "commits-total",
)


@set_module("aioprod.processing")
class Handled(NamedTuple):
    """A call of the handler that succeeded.

    Attributes:
        topic, partition: of the first record.
        records: the number of records.
        seconds: the time in the handler.
    """

    topic: str
    partition: int
    records: int
    seconds: float


@set_module("aioprod.processing")
class HandlerFailed(NamedTuple):
    """A call of the handler that failed, or a record that can't be deserialized.

    Attributes:
        topic, partition, offset: where the record was read, for a batch the first one.
        records: the number of records.
        attempt: the number of the call with this record.
        error: the error.
        next_step: ``retry``, ``one by one`` (a batch), the name of a retry topic, ``dead letter``
            or ``stop``.
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
    """A record that is in the dead-letter topic; with ``exactly_once``, that will be when its
    transaction is committed.

    Attributes:
        record: the record as stored: bytes.
        dead_letter_topic: the topic.
        attempts: the calls of the handler with it.
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
class ProcessorObserver:
    """Base class of observers: override what you need.

    All methods run in the event loop and must not block. An error in a method is logged and changes
    nothing; KeyboardInterrupt and SystemExit are also raised by the event loop.
    """

    def on_handled(self, event: Handled) -> None:
        """Called when the handler has succeeded."""

    def on_handler_failed(self, event: HandlerFailed) -> None:
        """Called when the handler has failed, or a record can't be deserialized."""

    def on_dead_letter(self, event: DeadLettered) -> None:
        """Called when a record is in the dead-letter topic."""

    def on_offsets_committed(self, event: OffsetsCommitted) -> None:
        """Called when positions are committed."""


class ProcessorFigures:
    """Counts what happens, and tells the observers.

    Attributes:
        totals: counts since the start.
        handler_seconds: the time in handlers since the start.
        clock: the wall clock, in seconds since 1970.
    """

    def __init__(self, observers: Iterable[ProcessorObserver]) -> None:
        self._observers = tuple(observers)
        self.clock = time.time
        self.totals: Counter[str] = Counter()
        self.handler_seconds = 0.0

    def handled(self, event: Handled) -> None:
        self.totals["records-handled-total"] += event.records
        self.handler_seconds += event.seconds
        self._tell("on_handled", event)

    def failed(self, event: HandlerFailed) -> None:
        self.totals["handler-errors-total"] += 1
        if event.next_step not in ("dead letter", "stop"):
            self.totals["records-retried-total"] += event.records
        self.handler_seconds += event.seconds
        self._tell("on_handler_failed", event)

    def dead_lettered(self, event: DeadLettered) -> None:
        self.totals["records-dead-lettered-total"] += 1
        self._tell("on_dead_letter", event)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.totals["commits-total"] += 1
        self._tell("on_offsets_committed", OffsetsCommitted(offsets))

    def snapshot(self) -> dict[str, float]:
        """Return the counts."""
        counts = {name: float(self.totals[name]) for name in _TOTALS}
        return {**counts, "handler-time-seconds-total": self.handler_seconds}

    def _tell(self, method: str, event: object) -> None:
        for observer in self._observers:
            try:
                getattr(observer, method)(event)
            except BaseException as error:
                name = type(observer).__name__
                log.error("%s.%s failed", name, method, exc_info=error)
                surface(error)

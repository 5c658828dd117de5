"""A batch of records of one partition, from its first record to its one final state."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from typing import Protocol, Self

from aioprod.errors import KafkaError, WrongEventLoopError
from aioprod.protocol.compression import Codec
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import Headers, ProducerRecord, RecordMetadata, TopicPartition
from aioprod.user_code import surface

log = logging.getLogger(__name__)

# A large batch is encoded in parts, so that the event loop has its turn in between, and small
# records do not take much more memory than they count.
ENCODE_EVERY = 65_536


class BatchState(Enum):
    """A batch ends once; only PENDING may change."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    SPLIT = "split"
    """Too large for the broker: its records travel on in the batches that ``parts`` names."""


class BatchEvents(Protocol):
    """Hears of the ends of batches.

    Attributes:
        wants_records: whether a batch has to keep its records until it ends.
    """

    @property
    def wants_records(self) -> bool: ...

    def ended(self, batch: ProducerBatch) -> None:
        """A batch has its outcome, or was split."""

    def dropped(self, batch: ProducerBatch) -> None:
        """A batch that failed is garbage-collected, and no caller has seen its failure."""


class Identity(tuple[int, int]):
    """Producer id and epoch."""

    __slots__ = ()

    @property
    def producer_id(self) -> int:
        return self[0]

    @property
    def epoch(self) -> int:
        return self[1]


class ProducerBatch:
    """Records that travel together.

    Args:
        tp: the partition.
        writer: takes the encoded records.
        limit: bytes of records after which it is full; it may be raised while the batch is open.
        leased: bytes of the buffer pool that it holds.
        created_at: loop time, in seconds.
        order: its place among the partition's batches, larger with each; a retry goes back to its
            place by it.
        events: hears of its end.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_events",
        "_looked_at",
        "_waiters",
        "attempts",
        "base_offset",
        "base_sequence",
        "ceiling",
        "closed",
        "codec",
        "created_at",
        "encoded",
        "error",
        "first_sent_at",
        "identity",
        "in_doubt",
        "in_flight",
        "leased",
        "limit",
        "loop",
        "may_be_stored",
        "open_until",
        "order",
        "partition",
        "parts",
        "records",
        "retry_at",
        "state",
        "timestamp",
        "topic",
        "tp",
        "unanswered_at",
        "writer",
    )

    def __init__(
        self,
        tp: TopicPartition,
        writer: RecordBatchWriter,
        *,
        limit: int,
        leased: int,
        created_at: float,
        order: tuple[int, ...],
        events: BatchEvents,
    ) -> None:
        self.tp = tp
        self.writer = writer
        self.limit = limit
        self.open_until = min(limit, ENCODE_EVERY)
        # how far the limit may grow while the batch is open, because compression will make it small
        # enough
        self.ceiling = limit
        self.leased = leased
        self.created_at = created_at
        self.order = order
        self.loop = asyncio.get_running_loop()
        self.state = BatchState.PENDING
        self.closed = False  # takes no more records
        self.in_flight = False
        self.attempts = 0
        self.retry_at = 0.0
        self.first_sent_at = 0.0
        self.identity: Identity | None = None
        self.base_sequence = -1
        self.may_be_stored = False  # an attempt ended without the broker's word
        self.unanswered_at = 0.0  # the last such attempt's end
        # A part of one that may be stored whole (the limit was lowered between its attempts): the
        # broker would know the whole as a duplicate, but finds a part out of order. It must not be
        # written under other numbers.
        self.in_doubt = False
        self.codec = Codec.NONE
        self.encoded: bytes | None = None
        self.base_offset = -1
        self.topic, self.partition = tp
        self.timestamp: int | None = None  # of all records, where they have the same
        self.error: KafkaError | None = None
        self.parts: list[tuple[int, ProducerBatch]] = []
        self.records: list[ProducerRecord] | None = [] if events.wants_records else None
        self._events = events
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._callbacks: list[tuple[int, Callable[[ProducerBatch, int], object]]] = []
        self._looked_at = False

    @classmethod
    def refused(cls, tp: TopicPartition, error: KafkaError, events: BatchEvents) -> Self:
        """Return a batch that has failed already, for records that were never taken. ``events``
        hears of it only if no caller sees the failure.
        """
        writer = RecordBatchWriter(-1)
        batch = cls(tp, writer, limit=0, leased=0, created_at=0.0, order=(), events=events)
        batch.error, batch.state, batch.closed = error, BatchState.FAILED, True
        batch.records = None
        writer.release()
        return batch

    @property
    def count(self) -> int:
        return self.writer.count

    def try_append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        upper_bound: int,
    ) -> int:
        """Add a record and return its index; -1 when the batch is full or no longer open. A first
        record always fits.
        """
        writer = self.writer
        index = writer.count
        if self.closed or (writer.size + upper_bound > self.limit and index):
            return -1
        writer.append(timestamp, key, value, headers)
        return index

    def is_to_fold(self, upper_bound: int) -> bool:
        """Whether a part of a large batch is complete, so that it should be encoded before the next
        record comes.
        """
        size = self.writer.size
        is_folded = size + ENCODE_EVERY <= self.open_until
        return (
            self.open_until < self.limit and size + upper_bound > self.open_until and not is_folded
        )

    def fold(self) -> None:
        """Encode what is not encoded yet, and see how much room is left."""
        self.writer.encode_pending()
        self.open_until = min(self.limit, self.writer.size + ENCODE_EVERY)

    def metadata(self, index: int) -> RecordMetadata:
        """The outcome of one record.

        Raises:
            KafkaError: its batch failed.
        """
        if self.error is not None:
            self._looked_at = True
            # Many may ask, and each raise would add its frames to the one traceback.
            raise self.error.with_traceback(None)
        return self.place(index)

    def place(self, index: int) -> RecordMetadata:
        """Where a record is, with offset and timestamp -1 where it failed."""
        if self.error is not None:
            return RecordMetadata(self.topic, self.partition, -1, -1)
        writer = self.writer
        return RecordMetadata(
            self.topic,
            self.partition,
            self.base_offset + index if self.base_offset >= 0 else -1,
            self.timestamp if self.timestamp is not None else writer.timestamp(index),
            writer.key_sizes[index] if writer.key_sizes else -1,
            writer.value_sizes[index] if writer.value_sizes else -1,
        )

    def failure(self) -> KafkaError | None:
        """Why it failed, if it did; whoever asks has looked at it."""
        self._looked_at = True
        return self.error

    def part_of(self, index: int) -> tuple[ProducerBatch, int]:
        """The batch that a record of a split one travels in now, and its index there."""
        batch = self
        while batch.state is BatchState.SPLIT:
            start, part = batch.parts[
                bisect_right(batch.parts, index, key=lambda entry: entry[0]) - 1
            ]
            batch, index = part, index - start
        return batch, index

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """The broker has it."""
        self.base_offset = base_offset
        self.timestamp = log_append_time if log_append_time >= 0 else self.writer.only_timestamp
        self._finish(BatchState.SUCCEEDED)

    def fail(self, error: KafkaError, state: BatchState = BatchState.FAILED) -> None:
        """It won't be sent (again); every record of it gets ``error``."""
        self.error = error
        self._finish(state)

    def split(self) -> list[ProducerBatch]:
        """Hand the records on to smaller batches, each of about half the size; deliveries and
        callbacks follow them.
        """
        writers = self.writer.halves()
        leases = [self.leased // len(writers)] * len(writers)
        leases[0] += self.leased - sum(leases)
        start = 0
        for number, (writer, leased) in enumerate(zip(writers, leases, strict=True)):
            part = ProducerBatch(
                self.tp,
                writer,
                limit=writer.size,
                leased=leased,
                created_at=self.created_at,
                order=(*self.order, number),
                events=self._events,
            )
            part.closed = True
            part.codec = self.codec
            part.may_be_stored = part.in_doubt = self.may_be_stored or self.in_doubt
            if self.records is not None:
                part.records = self.records[start : start + writer.count]
            self.parts.append((start, part))
            start += writer.count
        for index, callback in self._callbacks:
            at = bisect_right(self.parts, index, key=lambda entry: entry[0]) - 1
            first, part = self.parts[at]
            part._callbacks.append((index - first, callback))
        self._callbacks = []
        self._finish(BatchState.SPLIT)
        return [part for _, part in self.parts]

    def _finish(self, state: BatchState) -> None:
        assert self.state is BatchState.PENDING, (
            f"batch of {self.tp} ended twice: {self.state} and {state}"
        )
        self.state = state
        self.closed = True
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, []
        for index, callback in callbacks:
            self._call(callback, index)
        self._events.ended(self)
        self.encoded = None
        self.writer.release()
        self.records = None

    def _call(self, callback: Callable[[ProducerBatch, int], object], index: int) -> None:
        try:
            callback(self, index)
        except BaseException as error:
            log.error("a callback of a delivery to %s failed", self.tp, exc_info=error)
            surface(error)

    def add_callback(self, index: int, callback: Callable[[ProducerBatch, int], object]) -> None:
        """Call ``callback(batch, index)`` when the record has its outcome; soon, where it has one
        already.
        """
        if self.state is BatchState.PENDING:
            self._callbacks.append((index, callback))
        else:
            self.loop.call_soon(self._call, callback, index)

    async def wait(self) -> None:
        """Return when the batch has ended, be it that it was split. Cancelling the waiter leaves
        the batch alone.
        """
        if self.state is not BatchState.PENDING:
            return
        if asyncio.get_running_loop() is not self.loop:
            raise WrongEventLoopError(
                "a delivery belongs to its producer's event loop: await it there, with "
                "asyncio.run_coroutine_threadsafe()"
            )
        # A future of the waiter's own: cancelling a task cancels the future it waits for.
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def __del__(self) -> None:
        if getattr(self, "state", None) is BatchState.FAILED and not self._looked_at:
            self._events.dropped(self)

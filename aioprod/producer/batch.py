"""A batch of records of one partition, from its first record to its final state."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextvars import Context
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, Self

from aioprod.closing import all_in_turn
from aioprod.codecs import Codec
from aioprod.errors import KafkaError, WrongEventLoopError, copy_of
from aioprod.logs import Logger, get_logger
from aioprod.producer.shared_fields import BatchFields
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import ProducerRecord, RecordMetadata, TopicPartition
from aioprod.user_code import surface

log: Logger = get_logger(__name__)

_new_tuple: Final = tuple.__new__
# A large batch is encoded in parts: other tasks run in between, and small records do not take much
# more memory than the buffer counts.
ENCODE_EVERY = 65_536
# A batch that is fuller than this after encoding counts as full: few records would fit. Also in
# fast_path.c.
FULL = 15 / 16

# A function, its argument, and the context in which it is called.
_Callback = tuple[Callable[[Any], object], object, Context]


class BatchState(Enum):
    """A batch ends once: only PENDING may change."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"
    SPLIT = "split"
    """It was too large for the broker; its records are in the batches of ``parts``."""


class BatchEvents(Protocol):
    """Called when batches end.

    Attributes:
        wants_records: whether a batch has to keep its records until it ends.
    """

    @property
    def wants_records(self) -> bool: ...

    def ended(self, batch: ProducerBatch) -> None:
        """Handle a batch that has its outcome, or was split."""

    def dropped(self, batch: ProducerBatch) -> None:
        """Handle the garbage collection of a failed batch whose failure no caller has seen."""


class ProducerIdAndEpoch(tuple[int, int]):
    """Producer id and epoch."""

    __slots__ = ()

    @property
    def producer_id(self) -> int:
        return self[0]

    @property
    def epoch(self) -> int:
        return self[1]


class ProducerBatch(BatchFields):
    """Records that are sent together.

    Args:
        tp: the partition.
        writer: takes the encoded records.
        limit: bytes of records at which it is full; may be raised while the batch is open.
        leased: bytes of the buffer pool that it has.
        created_at: loop time, in seconds.
        order: its place among the partition's batches, increasing; a retried batch returns to it.
        events: called when it ends.
    """

    __slots__ = (
        "__weakref__",
        "_events",
        "ceiling",
        "codec",
        "created_at",
        "leased",
        "limit",
        "loop",
        "order",
        "records",
        "state",
        "tp",
    )

    # The fields of BatchFields that its __new__ sets.
    closed: bool  # takes no more records
    # Past the size of a full one: it is due, and accepts records until it is sent.
    grown: bool
    in_flight: bool
    attempts: int
    retry_at: float
    first_sent_at: float
    identity: ProducerIdAndEpoch | None
    base_sequence: int
    may_be_stored: bool  # an attempt ended without a reply
    unanswered_at: float  # the end of the last such attempt
    # Part of a batch that may be stored as a whole (the broker's limit was lowered between its
    # attempts). The broker would recognize the whole as a duplicate, but finds a part out of
    # order. It must not be sent under other sequence numbers.
    in_doubt: bool
    encoded: bytes | memoryview | None
    error: KafkaError | None
    parts: Sequence[tuple[int, ProducerBatch]]
    _waiters: dict[asyncio.Future[None], None] | None
    # By index of the record: removing a callback must not look at those of other records.
    _callbacks: dict[int, tuple[_Callback, ...]] | None
    _seen: bool

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
        self.tp: TopicPartition = tp
        self.writer = writer
        self.limit: int = limit
        self.open_until: int = min(limit, ENCODE_EVERY)
        # The largest limit while the batch is open; it may grow if compression makes records small.
        self.ceiling: int = limit
        self.leased: int = leased
        self.created_at: float = created_at
        self.order: tuple[int, ...] = order
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.state: BatchState = BatchState.PENDING
        self.codec: Codec = Codec.NONE
        self.base_offset = -1
        self.topic, self.partition = tp
        self.records: list[ProducerRecord] | None = [] if events.wants_records else None
        self._events = events

    @classmethod
    def refused(cls, tp: TopicPartition, error: KafkaError, events: BatchEvents) -> Self:
        """Return a failed batch for records that were not accepted. ``events`` is called for it
        only if no caller sees the failure.
        """
        writer = RecordBatchWriter(-1)
        batch = cls(tp, writer, limit=0, leased=0, created_at=0.0, order=(), events=events)
        batch.error, batch.state, batch.closed = copy_of(error), BatchState.FAILED, True
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
        headers: bytes,
        upper_bound: int,
    ) -> int:
        """Add a record, whose headers are encoded, and return its index; -1 if the batch is full or
        closed.
        """
        writer = self.writer
        if self.closed or writer.size + upper_bound > self.limit:
            return -1
        writer.add(timestamp, key, value, headers)
        return writer.count - 1

    def needs_encoding(self, upper_bound: int) -> bool:
        """Return whether a part of a large batch is complete, and has to be encoded before the next
        record.
        """
        size = self.writer.size
        is_encoded = size + ENCODE_EVERY <= self.open_until
        return (
            self.open_until < self.limit and size + upper_bound > self.open_until and not is_encoded
        )

    def encode_pending(self) -> None:
        """Encode the records that are not encoded yet, and update the remaining room."""
        self.writer.encode_pending()
        self.open_until = min(self.limit, self.writer.size + ENCODE_EVERY)

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of one record.

        Raises:
            KafkaError: if the batch failed.
        """
        if self.error is not None:
            self._seen = True
            raise copy_of(self.error)
        return self.place(index)

    def place(self, index: int) -> RecordMetadata:
        """Return the metadata of one record, with offset and timestamp -1 if it failed."""
        if self.error is not None:
            return RecordMetadata(self.topic, self.partition, -1, -1)
        timestamps = self.timestamps
        return _new_tuple(  # half the time of the constructor
            RecordMetadata,
            (
                self.topic,
                self.partition,
                self.base_offset + index if self.base_offset >= 0 else -1,
                timestamps[bisect_right(self.starts, index) - 1]
                if len(timestamps) > 1
                else timestamps[0],
                self.key_sizes[index] if self.key_sizes else -1,
                self.value_sizes[index] if self.value_sizes else -1,
            ),
        )

    def failure(self) -> KafkaError | None:
        """Return a copy of the batch's error, if it failed, and mark the failure as seen."""
        self._seen = True
        return None if self.error is None else copy_of(self.error)

    def part_of(self, index: int) -> tuple[ProducerBatch, int]:
        """Return the batch that now has a record of this split batch, and the record's index."""
        batch = self
        while batch.state is BatchState.SPLIT:
            start, part = batch.parts[
                bisect_right(batch.parts, index, key=lambda entry: entry[0]) - 1
            ]
            batch, index = part, index - start
        return batch, index

    def end_by(self, *steps: Callable[[], object]) -> None:
        """Take the steps to the end of the batch, which the last one ends. An error in one of them,
        which is a bug, is raised after the others, and no delivery waits forever because of it.
        """
        try:
            all_in_turn(steps)
        except BaseException as bug:
            self.fail_by(bug)
            raise

    def fail_by(self, bug: BaseException) -> None:
        """End the batch, if it has not ended, because of an error in a step to its end."""
        if self.state is BatchState.PENDING:
            self.base_offset = -1
            self.error = KafkaError(f"the end of a batch of {self.tp} failed: {bug!r}")
            self._finish(BatchState.FAILED)

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """End the batch: it is stored."""
        writer = self.writer
        self.starts, self.timestamps = (
            ([0], [log_append_time]) if log_append_time >= 0 else writer.timestamp_runs
        )
        self.key_sizes = writer.key_sizes
        self.value_sizes = writer.value_sizes
        self.base_offset = base_offset
        self._finish(BatchState.SUCCEEDED)

    def fail(self, error: KafkaError, state: BatchState = BatchState.FAILED) -> None:
        """End the batch: it is not sent again, and each record gets ``error``."""
        self.error = copy_of(error)
        self._finish(state)

    def split(self) -> list[ProducerBatch]:
        """Move the records to batches of about half the size; deliveries and callbacks follow."""
        writers = self.writer.halves()
        leases = [self.leased // len(writers)] * len(writers)
        leases[0] += self.leased - sum(leases)
        start = 0
        parts: list[tuple[int, ProducerBatch]] = []
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
            part.grown = self.grown
            part.codec = self.codec
            part.may_be_stored = part.in_doubt = self.may_be_stored or self.in_doubt
            if self.records is not None:
                part.records = self.records[start : start + writer.count]
            parts.append((start, part))
            start += writer.count
        for index, callbacks in (self._callbacks or {}).items():
            at = bisect_right(parts, index, key=lambda entry: entry[0]) - 1
            first, part = parts[at]
            for callback in callbacks:
                part.add_callback(index - first, *callback)
        # From here on the parts have the records; before, an error leaves all as it was.
        self.parts, self._callbacks = parts, None
        self.state, self.closed = BatchState.SPLIT, True
        all_in_turn((self._wake_waiters, self._report_end, self._release))
        return [part for _, part in parts]

    def _finish(self, state: BatchState) -> None:
        assert self.state is BatchState.PENDING, (
            f"batch of {self.tp} ended twice: {self.state} and {state}"
        )
        self.state = state
        self.closed = True
        # Interceptors are called before the callbacks, as in Java. As all_in_turn() does, without
        # objects for the steps.
        try:
            self._wake_waiters()
        finally:
            try:
                self._report_end()
            finally:
                try:
                    if self._callbacks is not None:
                        self._call_back()
                finally:
                    self._release()

    def _wake_waiters(self) -> None:
        if self._waiters is not None and not self.loop.is_closed():
            waiters, self._waiters = self._waiters, None
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _report_end(self) -> None:
        self._events.ended(self)

    def _call_back(self) -> None:
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            all_in_turn(
                partial(self._call, *callback)
                for of_record in callbacks.values()
                for callback in of_record
            )

    def _release(self) -> None:
        self.encoded = None
        self.records = None
        self.writer.release()

    def _call(self, function: Callable[[Any], object], argument: object, context: Context) -> None:
        try:
            context.run(function, argument)
        except BaseException as error:
            log.error("callback of a delivery to %s failed", self.tp, exc_info=error)
            surface(error)

    def add_callback(
        self, index: int, function: Callable[[Any], object], argument: object, context: Context
    ) -> None:
        """Call ``function(argument)`` in ``context`` when the record has its outcome; soon if it
        has one already.
        """
        if self.state is not BatchState.PENDING:
            self.loop.call_soon(self._call, function, argument, context)
            return
        if self._callbacks is None:
            self._callbacks = {}
        added = ((function, argument, context),)
        self._callbacks[index] = self._callbacks.get(index, ()) + added

    def remove_callbacks(self, index: int, function: Callable[[Any], object]) -> int:
        """Remove the callbacks of a record that call ``function``, and return their number."""
        if self._callbacks is None or index not in self._callbacks:
            return 0
        found = self._callbacks[index]
        kept = tuple(callback for callback in found if callback[0] != function)
        if kept:
            self._callbacks[index] = kept
        else:
            del self._callbacks[index]
        return len(found) - len(kept)

    async def wait(self) -> None:
        """Wait until the batch has ended or was split. Cancelling the waiter does not affect the
        batch.
        """
        if self.state is not BatchState.PENDING:
            return
        waiter = self.new_waiter()
        try:
            await waiter
        finally:
            self.forget_waiter(waiter)

    def new_waiter(self) -> asyncio.Future[None]:
        """Return a future that is done when the batch ends or is split, for one task to await. Call
        :meth:`forget_waiter` afterwards.

        Raises:
            WrongEventLoopError: if the batch belongs to another event loop.
        """
        if asyncio.get_running_loop() is not self.loop:
            raise WrongEventLoopError(
                "a delivery belongs to its producer's event loop: await it there, with "
                "asyncio.run_coroutine_threadsafe()"
            )
        # Each waiter has its own future: cancelling a task cancels the future for which it waits.
        waiter: asyncio.Future[None] = self.loop.create_future()
        if self._waiters is None:
            self._waiters = {}
        self._waiters[waiter] = None
        return waiter

    def forget_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Drop a future whose task waits no longer."""
        if self._waiters is not None:
            self._waiters.pop(waiter, None)

    def __del__(self) -> None:
        if getattr(self, "state", None) is BatchState.FAILED and not self._seen:
            self._events.dropped(self)


def place_of(tp: TopicPartition) -> str:
    """Return the name of a partition for logs, or of the topic if no partition was chosen."""
    return f"{tp.topic}-{tp.partition}" if tp.partition >= 0 else f"topic {tp.topic!r}"

"""A batch of records of one partition, from its first record to its one final state; and the view a caller gets of one record."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from enum import Enum

from aioprod.errors import KafkaError
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import Headers, RecordMetadata, TopicPartition

log = logging.getLogger(__name__)


class BatchState(Enum):
    """A batch ends once; only PENDING may change."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


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
        limit: bytes of records after which it is full.
        leased: bytes of the buffer pool that it holds.
        created_at: loop time, in seconds.
        order: grows with each batch of the partition; a retry goes back to its place by it.
    """

    __slots__ = (
        "__weakref__", "_callbacks", "_looked_at", "_waiters", "attempts", "base_offset", "base_sequence", "closed", "created_at",
        "encoded", "error", "identity", "in_flight", "leased", "limit", "log_append_time", "loop", "may_be_stored", "order", "retry_at", "state",
        "tp", "writer",
    )  # fmt: skip

    def __init__(self, tp: TopicPartition, writer: RecordBatchWriter, *, limit: int, leased: int, created_at: float, order: int) -> None:
        self.tp = tp
        self.writer = writer
        self.limit = limit
        self.leased = leased
        self.created_at = created_at
        self.order = order
        self.loop = asyncio.get_running_loop()
        self.state = BatchState.PENDING
        self.closed = False  # takes no more records
        self.in_flight = False
        self.attempts = 0
        self.retry_at = 0.0
        self.identity: Identity | None = None
        self.base_sequence = -1
        self.may_be_stored = False  # an attempt ended without the broker's word
        self.encoded: bytes | None = None
        self.base_offset = -1
        self.log_append_time = -1
        self.error: KafkaError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._callbacks: list[tuple[int, Callable[[Delivery], object]]] = []
        self._looked_at = False

    @property
    def count(self) -> int:
        return self.writer.count

    def try_append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, upper_bound: int) -> Delivery | None:
        """Add a record; None when the batch is full or no longer open. A first record always fits."""
        writer = self.writer
        index = len(writer.chunks)
        if self.closed or (writer.size + upper_bound > self.limit and index):
            return None
        writer.append(timestamp, key, value, headers)
        return Delivery(self, index)

    def metadata(self, index: int) -> RecordMetadata:
        """The outcome of one record.

        Raises:
            KafkaError: its batch failed.
        """
        if self.error is not None:
            self._looked_at = True
            raise self.error
        timestamp = self.log_append_time if self.log_append_time >= 0 else self.writer.timestamp(index)
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        return RecordMetadata(self.tp.topic, self.tp.partition, offset, timestamp)

    def succeed(self, base_offset: int, log_append_time: int) -> None:
        """The broker has it."""
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._finish(BatchState.SUCCEEDED)

    def fail(self, error: KafkaError, state: BatchState = BatchState.FAILED) -> None:
        """It won't be sent (again); every record of it gets ``error``."""
        self.error = error
        self._finish(state)

    def _finish(self, state: BatchState) -> None:
        assert self.state is BatchState.PENDING, f"batch of {self.tp} ended twice: {self.state} and {state}"
        self.state = state
        self.closed = True
        self.encoded = None
        self.writer.release()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, []
        for index, callback in callbacks:
            self._call(callback, Delivery(self, index))

    def _call(self, callback: Callable[[Delivery], object], delivery: Delivery) -> None:
        try:
            callback(delivery)
        except Exception:
            log.exception("a callback of a delivery to %s failed", self.tp)

    def add_callback(self, index: int, callback: Callable[[Delivery], object]) -> None:
        if self.state is BatchState.PENDING:
            self._callbacks.append((index, callback))
        else:
            self.loop.call_soon(self._call, callback, Delivery(self, index))

    async def wait(self) -> None:
        """Return when the batch has ended. Cancelling the waiter leaves the batch alone."""
        if self.state is not BatchState.PENDING:
            return
        # A future of the waiter's own: cancelling a task cancels the future it waits for.
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter.cancelled() and waiter in self._waiters:
                self._waiters.remove(waiter)

    def __del__(self) -> None:
        if getattr(self, "state", None) is BatchState.FAILED and not self._looked_at:
            log.error("delivery of %d records to %s failed and nobody looked at it: %s", self.count, self.tp, self.error)


class Delivery:
    """One record on its way: await it for its :class:`RecordMetadata`, any number of times, from any task of the loop.

    Cancelling whoever awaits it never cancels the record. A failure that nobody looked at is logged when it is dropped.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.state is not BatchState.PENDING

    def result(self) -> RecordMetadata:
        """The record's place.

        Raises:
            asyncio.InvalidStateError: not known yet.
            KafkaError: delivery failed.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        return self._batch.metadata(self._index)

    def exception(self) -> KafkaError | None:
        """Why delivery failed; None where it did not.

        Raises:
            asyncio.InvalidStateError: not known yet.
        """
        if not self.done():
            raise asyncio.InvalidStateError("the delivery has no outcome yet")
        self._batch._looked_at = True
        return self._batch.error

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call ``callback(delivery)`` once the outcome is known; what it raises is logged."""
        self._batch.add_callback(self._index, callback)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        if self._batch.state is BatchState.PENDING:
            yield from self._batch.wait().__await__()
        return self._batch.metadata(self._index)

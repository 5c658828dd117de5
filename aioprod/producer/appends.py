"""Calls that append to a partition, and the lines in which they wait there.

One timer serves the deadlines of all waiting calls. A timer for each call would cost more than its
place in line: 10,000 tasks that wait for memory each wait in line with each of their records.
"""

from __future__ import annotations

import asyncio

from aioprod.earliest_timer import EarliestTimer
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.pending import PendingCall
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import ProducerRecord

# If many deadlines are close together, the timer looks at all calls once per step, not once per
# deadline.
_STEP_S = 0.01


class PendingAppend(PendingCall):
    """A call that appends to one partition.

    Attributes:
        queue: the partition, once it is chosen; it does not change afterwards.
        place: the batch and the index of the first record in it, once the records are in a batch.
        bound: bytes of a batch that has only this call's records, at most.
    """

    __slots__ = ("bound", "place", "queue")

    def __init__(self, bound: int, deadline: float, transaction: int | None) -> None:
        self.deadline = deadline
        self.transaction = transaction
        self.error: BaseException | None = None
        self._future = None
        self.bound: int = bound
        self.queue: PartitionQueue | None = None
        self.place: tuple[ProducerBatch, int] | None = None

    @property
    def is_admitted(self) -> bool:
        """True if its partition is chosen."""
        return self.queue is not None


class PendingRecord(PendingAppend):
    """One record, serialized.

    Args:
        record: the record after the interceptors.
        timestamp: milliseconds since 1970.
        headers: encoded.
        bound: bytes of a batch that has only this record, at most.
        deadline: loop time.
        transaction: number of the transaction in which the call began.
    """

    __slots__ = ("headers", "key", "record", "timestamp", "value")

    def __init__(
        self,
        record: ProducerRecord,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        bound: int,
        deadline: float,
        transaction: int | None = None,
    ) -> None:
        super().__init__(bound, deadline, transaction)
        self.record: ProducerRecord = record
        self.timestamp: int = timestamp
        self.key: bytes | None = key
        self.value: bytes | None = value
        self.headers: bytes = headers

    def add_to(self, batch: ProducerBatch, queue: PartitionQueue) -> bool:
        """Put the record into a batch of a partition, if it fits."""
        index = batch.try_append(self.timestamp, self.key, self.value, self.headers, self.bound)
        if index < 0:
            return False
        if batch.records is not None:
            batch.records.append(self.record)
        self.queue = queue
        self.place = batch, index
        return True


class PendingBatch(PendingAppend):
    """Encoded records, which form a complete batch."""

    __slots__ = ("writer",)

    def __init__(
        self, writer: RecordBatchWriter, deadline: float, transaction: int | None = None
    ) -> None:
        super().__init__(writer.size + HEADER_SIZE, deadline, transaction)
        self.writer: RecordBatchWriter = writer


class WaitingLines:
    """Calls that wait at partitions, each at most until its deadline."""

    def __init__(self) -> None:
        self._queues: dict[PartitionQueue, None] = {}
        self._timer = EarliestTimer(self._time_out)

    @property
    def waiting(self) -> int:
        """The number of calls in all lines."""
        return sum(len(queue.line) for queue in self._queues)

    def join(self, call: PendingCall, queue: PartitionQueue) -> None:
        """Add a call to the end of a partition's line."""
        queue.join(call)
        self._queues[queue] = None

    def withdraw(self, call: PendingCall, queue: PartitionQueue) -> None:
        """Remove a call from its line, if it is in it, and wake the first one of those left."""
        queue.leave(call)
        first = queue.first
        if first is not None:
            first.wake()
            return
        self._queues.pop(queue, None)
        if not self._queues:
            self._timer.stop()

    def new_waiter(
        self, call: PendingCall, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[None]:
        """Return a future that is completed if another task wakes the call, which is in a line, and
        fails with TimeoutError at the call's deadline.
        """
        self._timer.set(call.deadline)
        return call.new_waiter(loop)

    def _time_out(self, now: float) -> None:
        """Time out the calls whose deadline has come, and set the timer for the next one."""
        following = float("inf")
        for queue in self._queues:
            for call in queue.line:
                if call.deadline <= now:
                    call.time_out()
                else:
                    following = min(following, call.deadline)
        if following < float("inf"):
            self._timer.set(max(following, now + _STEP_S))

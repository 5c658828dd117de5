"""Puts records into batches, for each partition in the order of the calls.

A call gets its place at once if no other call waits at its partition, and the partition's last
batch has room or memory for another batch is free. Otherwise it joins the partition's line. The
first call in line leads: it waits for memory (in the pool, among the leaders of all partitions),
opens a batch, and puts the calls after it into that batch and the next ones while memory is free.
Later calls join the line, because the fast path finds no open batch while calls wait.
"""

from __future__ import annotations

import asyncio

from aioprod.config.producer import ProducerConfig
from aioprod.errors import KafkaError
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.admission import Admission
from aioprod.producer.appends import (
    PendingAppend,
    PendingBatch,
    PendingRecord,
    WaitingLines,
)
from aioprod.producer.batch import ENCODE_EVERY, FULL, ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.partition_choice import PartitionChoice
from aioprod.producer.partition_queue import PartitionQueue, Topic
from aioprod.producer.pending import PendingCall
from aioprod.producer.transactions.gate import Transactions
from aioprod.producer.wakeup import SenderWakeup
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter

Place = tuple[ProducerBatch, int]

# A task that sends in a loop does not suspend while memory is free. After this many bytes of
# batches it lets other tasks run once, and the sender send them. Each record counts for some more
# bytes, as its call takes most of the time. A turn costs 5 us; filling the batches takes 0.1 ms
# (records of 1,000 bytes) to 0.8 ms (10 bytes). With a turn after each 64 KiB, keyed records of 100
# bytes took 8 % longer.
_TURN_EVERY = 262_144
_BYTES_OF_WORK = 128
# A batch has at most this number of bytes more than what the fast path counts for its record.
_MOST_OVERHEAD = HEADER_SIZE + 16


class Appender:
    """Appends records to batches, and makes calls wait in line.

    Args:
        accumulator: has the batches.
        pool: lends memory.
        transactions: called for each opened batch.
        admission: checks whether a call's records are still accepted when its turn comes.
        choice: chooses partitions.
        wakeup: wakes the sender when a call waits for memory.
    """

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        pool: BufferPool,
        transactions: Transactions,
        admission: Admission,
        choice: PartitionChoice,
        wakeup: SenderWakeup,
    ) -> None:
        self._accumulator = accumulator
        self._transactions = transactions
        self._transactional = transactions.transactional
        self._admission = admission
        self._choice = choice
        self._wakeup = wakeup
        self._pool = pool
        self._batch_size = config.batch_size
        self._most_for_first = min(config.batch_size, config.max_request_size) - _MOST_OVERHEAD
        self._lines = WaitingLines()
        self._busy_task: asyncio.Task[object] | None = None
        self._busy_bytes = 0

    @property
    def waiting(self) -> int:
        """The number of calls that wait for a place at their partition."""
        return self._lines.waiting

    # -- at once -----------------------------------------------------------------------------------

    def try_append(self, pending: PendingAppend, queue: PartitionQueue) -> bool:
        """Put records into the partition's last batch, if it has room.

        A full batch is closed. A batch that may get room when it is encoded, or may grow, stays
        open, even if other tasks have to run first.
        """
        batch = queue.tail
        if batch is None:
            return False
        if isinstance(pending, PendingRecord):
            if batch.needs_encoding(pending.bound):
                batch.encode_pending()
                self._worked(batch, ENCODE_EVERY)
                if self._turn_is_due():
                    return False
            if pending.add_to(batch, queue):
                return True
            if self._make_room(queue, batch, pending.bound):
                if self._turn_is_due():
                    return False
                if pending.add_to(batch, queue):
                    return True
        self._close_full(queue, batch)
        return False

    def _close_full(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._worked(batch, batch.writer.size)
        self._accumulator.close_full(queue, batch)

    def _make_room(self, queue: PartitionQueue, batch: ProducerBatch, bound: int) -> bool:
        """Try to make room in a batch that seems full: its encoded or compressed records may be
        smaller than estimated, or it can't be sent yet.
        """
        batch.encode_pending()
        needed = batch.writer.size + bound
        if needed <= batch.limit * FULL:
            return True
        if not self._may_grow(queue, batch, needed):
            return False
        step = max(self._batch_size, needed - batch.limit)
        if step > self._pool.total or not self._pool.try_allocate(step):
            return False
        self._worked(batch, step)
        batch.leased += step
        batch.limit = min(batch.limit + step, batch.ceiling)
        batch.encode_pending()
        return True

    def _may_grow(self, queue: PartitionQueue, batch: ProducerBatch, needed: int) -> bool:
        """Return whether a full batch may have ``needed`` bytes of records."""
        if batch.limit < batch.ceiling and needed <= batch.ceiling:
            return True
        return self._accumulator.keep_open(queue, batch, needed)

    def enter_topic(self, pending: PendingRecord, topic: Topic) -> None:
        """Choose the record's partition and :meth:`enter` it."""
        queue = self._choice.queue(topic, pending)
        if not queue.line:
            had_tail = queue.tail is not None
            if had_tail and self.try_append(pending, queue):
                return
            if queue.tail is None and (had_tail or self._choice.asks_for_each_batch):
                queue = self._choice.queue_for_next_batch(topic, queue, pending, was_full=had_tail)
        self.enter(pending, queue)

    def enter(self, pending: PendingAppend, queue: PartitionQueue) -> None:
        """Give the records a place at the partition, or the call a place in the partition's
        line.
        """
        pending.queue = queue
        if queue.resting:
            # The first call in line only lets other tasks run. Serve it now instead of waiting for
            # it; otherwise each of many busy tasks would make all others wait repeatedly.
            queue.end_rest()
            self._serve(queue)
        if (
            not queue.line
            and not self._turn_is_due()
            and (self.try_append(pending, queue) or self._open_at_once(pending, queue))
        ):
            return
        self._lines.join(pending, queue)

    def open_with(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes,
        headers: bytes,
        size: int,
        now_s: float,
        sticky: bool,
    ) -> ProducerBatch | None:
        """Open a batch with a first record at a partition without a line, after the last batch
        there if that is full.

        Return None if that may get room, memory is not free, the current task has to let others
        run, or the record may be too large.

        Args:
            headers: encoded.
            size: an upper bound on the record's bytes.
            now_s: seconds since 1970.
            sticky: whether the next batch may be that of another partition.
        """
        if size > self._most_for_first:
            return None
        full = queue.tail
        if full is not None:
            if full.open_until < full.limit or (
                self._may_grow(queue, full, full.writer.size + size)
            ):
                return None
            self._close_full(queue, full)
            if sticky:
                queue = self._choice.after_full(queue)
                if queue.line or queue.tail is not None:
                    return None
        if self._turn_is_due() or not self._pool.try_allocate(self._batch_size):
            return None
        timestamp = int(now_s * 1000)
        writer = RecordBatchWriter(timestamp, self._pool.blocks, self._batch_size)
        writer.add(timestamp, key, value, headers)
        batch = self._accumulator.open(queue, writer, self._batch_size)
        if self._transactional:
            self._transactions.partition_used(queue.tp)
        return batch

    def _open_at_once(self, pending: PendingAppend, queue: PartitionQueue) -> bool:
        leased = self._leased(pending)
        if not self._pool.try_allocate(leased):
            return False
        self._open_for(pending, queue, leased)
        return True

    def _leased(self, pending: PendingAppend) -> int:
        """Return how many bytes of the buffer a new batch for a call needs."""
        is_record = isinstance(pending, PendingRecord)
        return max(self._batch_size, pending.bound) if is_record else pending.bound

    def _open_for(self, pending: PendingAppend, queue: PartitionQueue, leased: int) -> None:
        """Open a batch with a call's records."""
        if isinstance(pending, PendingRecord):
            writer = RecordBatchWriter(pending.timestamp, self._pool.blocks, self._batch_size)
            writer.add(pending.timestamp, pending.key, pending.value, pending.headers)
            batch = self._accumulator.open(queue, writer, leased)
            if batch.records is not None:
                batch.records.append(pending.record)
        else:
            assert isinstance(pending, PendingBatch)
            batch = self._accumulator.open(queue, pending.writer, leased, complete=True)
        if self._transactional:
            self._transactions.partition_used(queue.tp)
        pending.place = batch, 0

    # -- in line -----------------------------------------------------------------------------------

    async def in_turn(self, pending: PendingAppend) -> Place:
        """Wait in line until the records have a place. The caller calls :meth:`withdraw`
        afterwards.

        Raises:
            BufferExhaustedError: if no memory is free before the call's deadline.
            ProducerClosedError: if the producer was closed before the records had a place.
        """
        queue = pending.queue
        assert queue is not None
        while pending.place is None:
            self._check_takes(pending)
            if queue.first is pending:
                await self._lead(pending, queue)
            else:
                await self._follow(pending)
        return pending.place

    async def _follow(self, pending: PendingAppend) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await self._lines.new_waiter(pending, loop)
        except TimeoutError:
            if pending.place is None:
                size = self._leased(pending)
                raise self._pool.exhausted(size, pending.deadline - started) from None
        finally:
            pending.forget_waiter()
            self._pool.note_wait(started, loop.time())

    async def _lead(self, pending: PendingAppend, queue: PartitionQueue) -> None:
        """Get memory, open a batch, and put the calls after this one into it."""
        if self._turn_is_due():
            self._wakeup.wake()
            await queue.rest()
            if pending.place is not None:
                return
            self._check_takes(pending)
        if not self.try_append(pending, queue):
            if queue.tail is not None:
                return  # it still accepts records, after other tasks have run
            leased = self._leased(pending)
            if not self._pool.try_allocate(leased):
                # A waiting leader makes every batch ready to send, so that memory becomes free.
                self._wakeup.wake()
                remaining = pending.deadline - asyncio.get_running_loop().time()
                await self._pool.allocate(leased, remaining)
            try:
                self._check_takes(pending)
                self._next_batch(pending, queue, leased)
            finally:
                if pending.place is None:
                    self._pool.deallocate(leased)
        queue.leave(pending)
        self._serve(queue)

    def _next_batch(self, pending: PendingAppend, queue: PartitionQueue, leased: int) -> None:
        had_one = queue.opened > 0
        self._open_for(pending, queue, leased)
        if had_one:
            self._choice.next_batch_in_line(queue)

    def _serve(self, queue: PartitionQueue) -> None:
        """Give the calls in line their places at once, while memory is free.

        If each task took its place in its own turn, it would call again before the last one has
        run, so the line would never be empty and the fast path never open.
        """
        while queue.line:
            pending = queue.first
            assert isinstance(pending, PendingAppend)
            try:
                self._check_takes(pending)
                if not self._serve_one(pending, queue):
                    break
            except KafkaError as error:
                pending.error = error  # the error of that call, not of the one that serves it
            queue.leave(pending)
            pending.wake()

    def _serve_one(self, pending: PendingAppend, queue: PartitionQueue) -> bool:
        if self.try_append(pending, queue):
            return True
        if queue.tail is not None:
            return False  # it still accepts records, after other tasks have run
        leased = self._leased(pending)
        if not self._pool.try_allocate(leased):
            return False
        self._next_batch(pending, queue, leased)
        return True

    def withdraw(self, pending: PendingAppend) -> None:
        """Remove a call from its line, whether it has a place or not; the next one may lead."""
        if pending.queue is not None:
            self._lines.withdraw(pending, pending.queue)

    def _check_takes(self, pending: PendingCall) -> None:
        if pending.error is not None:
            raise pending.error
        if self._accumulator.closed is not None:
            raise self._accumulator.closed.with_traceback(None)
        if not self._admission.may_append(pending.transaction):
            self._admission.check_may_send(pending.transaction)

    # -- turns of the event loop -------------------------------------------------------------------

    def _worked(self, batch: ProducerBatch, size: int) -> None:
        """Note that the current task has filled ``size`` bytes of a batch."""
        task = asyncio.current_task()
        if task is not self._busy_task:
            if self._busy_task is None:
                asyncio.get_running_loop().call_soon(self._turned)
            self._busy_task, self._busy_bytes = task, 0
        records = batch.count * size // max(1, batch.writer.size)
        self._busy_bytes += size + _BYTES_OF_WORK * records

    def _turned(self) -> None:
        self._busy_task, self._busy_bytes = None, 0

    def _turn_is_due(self) -> bool:
        """Return whether the current task has sent so much that other tasks have to run first."""
        return self._busy_bytes >= _TURN_EVERY and asyncio.current_task() is self._busy_task

"""Known bugs of Kafka clients and brokers, each a patch that plants one. The simulation must find
each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aioprod.consumer.partition_reader import PartitionReader
from aioprod.consumer.readable_batches import AbortedBatches
from aioprod.errors import KafkaError
from aioprod.net.brokers import Brokers
from aioprod.producer import sequences
from aioprod.producer.accumulator import RecordAccumulator
from aioprod.producer.appender import Appender
from aioprod.producer.appends import PendingAppend, PendingRecord
from aioprod.producer.batch import BatchState, ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.partition_queue import PartitionQueue
from aioprod.producer.responses import ProduceResponseHandler
from aioprod.producer.sequences import PartitionSequence
from aioprod.producer.topic_gate import TopicGate, TopicReservation
from aioprod.producer.transactions.coordinator_state import CoordinatorState
from aioprod.producer.transactions.manager import TransactionManager
from aioprod.producer.transactions.operations import Flush
from aioprod.testing.broker.handlers import produce
from aioprod.testing.broker.partition import Partition
from aioprod.testing.broker.producer_state import ProducerStates
from aioprod.testing.broker.transactions.coordinator import TransactionCoordinator
from aioprod.types import TopicPartition
from tests.simulation.planting import Mutation, Patch, into

MUTATIONS: list[Mutation] = []
mutation = into(MUTATIONS)


# -- the producer ----------------------------------------------------------------------------------


@mutation("duplicate", found_by=6)
def sequence_not_kept_on_retry(patch: Patch) -> None:
    original = ProduceResponseHandler.unanswered

    def unanswered(
        self: ProduceResponseHandler,
        batch: ProducerBatch,
        now: float,
        error: KafkaError,
        *,
        new_leader: bool = False,
    ) -> None:
        original(self, batch, now, error, new_leader=new_leader)
        if batch.state is BatchState.PENDING and batch.identity is not None:
            sequence = self._accumulator.incomplete[batch]._sequence
            base, sequence.next_sequence = (
                sequence.next_sequence,
                sequences.increment_sequence(sequence.next_sequence, batch.count),
            )
            batch.base_sequence, batch.encoded = base, None

    patch.setattr(ProduceResponseHandler, "unanswered", unanswered)


@mutation("leak", found_by=15)
def pool_bytes_lost_on_cancel(patch: Patch) -> None:
    def withdraw(self: BufferPool, waiter: Any) -> None:
        self._waiters.pop(waiter, None)
        self.reserved -= waiter.collected
        self._serve_waiters()

    patch.setattr(BufferPool, "_withdraw", withdraw)


@mutation("fault", "leak", "not-live", found_by=8)
def batch_completed_twice(patch: Patch) -> None:
    def attempt_ended(
        self: RecordAccumulator, batch: ProducerBatch, unanswered_at: float | None = None
    ) -> PartitionQueue:
        queue = self.topics[batch.topic].queues[batch.partition]
        queue.attempt_ended(batch, unanswered_at)
        return queue

    patch.setattr(RecordAccumulator, "attempt_ended", attempt_ended)


@mutation("leak", "fault", found_by=1)
def memory_of_expired_batches_released_twice(patch: Patch) -> None:
    original = RecordAccumulator._release

    def release(self: RecordAccumulator, batch: ProducerBatch) -> PartitionQueue:
        if batch.in_flight:
            self.pool.available += batch.leased
        return original(self, batch)

    patch.setattr(RecordAccumulator, "_release", release)


@mutation("leak", "hang", found_by=5)
def waiter_not_woken(patch: Patch) -> None:
    original = ProducerBatch._finish

    def finish(self: ProducerBatch, state: BatchState) -> None:
        if state is BatchState.FAILED:
            self._waiters = {}
        original(self, state)

    patch.setattr(ProducerBatch, "_finish", finish)


@mutation("nonmonotonic-send", found_by=34)
def retried_batches_queued_last(patch: Patch) -> None:
    def put_back(self: PartitionQueue, batch: ProducerBatch, retry_at: float, now: float) -> None:
        batch.retry_at = retry_at
        self.batches.append(batch)
        self.topic.grew(len(self.batches))
        self._schedule.look_at(self, now)

    patch.setattr(PartitionQueue, "put_back", put_back)


@mutation("nonmonotonic-send", found_by=3)
def swapped_batches(patch: Patch) -> None:
    original = RecordAccumulator.drain

    def drain(
        self: RecordAccumulator,
        node_id: int,
        now: float,
        may_send: Callable[[TopicPartition], bool],
    ) -> list[ProducerBatch]:
        for queue in self._schedule.due(node_id, now):
            batches = queue.batches
            if len(batches) > 2 and batches[0].identity is None and not batches[0].attempts:
                batches[0], batches[1] = batches[1], batches[0]
        return original(self, node_id, now, may_send)

    patch.setattr(RecordAccumulator, "drain", drain)


@mutation("nonmonotonic-send", found_by=19)
def new_calls_overtake_those_that_wait_for_memory(patch: Patch) -> None:
    original = Appender.enter

    def enter(self: Appender, pending: PendingAppend, queue: PartitionQueue) -> None:
        pending.queue = queue
        if not self.try_append(pending, queue) and not self._open_at_once(pending, queue):
            original(self, pending, queue)

    patch.setattr(Appender, "enter", enter)


@mutation("nonmonotonic-send", found_by=3)
def calls_that_waited_for_metadata_continue_in_any_order(patch: Patch) -> None:
    original = TopicGate.update

    def update(self: TopicGate) -> None:
        for name, arrivals in self._arrivals.items():
            self._arrivals[name] = dict(reversed(arrivals.items()))
        original(self)

    patch.setattr(TopicGate, "update", update)


@mutation("nonmonotonic-send", found_by=0)
def newest_waiting_call_is_served_first(patch: Patch) -> None:
    patch.setattr(PartitionQueue, "first", property(lambda self: next(reversed(self.line), None)))


@mutation("nonmonotonic-send", found_by=0)
def lists_do_not_keep_their_topic(patch: Patch) -> None:
    patch.setattr(
        TopicGate, "_give", lambda self, topic, reservation: setattr(reservation, "topic", topic)
    )

    def enter(
        self: TopicGate, pending: PendingRecord, reservation: TopicReservation | None
    ) -> None:
        known = self.topics.get(pending.record.topic)
        if known is not None:
            self._appender.enter_topic(pending, known)

    patch.setattr(TopicGate, "enter", enter)


@mutation("fault", "nonmonotonic-send", "duplicate", found_by=224)
def new_epoch_before_old_batches_are_resolved(patch: Patch) -> None:
    original = PartitionSequence.may_send

    def may_send(self: PartitionSequence, batch: ProducerBatch) -> bool:
        if batch.identity is None and self.identity != self._producer.identity:
            self.unresolved.clear()
        return original(self, batch)

    patch.setattr(PartitionSequence, "may_send", may_send)


@mutation("nonmonotonic-send", found_by=232)
def several_batches_before_the_first_is_acknowledged(patch: Patch) -> None:
    original = PartitionSequence.may_send

    def may_send(self: PartitionSequence, batch: ProducerBatch) -> bool:
        if self.identity is not None and self.identity == self._producer.identity:
            self._confirmed = True
        return original(self, batch)

    patch.setattr(PartitionSequence, "may_send", may_send)


@mutation("late", found_by=17)
def batches_in_flight_never_expire(patch: Patch) -> None:
    original = RecordAccumulator.expired
    patch.setattr(
        RecordAccumulator,
        "expired",
        lambda self, now: [batch for batch in original(self, now) if not batch.in_flight],
    )


@mutation("late", found_by=1)
def nothing_expires(patch: Patch) -> None:
    patch.setattr(RecordAccumulator, "expired", lambda self, now: [])


@mutation("flushed-too-early", "torn-transaction", found_by=165)
def flush_does_not_wait_for_split_batches(patch: Patch) -> None:
    async def wait_for(self: RecordAccumulator, batches: Any) -> None:
        self.flushes += 1
        self._wake(0.0)
        try:
            for batch in list(batches):
                await batch.wait()
        finally:
            self.flushes -= 1

    patch.setattr(RecordAccumulator, "wait_for", wait_for)


@mutation("leak")
def connections_stay_open_after_close(patch: Patch) -> None:
    async def close(self: Brokers) -> None:
        pass

    patch.setattr(Brokers, "close", close)
    patch.setattr(Brokers, "end", lambda self: None)


@mutation("late", found_by=52)
def close_ignores_its_timeout(patch: Patch) -> None:
    class NoLimit:
        def __init__(self, *_: object) -> None:
            pass

        async def __aenter__(self) -> None:
            pass

        async def __aexit__(self, *_: object) -> None:
            pass

        def reschedule(self, when: float | None) -> None:
            pass

    patch.setattr("aioprod.producer.producer.asyncio.timeout", NoLimit)


# -- transactions ----------------------------------------------------------------------------------


@mutation("aborted-read", found_by=1)
def abort_that_commits(patch: Patch) -> None:
    original = CoordinatorState.end
    patch.setattr(
        CoordinatorState,
        "end",
        lambda self, attempts, *, commit: original(self, attempts, commit=True),
    )


@mutation("torn-transaction", found_by=5)
def commit_does_not_wait_for_the_records(patch: Patch) -> None:
    async def run(self: Flush, matters: Callable[[], bool]) -> None:
        pass

    patch.setattr(Flush, "run", run)


@mutation("torn-transaction", found_by=1)
def commit_over_a_failed_record(patch: Patch) -> None:
    patch.setattr(TransactionManager, "record_refused", lambda self, tp, error: None)


@mutation("torn-transaction")
def commit_returns_without_a_request(patch: Patch) -> None:
    async def end(self: CoordinatorState, attempts: Any, *, commit: bool) -> None:
        self.perhaps_begun = False

    patch.setattr(CoordinatorState, "end", end)


# -- readers ---------------------------------------------------------------------------------------


@mutation("aborted-read", found_by=1)
def read_committed_returns_aborted_records(patch: Patch) -> None:
    patch.setattr(
        AbortedBatches, "contains", lambda self, data, place, header: bool(header.is_control)
    )


@mutation("poll-skip", found_by=3)
def reader_skips_a_batch_after_an_error(patch: Patch) -> None:
    original = PartitionReader._attempt

    async def attempt(self: PartitionReader) -> Any:
        try:
            return await original(self)
        except KafkaError:
            self.position += 1
            raise

    patch.setattr(PartitionReader, "_attempt", attempt)


# -- the broker ------------------------------------------------------------------------------------


@mutation("duplicate", found_by=3)
def broker_forgets_duplicates(patch: Patch) -> None:
    patch.setattr(ProducerStates, "find_duplicate", lambda self, *_: None)
    patch.setattr(ProducerStates, "check", lambda self, *_, **__: None)


@mutation("lost-write", found_by=39)
def broker_acknowledges_before_replication(patch: Patch) -> None:
    patch.setattr(produce._Pending, "outcome", lambda self: 0)


@mutation("lost-write")
def broker_loses_acknowledged_records(patch: Patch) -> None:
    original = Partition.append

    def append(self: Partition, header: Any, batch: Any, timestamp: int) -> int:
        if not header.is_control and self.log.end_offset % 11 == 10:
            return self.log.end_offset
        return original(self, header, batch, timestamp)

    patch.setattr(Partition, "append", append)


@mutation("precommitted-read", "aborted-read", found_by=3)
def broker_returns_records_of_open_transactions(patch: Patch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


@mutation("lost-write", "inconsistent-offsets", found_by=39)
def broker_returns_unreplicated_records(patch: Patch) -> None:
    patch.setattr(Partition, "high_watermark", property(lambda self: self.log.end_offset))


@mutation("aborted-read", "lost-write", "torn-transaction", found_by=27)
def broker_does_not_fence(patch: Patch) -> None:
    original = TransactionCoordinator.init_producer_id

    def init_producer_id(
        self: TransactionCoordinator, name: str, timeout_ms: int, expected: Any
    ) -> Any:
        known = self.transactions.get(name)
        if known is not None and expected is None and known.producer_epoch >= 0:
            return known.identity
        return original(self, name, timeout_ms, expected)

    patch.setattr(TransactionCoordinator, "init_producer_id", init_producer_id)

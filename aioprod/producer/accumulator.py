"""Keeps records in batches by partition until the sender takes them. Decides over (state, now);
does no I/O.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from aioprod.closing import all_in_turn
from aioprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from aioprod.codecs import Codec
from aioprod.config.producer import ProducerConfig
from aioprod.config.setting import grown_limit
from aioprod.errors import ConfigError, KafkaError
from aioprod.producer.batch import BatchEvents, BatchState, ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.compressor import Compressor
from aioprod.producer.far_brokers import FarBrokers
from aioprod.producer.partition_queue import PartitionQueue, Schedule, Topic
from aioprod.producer.partitioner import Partitions, StickyPartition
from aioprod.producer.sequences import ProducerState
from aioprod.producer.wakeup import NEVER
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import TopicPartition

# How much larger than estimated a batch may be (Java's factor).
_RATIO_MARGIN = 1.05
# How often a partition is drawn, until one need not wait for a far broker.
_DRAWS = 32
# Event loops round timers up to whole milliseconds, and linger.ms is an upper limit.
_TIMERS_LATE_S = 0.001


class RecordAccumulator:
    """All open and waiting batches of a producer.

    Args:
        config: sizes and times.
        pool: lends memory (``buffer.memory``).
        producer: the producer id and epoch; unused without idempotence.
        compressor: compresses large batches in threads.
        events: called when batches end.
        rng: source of the sticky choice.
        wake: called with the loop time at which the sender has to run.

    Attributes:
        closed: why no more records are accepted; None before :meth:`abort`.
        aborting: the error of an aborted transaction, for batches that would have to be sent
            again; None once another batch was opened.
    """

    def __init__(
        self,
        config: ProducerConfig,
        pool: BufferPool,
        producer: ProducerState,
        compressor: Compressor,
        events: BatchEvents,
        rng: random.Random,
        wake: Callable[[float], None],
    ) -> None:
        if config.batch_size + HEADER_SIZE > config.buffer_memory:
            raise ConfigError(
                f"buffer_memory={config.buffer_memory}: must be at least "
                f"batch_size={config.batch_size} + {HEADER_SIZE} bytes"
            )
        self.config = config
        self.pool = pool
        self.topics: dict[str, Topic] = {}
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        self.closed: KafkaError | None = None
        self.flushes: int = 0
        self.aborting: KafkaError | None = None
        self._producer = producer
        self._compressor = compressor
        self._events = events
        self._rng = rng
        self._wake = wake
        linger_s = config.linger_ms / 1000
        self._idempotent = config.enable_idempotence
        self._adaptive = config.partitioner_adaptive_partitioning_enable
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._limit = max(1, min(config.batch_size, config.max_request_size) - HEADER_SIZE)
        self._largest = max(self._limit, config.max_request_size - HEADER_SIZE)
        grown = grown_limit(config, "batch_size", "largest_batch_size", config.max_request_size)
        self._grown = min(grown - HEADER_SIZE, self._largest)
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._stalled: dict[int, float] = {}
        self._in_flight: dict[int, int] = {}
        self.far_brokers: FarBrokers = FarBrokers(config)
        self._schedule = Schedule(max(linger_s - _TIMERS_LATE_S, linger_s / 2), wake)

    # -- topics ------------------------------------------------------------------------------------

    def update(self, snapshot: ClusterSnapshot) -> None:
        """Adopt partitions and leaders from new metadata."""
        for name, info in snapshot.topics.items():
            known = self.topics.get(name)
            if info.partitions and (known is None or known.info is not info):
                self._update_topic(name, info)

    def _update_topic(self, name: str, info: TopicInfo) -> None:
        topic = self.topics.get(name)
        if topic is None:
            codec, level = self.config.compression_of(name)
            sticky = StickyPartition(
                self.config.batch_size,
                self._rng,
                adaptive=self._adaptive,
            )
            topic = self.topics[name] = Topic(name, sticky, Codec.from_name(codec), level)
            topic.largest = self._grown
        topic.info = info
        count = info.partitions[-1].partition + 1  # some in between may be left out
        for number in range(len(topic.queues), count):
            topic.queues.append(PartitionQueue(topic, number, self._producer, self._schedule))
        # A broker with old metadata may list fewer partitions than exist. The number decreases only
        # if the topic was deleted and created again.
        if info.topic_id != topic.topic_id:
            for queue in topic.queues:
                queue.forgotten_by_broker()
        if count > topic.count or info.topic_id != topic.topic_id:
            topic.count, topic.topic_id = count, info.topic_id
            for gone in topic.queues[topic.count :]:
                gone.lead_by(-1)
        for partition in info.partitions:
            topic.queues[partition.partition].lead_by(partition.leader)
        topic.leaders = [queue.leader for queue in topic.queues[: topic.count]]
        topic.available = [p.partition for p in info.partitions if p.leader >= 0] or list(
            range(topic.count)
        )
        topic.partitions = Partitions(topic.count, topic.available, topic.leaders)
        if topic.sticky.current not in topic.available:
            self.switch_sticky(topic)

    def switch_sticky(self, topic: Topic) -> None:
        """Choose another partition for keyless records; prefer short queues, leaders that accept
        requests, and while brokers are far away or not connected, partitions whose next batch need
        not wait for a response.
        """
        choices = self._choices(topic)
        far = self.far_brokers.any or not self._in_flight
        for _ in range(_DRAWS if far and self._idempotent and self._adaptive else 1):
            topic.sticky.switch(choices, topic.queue_length, topic.longest)
            queue = topic.queues[topic.sticky.current]
            if queue.may_send_after(len(queue.batches)):
                return

    def _choices(self, topic: Topic) -> list[int]:
        if not self._stalled:
            return topic.available
        limit = (
            asyncio.get_running_loop().time()
            - self.config.partitioner_availability_timeout_ms / 1000
        )
        stalled = {node for node, since in self._stalled.items() if since <= limit}
        return [
            partition
            for partition in topic.available
            if topic.queues[partition].leader not in stalled
        ] or topic.available

    def leader_of(self, tp: TopicPartition) -> int:
        """Return the node id of a partition's leader; -1 if it has none."""
        topic = self.topics.get(tp.topic)
        return (
            topic.queues[tp.partition].leader
            if topic is not None and tp.partition < len(topic.queues)
            else -1
        )

    def note_stalled(self, node_id: int, now: float) -> None:
        """Note that batches for a node can't be sent (``partitioner.availability.timeout.ms``)."""
        if self.config.partitioner_availability_timeout_ms > 0:
            self._stalled.setdefault(node_id, now)

    def note_in_flight(self, node_id: int, requests: int) -> None:
        """Note how many requests to a node are in flight; the node is connected."""
        self._in_flight[node_id] = requests

    def note_unconnected(self, node_id: int) -> None:
        """Note that nothing can be sent to a node before it is connected."""
        self._in_flight.pop(node_id, None)

    # -- batches -----------------------------------------------------------------------------------

    def close_full(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Close a full batch; it may be sent."""
        queue.close_full(batch, asyncio.get_running_loop().time())
        self._compressor.is_ready(batch, queue.topic.level)

    def keep_open(self, queue: PartitionQueue, batch: ProducerBatch, needed: int) -> bool:
        """Let a full batch grow to ``needed`` bytes of records if it can't be sent now anyway: the
        node is not connected, the requests in flight and the batches before it are as many as may
        be in flight, as each request carries one batch of a partition, or the partition's batches
        are. It stays due, as a full one.

        One for a broker that is far away may linger instead.
        """
        if needed > queue.topic.largest or batch.limit >= queue.topic.largest:
            return False
        before, node_id, linger_s = len(queue.batches) - 1, queue.leader, None
        most = self.far_brokers.most_in_flight(node_id)
        if not (
            queue.muted
            or before + self._in_flight.get(node_id, most) >= most
            or (self._idempotent and not queue.may_send_after(before))
        ):
            is_last = self._idempotent and not queue.may_send_after(before + 1)
            linger_s = self.far_brokers.linger_s(node_id, is_last=is_last)
            if linger_s is None:
                return False
        # The sender connects; later, responses wake it.
        queue.grow_past_full(batch, linger_s, wake=node_id not in self._in_flight)
        return True

    def largest_size(self, topic: Topic) -> int:
        """Return how many bytes of uncompressed records a batch of the topic may have, so that its
        compressed size is likely to be within ``batch_size``.
        """
        if topic.codec is Codec.NONE:
            return self._limit
        return min(
            max(self._limit, int(self._limit / (topic.ratio * _RATIO_MARGIN))), self._largest
        )

    def size_of_many(self, topic: Topic, size: int) -> int:
        """Return :meth:`largest_size`, or more for ``size`` bytes of records that come at once, so
        that the batches of a partition can all be in flight together.
        """
        share = size // max(1, self._max_in_flight - 1)  # the records' overhead takes some more
        return max(self.largest_size(topic), min(share, topic.largest))

    def open(
        self,
        queue: PartitionQueue,
        writer: RecordBatchWriter,
        leased: int,
        *,
        complete: bool = False,
    ) -> ProducerBatch:
        """Add a new batch, with ``leased`` bytes of the buffer, after all others. A ``complete``
        batch accepts no more records.
        """
        now = asyncio.get_running_loop().time()
        batch = ProducerBatch(
            queue.tp,
            writer,
            limit=self._limit,
            leased=leased,
            created_at=now,
            order=(queue.opened,),
            events=self._events,
        )
        topic = queue.topic
        if topic.codec is not Codec.NONE:
            batch.codec = topic.codec
            batch.ceiling = self.largest_size(topic)
        self.incomplete[batch] = queue
        self.aborting = None
        queue.add(batch, now, complete=complete)
        if complete:
            self._compressor.is_ready(batch, topic.level)
        return batch

    # -- sending -----------------------------------------------------------------------------------

    def advance(self, now: float) -> float:
        """Find the batches that are due at ``now``: full, or have lingered, or all if memory is
        needed or a flush waits. Return the loop time at which the next one is.
        """
        hurry = bool(self.flushes or self.closed is not None or self.pool.waiting)
        return self._schedule.advance(now, hurry=hurry)

    def leaders(self) -> list[int]:
        """Return the nodes that may have a batch to send, after :meth:`advance`; -1 stands for
        partitions without a leader.
        """
        return self._schedule.leaders()

    def is_ready(self, node_id: int, now: float) -> bool:
        """Return whether a node that :meth:`leaders` has returned has a batch to send."""
        return any(not queue.muted for queue in self._schedule.due(node_id, now))

    def drain(
        self, node_id: int, now: float, may_send: Callable[[TopicPartition], bool] | None
    ) -> list[ProducerBatch]:
        """Take the batches for one request to a node that :meth:`leaders` has returned for ``now``:
        one for each partition, up to ``max.request.size``, and the least recently served partitions
        first.

        Args:
            may_send: whether a partition's batches may be sent now; None if all may.
        """
        size = 0
        taken: list[ProducerBatch] = []
        for queue in self._schedule.due(node_id, now):
            if queue.muted:
                continue
            batch = queue.batches[0]
            plain = batch.codec is Codec.NONE
            estimate = (
                batch.writer.size + HEADER_SIZE if plain else self._compressed_size(queue, batch)
            )
            if taken and size + estimate > self.config.max_request_size:
                break
            if not plain and not self._compressor.is_ready(batch, queue.topic.level):
                queue.close(batch)
                continue
            if may_send is not None and not may_send(queue.tp):
                continue
            if self._idempotent and not queue.may_send():
                continue
            size += estimate
            taken.append(queue.take(now, mute=self._max_in_flight == 1))
            topic = queue.topic
            if batch.attempts > 1 or topic.sticky.current != batch.partition:
                continue
            # Small batches count too, or a trickle of keyless records would stay on one partition.
            if topic.sticky.used(batch.writer.size):
                self.switch_sticky(topic)
        if taken:
            self._stalled.pop(node_id, None)
        return taken

    def has_due(self, node_id: int) -> bool:
        """Return whether a node may have more batches to send now."""
        return self._schedule.has_due(node_id)

    @property
    def any_due(self) -> bool:
        """True if there may be a batch to send now."""
        return self._schedule.any_due

    def _compressed_size(self, queue: PartitionQueue, batch: ProducerBatch) -> int:
        if batch.encoded is not None:
            return len(batch.encoded)
        return HEADER_SIZE + int(batch.writer.size * min(1.0, queue.topic.ratio * _RATIO_MARGIN))

    @property
    def undelivered(self) -> int:
        """The number of accepted records without an outcome."""
        return sum(batch.count for batch in list(self.incomplete))

    # -- after an attempt --------------------------------------------------------------------------

    def attempt_ended(
        self, batch: ProducerBatch, unanswered_at: float | None = None
    ) -> PartitionQueue | None:
        """Note that a request with a batch has ended. Return its partition; None if the batch has
        ended before.

        Args:
            unanswered_at: the loop time, if the batch may be stored nevertheless.
        """
        queue = self.incomplete.get(batch)
        if queue is not None:
            queue.attempt_ended(batch, unanswered_at)
        return queue

    def put_back(self, batch: ProducerBatch, retry_at: float) -> None:
        """Queue a batch again in its old place, to be sent at loop time ``retry_at`` or later."""
        self.incomplete[batch].put_back(batch, retry_at, asyncio.get_running_loop().time())

    def split(self, batch: ProducerBatch) -> None:
        """Replace a batch that is too large with smaller ones, which get its memory and sequence
        numbers.
        """
        queue = self.incomplete[batch]
        try:
            queue.split(batch, asyncio.get_running_loop().time(), smallest=self._limit)
        finally:
            if batch.state is BatchState.SPLIT:
                del self.incomplete[batch]
                self.incomplete.update((part, queue) for _, part in batch.parts)
        # Expiry relies on the order of creation. Splits are rare, so sorting is cheap enough.
        self.incomplete = dict(sorted(self.incomplete.items(), key=lambda item: item[0].created_at))

    def stored(self, batch: ProducerBatch, now: float) -> None:
        """Remove a batch that is stored, and free its memory. Call it once for each batch."""
        self._release(batch).stored(batch, now)

    def given_up(self, batch: ProducerBatch) -> None:
        """Remove a batch that fails, and free its memory. Call it once for each batch.

        While a transaction is aborted, later batches fail too if they could only be sent under
        another epoch: none is assigned within a transaction.
        """
        queue = self._release(batch)
        queue.given_up(batch, asyncio.get_running_loop().time())
        if self.aborting is not None and queue.is_broken:
            self.drop_unsent(self.aborting)

    def _release(self, batch: ProducerBatch) -> PartitionQueue:
        queue = self.incomplete.pop(batch)
        self.pool.deallocate(batch.leased)
        return queue

    def expired(self, now: float) -> list[ProducerBatch]:
        """Return the batches older than ``delivery.timeout.ms``, in flight or not."""
        late = []
        for batch in self.incomplete:
            if batch.created_at + self._delivery_timeout_s > now:
                break  # the others are younger
            late.append(batch)
        return late

    def next_expiry(self) -> float:
        """Return the loop time at which the oldest batch expires."""
        for batch in self.incomplete:
            return batch.created_at + self._delivery_timeout_s
        return NEVER

    async def wait_for(self, batches: Iterable[ProducerBatch]) -> None:
        """Wait until these batches have ended; no batch lingers until then."""
        self.flushes += 1
        self._wake(0.0)
        pending = deque(batches)
        try:
            while pending:
                batch = pending.popleft()
                await batch.wait()
                pending.extend(part for _, part in batch.parts)
        finally:
            self.flushes -= 1

    async def flush(self) -> None:
        """Wait for all present batches, not for later ones."""
        await self.wait_for(list(self.incomplete))

    def drop_unsent(self, error: KafkaError) -> None:
        """Fail the batches that were never sent, because their transaction is aborted. Batches that
        may be stored stay until their outcome is known, and are not sent again.

        After a gap in the sequence numbers the broker stores nothing, so later batches fail too:
        they could only be sent under another epoch.
        """
        self.aborting = error
        all_in_turn(partial(self._drop_unsent, batch, error) for batch in list(self.incomplete))

    def _drop_unsent(self, batch: ProducerBatch, error: KafkaError) -> None:
        queue = self.incomplete.get(batch)
        if queue is None or batch.in_flight:
            return
        if batch.identity is None or queue.is_broken:
            batch.end_by(
                lambda: self._release(batch).given_up(batch, asyncio.get_running_loop().time()),
                partial(batch.fail, error, BatchState.ABORTED),
            )

    def abort(self, error: KafkaError) -> None:
        """Fail all batches without an outcome, and refuse further records, including those of
        calls that wait for memory or in a line.
        """
        self.closed = error
        steps = [partial(self._drop, batch, error) for batch in list(self.incomplete)]
        try:
            all_in_turn((partial(self.pool.close, error), *steps, self._wake_lines))
        except BaseException:
            self.fail_pending(error)  # a bug: no delivery waits forever
            raise

    def _drop(self, batch: ProducerBatch, error: KafkaError) -> None:
        if batch.state is BatchState.PENDING and batch in self.incomplete:
            batch.end_by(
                lambda: self._release(batch).drop(batch, asyncio.get_running_loop().time()),
                partial(batch.fail, error, BatchState.ABORTED),
            )

    def _wake_lines(self) -> None:
        for topic in self.topics.values():
            for queue in topic.queues:
                for call in queue.line:
                    call.wake()

    def fail_pending(self, error: KafkaError) -> None:
        """Fail all batches without an outcome, after the event loop was closed."""
        batches, self.incomplete = self.incomplete, {}
        all_in_turn(
            partial(batch.fail, error, BatchState.ABORTED)
            for batch in batches
            if batch.state is BatchState.PENDING
        )

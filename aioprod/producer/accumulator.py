"""Records wait here, in batches by partition, until the sender takes them. Decides over (state, now); does no I/O."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aioprod.cluster.snapshot import ClusterSnapshot, TopicInfo
from aioprod.config import ProducerConfig
from aioprod.errors import KafkaError
from aioprod.producer.batch import BatchState, Delivery, ProducerBatch
from aioprod.producer.buffer_pool import BufferPool
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.sequences import PartitionSequence, ProducerState
from aioprod.protocol.record_batch import HEADER_SIZE
from aioprod.protocol.record_writer import RecordBatchWriter
from aioprod.types import Headers, TopicPartition

NEVER = float("inf")


class PartitionQueue:
    """A partition's batches, oldest first; only the last one may take records."""

    __slots__ = ("batches", "leader", "lock", "muted", "opened", "sequence", "tp")

    def __init__(self, tp: TopicPartition, producer: ProducerState) -> None:
        self.tp = tp
        self.batches: deque[ProducerBatch] = deque()
        self.leader = -1
        self.muted = False
        self.opened = 0
        self.lock = asyncio.Lock()
        self.sequence = PartitionSequence(producer)

    @property
    def open(self) -> ProducerBatch | None:
        """The batch that takes records now."""
        batches = self.batches
        if batches and not (last := batches[-1]).closed:
            return last
        return None

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch that has to go again, in the order in which batches were made."""
        index = 0
        while index < len(self.batches) and self.batches[index].order < batch.order:
            index += 1
        self.batches.insert(index, batch)


class Topic:
    """What ``send`` needs of a topic, brought up to date with each metadata refresh and not per record."""

    __slots__ = ("available", "name", "queues", "sticky")

    def __init__(self, name: str, sticky: StickyPartition) -> None:
        self.name = name
        self.sticky = sticky
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []


@dataclass(slots=True)
class Ready:
    """The answer to: what can be sent now?

    Attributes:
        nodes: leaders with something to send.
        look_again_at: loop time at which that may change by itself.
        leaderless: whether a batch waits whose partition has no known leader.
    """

    nodes: list[int] = field(default_factory=list)
    look_again_at: float = NEVER
    leaderless: bool = False


class RecordAccumulator:
    """All open and waiting batches of a producer.

    Args:
        config: sizes and times.
        pool: the budget of memory.
        producer: the identity for idempotence; unused where that is off.
        rng: for the sticky choice.
        wake: called when the sender has to look.
    """

    def __init__(self, config: ProducerConfig, pool: BufferPool, producer: ProducerState, rng: random.Random, wake: Callable[[float], None]) -> None:
        self.config = config
        self.pool = pool
        self.topics: dict[str, Topic] = {}
        self.incomplete: dict[ProducerBatch, PartitionQueue] = {}
        self.closed: KafkaError | None = None
        self.flushes = 0
        self._producer = producer
        self._rng = rng
        self._wake = wake
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_ms / 1000
        self._limit = max(1, min(config.batch_size, config.max_request_size) - HEADER_SIZE)
        # Only partitions with batches are looked at: thousands of idle ones cost nothing.
        self._active: dict[PartitionQueue, None] = {}
        self._rotation: dict[int, int] = {}

    def update(self, snapshot: ClusterSnapshot) -> None:
        """Take over partitions and leaders from fresh metadata."""
        for name, info in snapshot.topics.items():
            if info.partitions:
                self._update_topic(name, info)

    def _update_topic(self, name: str, info: TopicInfo) -> None:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = Topic(name, StickyPartition(self.config.batch_size, self._rng))
        for partition in info.partitions[len(topic.queues) :]:
            topic.queues.append(PartitionQueue(TopicPartition(name, partition.partition), self._producer))
        for queue, partition in zip(topic.queues, info.partitions, strict=False):
            if queue.leader != partition.leader:
                queue.leader = partition.leader
                # A new leader has not asked for a pause.
                for batch in queue.batches:
                    batch.retry_at = 0.0
        topic.available = [p.partition for p in info.partitions if p.leader >= 0] or list(range(len(topic.queues)))
        if topic.sticky.current not in topic.available:
            topic.sticky.switch(topic.available)

    async def append(
        self, queue: PartitionQueue, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers, bound: int, deadline: float
    ) -> Delivery:
        """Put a record into the partition's open batch, or into a new one when there is memory for it.

        Raises:
            BufferExhaustedError: no memory before ``deadline`` (loop time).
            ProducerClosedError: closed before the record was taken.
        """
        size = max(self.config.batch_size, bound + HEADER_SIZE)
        if not self.pool.try_allocate(size):
            # Waiters make every batch ready, so that memory comes back soon.
            self._wake(0.0)
            await self.pool.allocate(size, deadline - asyncio.get_running_loop().time())
        leased = size
        try:
            async with queue.lock:
                if self.closed is not None:
                    raise self.closed
                # Somebody else may have opened a batch while this one waited for memory.
                last = queue.open
                delivery = last.try_append(timestamp, key, value, headers, bound) if last is not None else None
                if delivery is None:
                    delivery = self._open(queue, size, timestamp).try_append(timestamp, key, value, headers, bound)
                    leased = 0
                assert delivery is not None
                return delivery
        finally:
            if leased:
                self.pool.deallocate(leased)

    def _open(self, queue: PartitionQueue, leased: int, timestamp: int) -> ProducerBatch:
        now = asyncio.get_running_loop().time()
        if queue.batches:
            queue.batches[-1].closed = True
        batch = ProducerBatch(queue.tp, RecordBatchWriter(timestamp), limit=self._limit, leased=leased, created_at=now, order=queue.opened)
        queue.opened += 1
        queue.batches.append(batch)
        self.incomplete[batch] = queue
        self._active[queue] = None
        # The one before it is full now, and can go at once.
        self._wake(now if len(queue.batches) > 1 else now + self._linger_s)
        return batch

    def ready(self, now: float) -> Ready:
        """Which nodes have a batch to be sent: one that is full or has lingered, or any when room is needed or a flush waits."""
        found = Ready()
        nodes: dict[int, None] = {}
        for queue in list(self._active):
            if not queue.batches:
                del self._active[queue]
                continue
            due = self._due_at(queue)
            if due > now:
                found.look_again_at = min(found.look_again_at, due)
            elif queue.leader < 0:
                found.leaderless = True
            elif not queue.muted:
                nodes[queue.leader] = None
        found.nodes = list(nodes)
        return found

    def drain(self, node_id: int, now: float) -> list[ProducerBatch]:
        """Take the batches for one request to a node: at most one a partition, within ``max.request.size``, starting elsewhere each time."""
        queues = [queue for queue in self._active if queue.leader == node_id and queue.batches]
        if not queues:
            return []
        start = self._rotation.get(node_id, 0) % len(queues)
        size = 0
        taken: list[ProducerBatch] = []
        for position in range(len(queues)):
            queue = queues[(start + position) % len(queues)]
            batch = queue.batches[0]
            if queue.muted or self._due_at(queue) > now:
                continue
            size += batch.writer.size + HEADER_SIZE
            if taken and size > self.config.max_request_size:
                self._rotation[node_id] = start + position
                break
            if self.config.enable_idempotence and not self._may_send(queue, batch):
                size -= batch.writer.size + HEADER_SIZE
                continue
            batch.closed = True
            queue.batches.popleft()
            taken.append(batch)
            if not batch.attempts:
                self._note_sticky(queue, batch)
        return taken

    def _note_sticky(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        # Small batches count too: without this a trickle of keyless records would stay on one partition for ever.
        topic = self.topics[queue.tp.topic]
        if topic.sticky.current == queue.tp.partition:
            topic.sticky.used(batch.writer.size, topic.available)

    def _due_at(self, queue: PartitionQueue) -> float:
        """Loop time at which the queue's first batch may go: after its back-off, and after linger unless it is full or somebody waits."""
        first = queue.batches[0]
        if first.closed or first.attempts or len(queue.batches) > 1 or self.flushes or self.closed is not None or self.pool.waiting:
            return first.retry_at
        return max(first.retry_at, first.created_at + self._linger_s)

    def _may_send(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        # A sequence spans the batch's records, so it takes no more from here on.
        batch.closed = True
        return queue.sequence.may_send(batch)

    def put_back(self, batch: ProducerBatch, retry_at: float) -> None:
        """Queue a batch again, in its old place, not to be sent before ``retry_at``."""
        queue = self.incomplete[batch]
        batch.retry_at = retry_at
        queue.put_back(batch)
        self._active[queue] = None

    def complete(self, batch: ProducerBatch) -> PartitionQueue:
        """A batch is about to end: forget it and give its memory back. Once for each batch."""
        queue = self.incomplete.pop(batch)
        if batch in queue.batches:
            queue.batches.remove(batch)
        self.pool.deallocate(batch.leased)
        return queue

    def expired(self, now: float) -> list[ProducerBatch]:
        """Batches older than ``delivery.timeout.ms``, in flight or not."""
        late = []
        for batch in self.incomplete:
            if batch.created_at + self._delivery_timeout_s > now:
                break  # made later, expires later
            late.append(batch)
        return late

    def next_expiry(self) -> float:
        """Loop time at which the oldest batch expires."""
        for batch in self.incomplete:
            return batch.created_at + self._delivery_timeout_s
        return NEVER

    async def wait_for(self, batches: list[ProducerBatch]) -> None:
        """Return when these batches have ended; meanwhile nothing lingers."""
        self.flushes += 1
        self._wake(0.0)
        try:
            for batch in batches:
                await batch.wait()
        finally:
            self.flushes -= 1

    def abort(self, error: KafkaError) -> None:
        """Fail everything that has no outcome yet, and refuse what comes later."""
        self.closed = error
        self.pool.close(error)
        for batch in list(self.incomplete):
            self.complete(batch)
            batch.fail(error, BatchState.ABORTED)

"""The state of each topic and partition in the producer, with the waiting batches."""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque

from aioprod.cluster.snapshot import TopicInfo
from aioprod.codecs import Codec
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partitioner import Partitions, StickyPartition
from aioprod.producer.pending import PendingCall
from aioprod.producer.sequences import PartitionSequence, ProducerState
from aioprod.producer.shared_fields import PartitionFields, TopicFields
from aioprod.types import TopicPartition

# Kafka's steps: the estimate falls slowly and rises fast, as a batch that is too large costs more
# than one that is too small.
_RATIO_FALLS_BY = 0.005
_RATIO_RISES_BY = 0.05


class Topic(TopicFields):
    """The state of a topic that ``send`` needs, updated by each metadata refresh, not per record.

    Attributes:
        topic_id: changes if the topic is deleted and created again.
        available: numbers of the partitions that have a leader; all if none has.
        info: the topic in the last metadata.
        codec, level: how its batches are compressed.
        ratio: estimated ratio of compressed to uncompressed size.
        leaders: node id of each partition's leader, by number; -1 for one without a leader.
        partitions: ``count``, ``available`` and ``leaders`` for the application.
        longest: the number of batches in the longest of its queues.
        largest: bytes of records up to which a batch grows while it can't be sent.
        holder: the call that puts many records into the topic, if any; other calls wait in ``line``
            until it has finished.
    """

    __slots__ = (
        "_of_length",
        "available",
        "codec",
        "holder",
        "info",
        "largest",
        "leaders",
        "level",
        "line",
        "longest",
        "name",
        "partitions",
        "ratio",
        "split_noted",
        "topic_id",
    )

    queues: list[PartitionQueue]  # type: ignore[assignment]  # of this class only
    sticky: StickyPartition

    def __init__(self, name: str, sticky: StickyPartition, codec: Codec, level: int | None) -> None:
        self.name = name
        self.sticky = sticky
        self.codec = codec
        self.level = level
        self.ratio = 1.0
        self.longest = 0
        self.largest = 0
        self._of_length: dict[int, int] = {}  # the number of queues with at least that many batches
        self.split_noted = False
        self.info: TopicInfo | None = None
        self.topic_id: uuid.UUID | None = None
        self.count = 0
        self.queues = []
        self.available: list[int] = []
        self.leaders: list[int] = []
        self.partitions = Partitions(0, ())
        self.holder: PendingCall | None = None
        # An OrderedDict finds its first item in constant time, also after many removals.
        self.line: OrderedDict[PendingCall, None] = OrderedDict()

    def queue_length(self, partition: int) -> int:
        """Return how many batches wait for a partition."""
        return len(self.queues[partition].batches)

    def grew(self, length: int) -> None:
        """Note that a queue has got a batch, and now has ``length`` of them."""
        self._of_length[length] = self._of_length.get(length, 0) + 1
        if length > self.longest:
            self.longest = length

    def shrank(self, length: int) -> None:
        """Note that a queue with ``length`` batches loses one."""
        self._of_length[length] -= 1
        while self.longest and not self._of_length[self.longest]:
            self.longest -= 1

    def expect_no_compression(self) -> None:
        """Reset the estimate to no compression: a batch was too large for the broker."""
        self.ratio = max(1.0, self.ratio)

    def observe_ratio(self, observed: float) -> None:
        """Update the estimate with a compressed batch."""
        if observed > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISES_BY, observed)
        elif observed < self.ratio:
            self.ratio = max(self.ratio - _RATIO_FALLS_BY, observed)


class PartitionQueue(PartitionFields):
    """A partition's batches, oldest first; only the last one accepts records.

    Attributes:
        tail: the batch that accepts records now, if any.
        open: the same batch; None while calls wait in line.
        line: calls that wait for a place here, in the order of the calls.
        resting: whether the first call in line only lets other tasks run.
        opened: the number of created batches.
        muted: whether nothing may be sent before the reply to the request in flight.
    """

    __slots__ = (
        "batches",
        "leader",
        "line",
        "muted",
        "opened",
        "resting",
        "sequence",
        "tail",
        "topic",
        "tp",
    )

    open: ProducerBatch | None

    def __init__(self, topic: Topic, partition: int, producer: ProducerState) -> None:
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
        self.batches: deque[ProducerBatch] = deque()
        self.tail: ProducerBatch | None = None
        self.open = None
        self.line: OrderedDict[PendingCall, None] = OrderedDict()
        self.resting = False
        self.leader = -1
        self.muted = False
        self.opened = 0
        self.sequence = PartitionSequence(producer)

    @property
    def first(self) -> PendingCall | None:
        """The first call in line, if any."""
        return next(iter(self.line), None)

    def join(self, pending: PendingCall) -> None:
        """Add a call to the end of the line."""
        self.line[pending] = None
        self.open = None

    def leave(self, pending: PendingCall) -> None:
        """Remove a call from the line, if it is in it; after the last one the fast path is open."""
        self.line.pop(pending, None)
        if not self.line:
            self.open = self.tail

    def add(self, batch: ProducerBatch, *, complete: bool) -> None:
        """Add a new batch after all others; a ``complete`` one accepts no more records."""
        if self.tail is not None:
            self.close(self.tail)
        self.opened += 1
        self.batches.append(batch)
        if complete:
            batch.closed = True
        else:
            self.tail = batch
            self.open = None if self.line else batch

    def close(self, batch: ProducerBatch) -> None:
        """Close a batch: it accepts no more records."""
        batch.closed = True
        if self.tail is batch:
            self.tail = self.open = None

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch that has to be retried, in the order in which batches were created."""
        index = 0
        while index < len(self.batches) and self.batches[index].order < batch.order:
            index += 1
        self.batches.insert(index, batch)

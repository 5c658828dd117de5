"""What is known and waiting per topic and partition."""

from __future__ import annotations

import uuid
from collections import OrderedDict, deque

from aioprod.cluster.snapshot import TopicInfo
from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.pending import PendingCall
from aioprod.producer.sequences import PartitionSequence, ProducerState
from aioprod.protocol.compression import Codec
from aioprod.types import TopicPartition

# Kafka's own steps: an estimate falls slowly and rises fast, for a batch that turns out too large
# costs more than one too small.
_RATIO_FALLS_BY = 0.005
_RATIO_RISES_BY = 0.05


class Topic:
    """What ``send`` needs of a topic, brought up to date with each metadata refresh and not per
    record.

    Attributes:
        topic_id: a topic that is deleted and made again has another one.
        count: how many partitions it has.
        queues: the partitions, by number; more than ``count`` where it was made again with fewer
            (sequence numbers must not be forgotten).
        available: numbers of the partitions that have a leader; all, where none has.
        info: what metadata has told of it last.
        codec, level: how its batches are compressed.
        ratio: compressed size by uncompressed size, as estimated from the batches before.
        leaders: node id of each partition's leader, by number; -1 for one without a leader.
        longest: the number of batches in the longest of its queues.
        holder: the call that puts many records there, if one is under way: other calls wait in
            ``line`` until it is done.
    """

    __slots__ = (
        "_of_length",
        "available",
        "codec",
        "count",
        "holder",
        "info",
        "leaders",
        "level",
        "line",
        "longest",
        "name",
        "queues",
        "ratio",
        "split_noted",
        "sticky",
        "topic_id",
    )

    def __init__(self, name: str, sticky: StickyPartition, codec: Codec, level: int | None) -> None:
        self.name = name
        self.sticky = sticky
        self.codec = codec
        self.level = level
        self.ratio = 1.0
        self.longest = 0
        self._of_length: dict[int, int] = {}  # how many queues have at least so many batches
        self.split_noted = False
        self.info: TopicInfo | None = None
        self.topic_id: uuid.UUID | None = None
        self.count = 0
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []
        self.leaders: list[int] = []
        self.holder: PendingCall | None = None
        # Linked: the first of a dict is found only behind all those that were there before it.
        self.line: OrderedDict[PendingCall, None] = OrderedDict()

    def queue_length(self, partition: int) -> int:
        """Batches that wait for a partition."""
        return len(self.queues[partition].batches)

    def grew(self, length: int) -> None:
        """One of the queues has got a batch, and has ``length`` of them now."""
        self._of_length[length] = self._of_length.get(length, 0) + 1
        self.longest = max(self.longest, length)

    def shrank(self, length: int) -> None:
        """One of the queues loses a batch, and has had ``length`` of them."""
        self._of_length[length] -= 1
        while self.longest and not self._of_length[self.longest]:
            self.longest -= 1

    def expect_no_compression(self) -> None:
        """Expect batches to be as large as uncompressed: one was too large for the broker."""
        self.ratio = max(1.0, self.ratio)

    def observe_ratio(self, observed: float) -> None:
        """Learn from a batch that was compressed."""
        if observed > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISES_BY, observed)
        elif observed < self.ratio:
            self.ratio = max(self.ratio - _RATIO_FALLS_BY, observed)


class PartitionQueue:
    """A partition's batches, oldest first; only the last one may take records.

    Attributes:
        tail: the batch that takes records now, if there is one.
        open: the same, if a new call may append to it without waiting: None while calls wait in
            line.
        line: calls that wait for a place here, in the order of the calls.
        resting: the first in line needs nothing; it lets other tasks run.
        opened: how many batches were made.
        muted: nothing may be sent before what is on its way has come back (one request in flight).
    """

    __slots__ = (
        "batches",
        "leader",
        "line",
        "muted",
        "open",
        "opened",
        "resting",
        "sequence",
        "tail",
        "topic",
        "tp",
    )

    def __init__(self, topic: Topic, partition: int, producer: ProducerState) -> None:
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
        self.batches: deque[ProducerBatch] = deque()
        self.tail: ProducerBatch | None = None
        self.open: ProducerBatch | None = None
        self.line: OrderedDict[PendingCall, None] = OrderedDict()
        self.resting = False
        self.leader = -1
        self.muted = False
        self.opened = 0
        self.sequence = PartitionSequence(producer)

    @property
    def first(self) -> PendingCall | None:
        """The first call in line."""
        return next(iter(self.line), None)

    def join(self, pending: PendingCall) -> None:
        """Let a call wait behind all others."""
        self.line[pending] = None
        self.open = None

    def leave(self, pending: PendingCall) -> None:
        """Take a call out of the line, if it is there; behind the last one the fast path is open
        again.
        """
        self.line.pop(pending, None)
        if not self.line:
            self.open = self.tail

    def add(self, batch: ProducerBatch, *, complete: bool) -> None:
        """Put a new batch behind all others; a ``complete`` one takes no records but those that it
        has.
        """
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
        """Let a batch take no more records."""
        batch.closed = True
        if self.tail is batch:
            self.tail = self.open = None

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch that has to go again, in the order in which batches were made."""
        index = 0
        while index < len(self.batches) and self.batches[index].order < batch.order:
            index += 1
        self.batches.insert(index, batch)

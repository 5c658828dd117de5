"""What is known and waiting per topic and partition."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque

from aioprod.producer.batch import ProducerBatch
from aioprod.producer.partitioner import StickyPartition
from aioprod.producer.sequences import PartitionSequence, ProducerState
from aioprod.protocol.compression import Codec
from aioprod.types import TopicPartition

# Kafka's own steps: an estimate falls slowly and rises fast, for a batch that turns out too large costs more than one too small.
_RATIO_FALLS_BY = 0.005
_RATIO_RISES_BY = 0.05


class Topic:
    """What ``send`` needs of a topic, brought up to date with each metadata refresh and not per record.

    Attributes:
        topic_id: a topic that is deleted and made again has another one.
        count: how many partitions it has.
        queues: the partitions, by number; more than ``count`` where it was made again with fewer (sequence numbers must not be forgotten).
        available: numbers of the partitions that have a leader; all, where none has.
        codec, level: how its batches are compressed.
        ratio: compressed size by uncompressed size, as estimated from the batches before.
        longest: at least the number of batches in the longest of its queues.
    """

    __slots__ = ("available", "codec", "count", "level", "longest", "name", "queues", "ratio", "split_noted", "sticky", "topic_id")

    def __init__(self, name: str, sticky: StickyPartition, codec: Codec, level: int | None) -> None:
        self.name = name
        self.sticky = sticky
        self.codec = codec
        self.level = level
        self.ratio = 1.0
        self.longest = 0
        self.split_noted = False
        self.topic_id: uuid.UUID | None = None
        self.count = 0
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []

    def queue_length(self, partition: int) -> int:
        """Batches that wait for a partition."""
        return len(self.queues[partition].batches)

    def observe_ratio(self, observed: float) -> None:
        """Learn from a batch that was compressed."""
        if observed > self.ratio:
            self.ratio = max(self.ratio + _RATIO_RISES_BY, observed)
        elif observed < self.ratio:
            self.ratio = max(self.ratio - _RATIO_FALLS_BY, observed)


class PartitionQueue:
    """A partition's batches, oldest first; only the last one may take records."""

    __slots__ = ("batches", "leader", "lock", "muted", "opened", "sequence", "topic", "tp")

    def __init__(self, topic: Topic, partition: int, producer: ProducerState) -> None:
        self.topic = topic
        self.tp = TopicPartition(topic.name, partition)
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

"""The fields of producers, topics, partitions and batches that the accelerator reads for each
record. It has these classes too, so that its functions find the fields without attribute lookups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from aioprod.native import accelerated
from aioprod.protocol.record_writer import RecordBatchWriter


@accelerated
class BatchFields:
    """The fields of a batch that deliveries and the fast path of ``send`` read.

    Attributes:
        writer: takes the records.
        open_until: bytes of records up to which the batch takes another one without encoding.
        topic, partition: the partition.
        base_offset: offset of the first record; -1 if it is not stored, or not known.
        starts, timestamps: indexes of records from which on a timestamp applies, the first is 0,
            and these timestamps, in milliseconds since 1970. Both are empty until the batch is
            stored.
        key_sizes, value_sizes: bytes of each record's key and value, -1 for null; empty if all are
            null or unknown.

    The fields that :meth:`__new__` sets are those of :class:`ProducerBatch`.
    """

    __slots__ = (
        "_callbacks",
        "_seen",
        "_waiters",
        "attempts",
        "base_offset",
        "base_sequence",
        "closed",
        "encoded",
        "error",
        "first_sent_at",
        "grown",
        "identity",
        "in_doubt",
        "in_flight",
        "key_sizes",
        "may_be_stored",
        "open_until",
        "partition",
        "parts",
        "retry_at",
        "starts",
        "timestamps",
        "topic",
        "unanswered_at",
        "value_sizes",
        "writer",
    )

    writer: RecordBatchWriter
    open_until: int
    topic: str
    partition: int
    base_offset: int
    starts: Sequence[int]
    timestamps: Sequence[int]
    key_sizes: Sequence[int]
    value_sizes: Sequence[int]

    def __new__(cls, *args: object, **named: object) -> Self:
        """Return a batch of which nothing has happened yet. Arguments are for ``__init__``."""
        self: Any = object.__new__(cls)
        self.starts = self.timestamps = self.key_sizes = self.value_sizes = self.parts = ()
        self.closed = self.grown = self.in_flight = self.may_be_stored = self.in_doubt = False
        self._seen = False
        self.identity = self.encoded = self.error = self._waiters = self._callbacks = None
        self.retry_at = self.first_sent_at = self.unanswered_at = 0.0
        self.attempts = 0
        self.base_sequence = -1
        found: Self = self
        return found


@accelerated
class PartitionFields:
    """The fields of a partition that the fast path reads.

    Attributes:
        open: the batch to which a call may append without waiting, if any.
    """

    __slots__ = ("open",)

    open: BatchFields | None


@accelerated
class StickyFields:
    """The fields of the partition choice for keyless records that the fast path reads.

    Attributes:
        current: the partition's number.
    """

    __slots__ = ("current",)

    current: int


@accelerated
class TopicFields:
    """The fields of a topic that the fast path reads.

    Attributes:
        count: the number of its partitions.
        queues: the partitions, by number; more than ``count`` if the topic was created again with
            fewer, because sequence numbers must be kept.
        sticky: the partition of keyless records.
    """

    __slots__ = ("count", "queues", "sticky")

    count: int
    queues: list[PartitionFields]
    sticky: StickyFields


@accelerated
class ProducerFields:
    """The field of a producer that ``send`` reads."""

    __slots__ = ("_fast_path",)

    _fast_path: object

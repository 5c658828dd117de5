"""What the accelerator reads of batches, partitions and topics for each record. It has these
classes too, so that its functions find the fields without attribute lookups.
"""

from __future__ import annotations

from collections.abc import Sequence

from aioprod.native import accelerated
from aioprod.protocol.record_writer import RecordBatchWriter


@accelerated
class BatchFields:
    """What deliveries and the fast path of ``send`` read of a batch.

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
    """

    __slots__ = (
        "base_offset",
        "key_sizes",
        "open_until",
        "partition",
        "starts",
        "timestamps",
        "topic",
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


@accelerated
class PartitionFields:
    """What the fast path reads of a partition.

    Attributes:
        open: the batch to which a call may append without waiting, if any.
    """

    __slots__ = ("open",)

    open: BatchFields | None


@accelerated
class StickyFields:
    """What the fast path reads of the choice of keyless records.

    Attributes:
        current: the partition's number.
    """

    __slots__ = ("current",)

    current: int


@accelerated
class TopicFields:
    """What the fast path reads of a topic.

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

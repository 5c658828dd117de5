"""What a delivery reads of its batch. The accelerator has it too, as deliveries are in C there."""

from __future__ import annotations

from collections.abc import Sequence

from aioprod.native import accelerated


@accelerated
class BatchOutcome:
    """Where the records of a batch are stored.

    Attributes:
        topic, partition: the partition.
        base_offset: offset of the first record; -1 if it is not stored, or not known.
        starts, timestamps: indexes of records from which on a timestamp holds, the first is 0, and
            these timestamps, in milliseconds since 1970. Both are empty until the batch is stored.
        key_sizes, value_sizes: bytes of each record's key and value, -1 for null; empty if all are
            null or unknown.
    """

    __slots__ = (
        "base_offset",
        "key_sizes",
        "partition",
        "starts",
        "timestamps",
        "topic",
        "value_sizes",
    )

    topic: str
    partition: int
    base_offset: int
    starts: Sequence[int]
    timestamps: Sequence[int]
    key_sizes: Sequence[int]
    value_sizes: Sequence[int]

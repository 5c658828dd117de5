"""What a processor knows of one assigned partition."""

from __future__ import annotations

from aioprod import TopicPartition
from aioprod.processing.completed_offsets import CompletedOffsets


class PartitionProgress:
    """An assigned partition, from its assignment until it is revoked.

    Attributes:
        tp: the partition.
        completed: which of its records are done.
        active: the number of its records that are being handled.
        sending: the number of its records whose outputs are not all acknowledged.
        closed: whether it is given up: none of its records is handled again.
    """

    __slots__ = ("active", "closed", "completed", "sending", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.completed = CompletedOffsets()
        self.active = 0
        self.sending = 0
        self.closed = False

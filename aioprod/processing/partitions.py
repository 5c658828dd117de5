"""The state of one assigned partition: which of its records are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aioprod import OffsetAndMetadata, ProducerRecord, TopicPartition


class CompletedOffsets:
    """The records of one partition between the position to commit and the last one that was read.

    Offsets ascend, but with gaps, which compaction and transactions leave.

    Attributes:
        position: the position to commit: all records before it are done. None before the first
            record.
        outputs: records to send when the position is committed, in the order of their inputs.
        uncommitted: the number of records before the position whose commit is not confirmed.
    """

    def __init__(self) -> None:
        self._reading: deque[tuple[int, int]] = deque()  # (offset, leader epoch)
        self._done: dict[int, Sequence[ProducerRecord]] = {}
        self._committed = -1
        self.position: OffsetAndMetadata | None = None
        self.outputs: deque[ProducerRecord] = deque()
        self.uncommitted: int = 0

    @property
    def last_read(self) -> int:
        """The offset of the last record that was read; -1 before the first."""
        if self._reading:
            return self._reading[-1][0]
        return -1 if self.position is None else self.position.offset - 1

    @property
    def first_incomplete(self) -> int | None:
        """The offset of the first record that is not done; None if all are."""
        return self._reading[0][0] if self._reading else None

    @property
    def incomplete(self) -> int:
        """The number of records from the position on, done or not."""
        return len(self._reading)

    @property
    def is_done(self) -> bool:
        """True if all records that were read are done."""
        return not self._reading

    @property
    def is_committed(self) -> bool:
        """True if the commit of the position is confirmed."""
        return self.position is None or self.position.offset <= self._committed

    def add(self, offset: int, leader_epoch: int = -1) -> None:
        """Add the next record that was read.

        Raises:
            ValueError: if a later record was read before.
        """
        if offset <= self.last_read:
            raise ValueError(f"offset {offset} was read after offset {self.last_read}")
        self._reading.append((offset, leader_epoch))

    def complete(self, offset: int, outputs: Sequence[ProducerRecord] = ()) -> bool:
        """Mark a record as done; return whether the position has moved.

        Args:
            outputs: records to send when the position is committed.
        """
        if self.position is not None and offset < self.position.offset:
            return False  # already done
        self._done[offset] = outputs
        reading, moved = self._reading, 0
        while reading and reading[0][0] in self._done:
            last, leader_epoch = reading.popleft()
            self.outputs.extend(self._done.pop(last))
            moved += 1
        if not moved:
            return False
        self.position = OffsetAndMetadata(last + 1, "", leader_epoch)
        self.uncommitted += moved
        return True

    def reopen(self, offset: int) -> None:
        """Mark a record after the position as not done after all."""
        self._done.pop(offset, None)

    def committed(self, offset: int, records: int, outputs: int = 0) -> None:
        """Process the confirmation of a commit.

        Args:
            offset: the committed position.
            records: ``uncommitted`` when the commit began.
            outputs: the number of outputs that were sent with it, from the first one on.
        """
        self._committed = max(self._committed, offset)
        self.uncommitted -= records
        for _ in range(outputs):
            self.outputs.popleft()


class PartitionProgress:
    """An assigned partition, from its assignment to its revocation.

    Attributes:
        tp: the partition.
        completed: the records that are done.
        active: the number of its records that are being handled.
        sending: the number of its records whose outputs are not all acknowledged.
        closed: whether it was revoked: none of its records is handled again.
    """

    __slots__ = ("active", "closed", "completed", "sending", "tp")

    def __init__(self, tp: TopicPartition) -> None:
        self.tp: TopicPartition = tp
        self.completed: CompletedOffsets = CompletedOffsets()
        self.active: int = 0
        self.sending: int = 0
        self.closed: bool = False

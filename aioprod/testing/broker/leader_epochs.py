"""The start offset of each leader epoch in a partition's log, like Kafka's leader epoch cache
(KIP-101, KIP-320).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The latest epoch up to the requested one, and the offset after its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of a log, each with its first offset. Epochs and offsets ascend. When an
    epoch begins, a previous epoch without records is removed.
    """

    def __init__(self) -> None:
        self._epochs = [0]
        self._starts = [0]

    @property
    def latest_start(self) -> int:
        """The first offset of the latest epoch."""
        return self._starts[-1]

    def begin(self, epoch: int, offset: int) -> None:
        """Begin an epoch at ``offset``."""
        self.truncate(offset)
        self._epochs.append(epoch)
        self._starts.append(offset)

    def truncate(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after ``end_offset``."""
        kept = bisect_left(self._starts, end_offset)
        del self._epochs[kept:], self._starts[kept:]

    def advance_start(self, offset: int) -> None:
        """Remove the epochs that end before ``offset``, where the log begins now."""
        gone = bisect_right(self._starts, offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = offset

    def find(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, or -1 if it is unknown."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNKNOWN

    def find_end(self, epoch: int, end_offset: int) -> EpochEnd:
        """Return where ``epoch`` ends in a log that ends at ``end_offset``, or (-1, -1) if the log
        has neither this epoch nor a later one.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return EpochEnd(UNKNOWN, UNKNOWN)
        following = bisect_right(self._epochs, epoch)
        if following == len(self._epochs):
            return EpochEnd(epoch, end_offset)
        return EpochEnd(
            self._epochs[following - 1] if following else epoch, self._starts[following]
        )

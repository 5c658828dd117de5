"""Where each leader's time begins in a partition's log, as Kafka's leader epoch cache keeps it
(KIP-101, KIP-320).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The newest epoch up to one that was asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The leader epochs of a log, each with its first offset. Both rise; an epoch without records
    is forgotten when the next one begins.
    """

    def __init__(self) -> None:
        self._epochs = [0]
        self._starts = [0]

    @property
    def latest_start(self) -> int:
        """The offset at which the newest epoch begins."""
        return self._starts[-1]

    def begin(self, epoch: int, offset: int) -> None:
        """A leader of this epoch writes from ``offset`` on."""
        self.truncate(offset)
        self._epochs.append(epoch)
        self._starts.append(offset)

    def truncate(self, end_offset: int) -> None:
        """Forget what begins at ``end_offset`` or behind it."""
        kept = bisect_left(self._starts, end_offset)
        del self._epochs[kept:], self._starts[kept:]

    def advance_start(self, offset: int) -> None:
        """The log begins at ``offset`` now: epochs that end before it are forgotten."""
        gone = bisect_right(self._starts, offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = offset

    def find(self, offset: int) -> int:
        """The epoch under which the record at ``offset`` was written, -1 where it is not known."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else UNKNOWN

    def find_end(self, epoch: int, end_offset: int) -> EpochEnd:
        """Where ``epoch`` ends in a log that ends at ``end_offset``; (-1, -1) where the log knows
        of no such epoch, nor of a later one.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return EpochEnd(UNKNOWN, UNKNOWN)
        following = bisect_right(self._epochs, epoch)
        if following == len(self._epochs):
            return EpochEnd(epoch, end_offset)
        return EpochEnd(
            self._epochs[following - 1] if following else epoch, self._starts[following]
        )

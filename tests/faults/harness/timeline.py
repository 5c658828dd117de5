"""The times at which the records of a client were acknowledged, and the gaps between them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Failure(NamedTuple):
    """A record that failed: its partition, when (monotonic clock), how many seconds after it was
    sent, and the name of the error.
    """

    partition: int
    at: float
    after: float
    error: str


@dataclass
class Timeline:
    """Acknowledgements and failures of a client.

    Attributes:
        acknowledged: the times of acknowledgements by partition, ascending (monotonic clock).
        open: the number of unresolved records.
        close_seconds: how long closing took.
    """

    acknowledged: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: list[Failure] = field(default_factory=list)
    sent: int = 0
    open: int = 0
    close_seconds: float = 0.0

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return sum(map(len, self.acknowledged.values()))

    def gap(self, start: float, end: float, partitions: Iterable[int] | None = None) -> float:
        """Return the longest time in seconds without an acknowledgement in any of ``partitions``
        (None for all).
        """
        if partitions is None:
            partitions = self.acknowledged
        return max(
            (self._gap_of(partition, start, end) for partition in partitions), default=end - start
        )

    def _gap_of(self, partition: int, start: float, end: float) -> float:
        moments = self.acknowledged.get(partition, [])
        within = [start, *moments[bisect_left(moments, start) : bisect_right(moments, end)], end]
        return max(later - earlier for earlier, later in pairwise(within))

    def gaps(
        self, moments: list[float], end: float, partitions: Iterable[int] | None = None
    ) -> list[float]:
        """Return the gap after each of these times, up to the next."""
        listed = None if partitions is None else list(partitions)
        return [
            self.gap(start, until, listed)
            for start, until in zip(moments, [*moments[1:], end], strict=True)
        ]


def median_gap(gaps: list[float]) -> float:
    """Return the median; 0 if there are no gaps."""
    return median(gaps) if gaps else 0.0

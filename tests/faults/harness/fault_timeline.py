"""When a client's records were acknowledged, and how long nothing was. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import NamedTuple


class Failure(NamedTuple):
    """A record that was given up: its partition, when (seconds of the monotonic clock), how long
    after it was sent, and why.
    """

    partition: int
    at: float
    after: float
    error: str


@dataclass
class Timeline:
    """What one client was told, and when.

    Attributes:
        acknowledged: by partition, the moments in seconds of the monotonic clock, ascending.
        open: records without an outcome.
        close_seconds: how long closing took.
    """

    acknowledged: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: list[Failure] = field(default_factory=list)
    sent: int = 0
    open: int = 0
    close_seconds: float = 0.0

    @property
    def count(self) -> int:
        """How many records were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def gap(self, start: float, end: float, partitions: Iterable[int] | None = None) -> float:
        """The longest time within which a partition got no acknowledgement, in seconds; the longest
        of all ``partitions`` (of all that there are).
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
        """The gap behind each of these moments, up to the next."""
        listed = None if partitions is None else list(partitions)
        return [
            self.gap(start, until, listed)
            for start, until in zip(moments, [*moments[1:], end], strict=True)
        ]


def middle(gaps: list[float]) -> float:
    """The median; 0 of nothing."""
    return median(gaps) if gaps else 0.0

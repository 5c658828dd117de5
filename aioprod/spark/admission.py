"""Limits the size of micro-batches, based on offsets and time, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aioprod.spark.offsets import Offsets, limit_offsets
from aioprod.types import TopicPartition


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits on the number of offsets in a micro-batch, over all partitions, from Spark's
    options.

    Attributes:
        max_offsets: ``maxOffsetsPerTrigger``; None for no limit.
        min_offsets: ``minOffsetsPerTrigger``: wait for more if fewer are available.
        max_delay_ms: ``maxTriggerDelay``: the maximum time to wait since the last micro-batch.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000

    @property
    def limited(self) -> bool:
        return self.max_offsets is not None or self.min_offsets is not None


class Admission:
    """Decides where each of a query's micro-batches ends."""

    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._last_at: float | None = None

    def end(
        self, start: Offsets, latest: Mapping[TopicPartition, int], now: float
    ) -> Offsets | None:
        """Return the end of the micro-batch that begins at ``start``, or None if too few offsets
        are available. The first micro-batch of a run does not wait.

        Args:
            start: the position of every partition in ``latest``.
            now: the time of a monotonic clock in seconds.
        """
        if self._too_early(start, latest, now):
            return None
        self._last_at = now
        return limit_offsets(start, latest, self._limits.max_offsets)

    def _too_early(self, start: Offsets, latest: Mapping[TopicPartition, int], now: float) -> bool:
        least = self._limits.min_offsets
        if (
            least is None
            or self._last_at is None
            or now - self._last_at >= self._limits.max_delay_ms / 1000
        ):
            return False
        return sum(end - start[tp] for tp, end in latest.items()) < least

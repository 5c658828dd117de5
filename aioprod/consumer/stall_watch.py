"""Notices partitions that have records to read, and whose position does not move.

The state between two looks is kept here; a look is synchronous, over what waits and the time.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.reporting import ReadingReporter
from aioprod.logs import Logger, get_logger
from aioprod.types import TopicPartition

if TYPE_CHECKING:
    from aioprod.config.share_consumer import ShareConsumerConfig

log: Logger = get_logger(__name__)

_NEVER = float("inf")
_LOOKS_PER_LIMIT = 4


class Waiting(NamedTuple):
    """Reading that makes no progress now.

    Attributes:
        mark: another object after each progress.
        reason: the event for which it waits.
    """

    mark: object
    reason: str


class Reasons(Protocol):
    """Knows what waits, and why."""

    def look(self, now: float) -> Mapping[TopicPartition | None, Waiting]:
        """Return what makes no progress at a loop time, by partition; None stands for the group."""

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Return whether a partition is still assigned."""


class Stall(NamedTuple):
    """Reading that makes no progress.

    Attributes:
        partition: None if the consumer waits for its group.
        since: loop time at which it was first seen to wait.
        reason: the event for which it waits.
    """

    partition: TopicPartition | None
    since: float
    reason: str

    def __str__(self) -> str:
        if self.partition is None:
            return f"no partitions: {self.reason}"
        return f"{self.partition.topic}-{self.partition.partition} is not read: {self.reason}"


@dataclass(slots=True)
class _Seen:
    """The progress of reading at a check."""

    mark: object
    since: float


class StallWatch:
    """Looks at all partitions a few times per ``stall_timeout_ms``.

    Args:
        config: has ``stall_timeout_ms``, which is 0 for no looks.
        reasons: reports what waits, and why.
        reporter: is called for each stall, and of its end.
    """

    def __init__(
        self,
        config: "ConsumerConfig | ShareConsumerConfig",
        reasons: Reasons,
        reporter: ReadingReporter[Any],
    ) -> None:
        self._client_id = config.client_id
        self._limit_s = config.stall_timeout_ms / 1000
        self._reasons = reasons
        self._reporter = reporter
        self._next = 0.0
        self._seen: dict[TopicPartition | None, _Seen] = {}
        self._stalls: dict[TopicPartition | None, Stall] = {}

    @property
    def first(self) -> Stall | None:
        """The stall that began first, of those that last; None if there is none."""
        return min(self._stalls.values(), key=lambda stall: stall.since, default=None)

    @property
    def stalled_partitions(self) -> int:
        """The number of partitions that are not read."""
        return len(self._stalls.keys() - {None})

    def is_stalled(self, tp: TopicPartition) -> bool:
        """Return whether a partition is not read."""
        return tp in self._stalls

    def step(self, now: float) -> float:
        """Look, if that is due; return the loop time of the next look."""
        if not self._limit_s:
            return _NEVER
        if now >= self._next:
            self._next = now + self._limit_s / _LOOKS_PER_LIMIT
            self._look(now)
        return self._next

    def _look(self, now: float) -> None:
        waiting = self._reasons.look(now)
        for gone in self._seen.keys() - waiting.keys():
            del self._seen[gone]
        stalls = {}
        for what, (mark, reason) in waiting.items():
            seen = self._seen.get(what)
            if seen is None or seen.mark != mark:
                self._seen[what] = _Seen(mark, now)
            elif now - seen.since >= self._limit_s:
                stalls[what] = Stall(what, seen.since, reason)
        self._report(stalls, now)
        self._stalls = stalls

    def _report(self, stalls: dict[TopicPartition | None, Stall], now: float) -> None:
        for what, stall in stalls.items():
            if what not in self._stalls:
                seconds = now - stall.since
                log.warning("%s: for %.0f s %s", self._client_id, seconds, stall)
                self._reporter.stalled(what, stall.reason, seconds, is_over=False)
        for what, stall in self._stalls.items():
            if what not in stalls and (what is None or self._reasons.is_assigned(what)):
                name = "the group" if what is None else f"{what.topic}-{what.partition}"
                seconds = now - stall.since
                who = self._client_id
                log.info("%s: %s: reading continues, after %.0f s", who, name, seconds)
                self._reporter.stalled(what, stall.reason, seconds, is_over=True)

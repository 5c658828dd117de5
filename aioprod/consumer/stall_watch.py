"""Notices partitions that have records to read, and whose position does not move.

The state between two looks is kept here; a look is synchronous, over the subscription and the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.membership import Membership
from aioprod.consumer.problems import Problems
from aioprod.consumer.reporting import ConsumerReporter
from aioprod.consumer.subscription import PartitionState, Phase, SubscriptionState
from aioprod.errors import KafkaError
from aioprod.types import TopicPartition

log = logging.getLogger(__name__)

_NEVER = float("inf")
_LOOKS_PER_LIMIT = 4
_PHASES = {
    Phase.INITIALIZING: "its committed offset is not known yet",
    Phase.AWAIT_RESET: "the offset at which to begin is not known yet",
    Phase.AWAIT_VALIDATION: "its new leader has not confirmed the position yet",
}


@dataclass(frozen=True, slots=True)
class Stall:
    """Reading that makes no progress.

    Attributes:
        partition: None if the consumer waits for its group.
        since: loop time at which it was first seen to wait.
        reason: what it waits for.
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
    """How far reading was at a look."""

    mark: object
    since: float


class StallWatch:
    """Looks at all partitions a few times per ``stall_timeout_ms``.

    Args:
        metadata: knows the leaders.
        reporter: hears of each stall, and of its end.
        settle: makes the positions those of the application.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        problems: Problems,
        membership: Membership,
        metadata: Metadata,
        reporter: ConsumerReporter,
        settle: Callable[[], None],
    ) -> None:
        self._limit_s = config.stall_timeout_ms / 1000
        self._read_committed = config.isolation_level == "read_committed"
        self._subscription = subscription
        self._buffer = buffer
        self._problems = problems
        self._membership = membership
        self._metadata = metadata
        self._reporter = reporter
        self._settle = settle
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
        """Whether a partition is not read."""
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
        self._settle()
        waiting: dict[TopicPartition | None, tuple[object, str]] = {}
        if self._membership.rebalancing or self._membership.problem is not None:
            waiting[None] = None, self._reason_of_group()
        for state in self._subscription.partitions.values():
            reason = self._reason(state)
            if reason is not None:
                waiting[state.tp] = (state.version, state.position, state.pause_reason), reason
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
                log.warning("for %.0f s %s", seconds, stall)
                self._reporter.stalled(what, stall.reason, seconds, is_over=False)
        for what, stall in self._stalls.items():
            if what not in stalls and (what is None or what in self._subscription.partitions):
                name = "the group" if what is None else f"{what.topic}-{what.partition}"
                seconds = now - stall.since
                log.info("%s: reading continues, after %.0f s", name, seconds)
                self._reporter.stalled(what, stall.reason, seconds, is_over=True)

    def _reason_of_group(self) -> str:
        problem = self._membership.problem
        if problem is not None:
            return f"the group can't be reached: {_said(problem)}"
        if self._membership.needs_attention:
            return "the group rebalances, and no call asks for records, which joins the group"
        return "the group rebalances, and waits for its other members"

    def _reason(self, state: PartitionState) -> str | None:
        """Return why no record of a partition is returned; None if it has none to return."""
        if state.failure is not None:
            return _said(state.failure)
        if state.awaiting_callback or state.revoking:
            return "the rebalance listener has not returned, or no call for records runs it"
        position = state.position
        if state.phase is not Phase.FETCHING or position is None:
            return self._problem_of(state) or _PHASES.get(state.phase, _PHASES[Phase.INITIALIZING])
        paused = _paused(state) if state.paused else None
        problem = self._problem_of(state)
        if problem is not None:
            return paused or problem
        if state.high_watermark < 0:
            return paused or "its leader has not answered a fetch yet"
        ahead = state.high_watermark - position.offset
        if ahead <= 0:
            return None
        if self._read_committed and state.last_stable_offset <= position.offset:
            return (
                f"the {ahead} records from offset {position.offset} on are in or behind an open "
                "transaction (isolation_level=read_committed)"
            )
        if self._buffer.has_data(state.tp):
            return paused or f"no call asks for the records from offset {position.offset} on"
        return paused or "its leader does not answer fetches"

    def _problem_of(self, state: PartitionState) -> str | None:
        problem = self._problems.of(state.tp)
        info = self._metadata.snapshot.find_leader(state.tp)
        if problem is None and isinstance(info, PartitionInfo):
            problem = self._problems.of(info.leader)
        if problem is None and state.phase is Phase.INITIALIZING:
            problem = self._membership.problem
        return None if problem is None else _said(problem)


def _paused(state: PartitionState) -> str:
    return f"it is paused: {state.pause_reason}" if state.pause_reason else "it is paused"


def _said(error: KafkaError) -> str:
    return f"{type(error).__name__}: {error}"

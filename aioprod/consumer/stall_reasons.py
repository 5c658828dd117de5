"""Finds the reason why a consumer's partitions are not read."""

from __future__ import annotations

from aioprod.cluster.metadata import Metadata
from aioprod.cluster.snapshot import PartitionInfo
from aioprod.config.consumer import ConsumerConfig
from aioprod.consumer.fetch_buffer import FetchBuffer
from aioprod.consumer.membership import Membership
from aioprod.consumer.problems import Problems
from aioprod.consumer.ready_records import ReadyRecords
from aioprod.consumer.stall_watch import Waiting
from aioprod.consumer.subscription import PartitionState, Phase, SubscriptionState
from aioprod.counts import counted
from aioprod.errors import KafkaError
from aioprod.types import TopicPartition

_PHASES = {
    Phase.INITIALIZING: "its committed offset is not known yet",
    Phase.AWAIT_RESET: "the offset at which to begin is not known yet",
    Phase.AWAIT_VALIDATION: "its new leader has not confirmed the position yet",
}


class StallReasons:
    """Looks at the group and at all partitions.

    Args:
        metadata: knows the leaders.
        ready: makes the positions those of the application.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        buffer: FetchBuffer,
        problems: Problems,
        membership: Membership,
        metadata: Metadata,
        ready: ReadyRecords,
    ) -> None:
        self._read_committed = config.isolation_level == "read_committed"
        self._subscription = subscription
        self._buffer = buffer
        self._problems = problems
        self._membership = membership
        self._metadata = metadata
        self._ready = ready

    def look(self, now: float) -> dict[TopicPartition | None, Waiting]:
        """Return what waits, and why."""
        self._ready.take_back()
        waiting: dict[TopicPartition | None, Waiting] = {}
        if self._membership.rebalancing or self._membership.problem is not None:
            waiting[None] = Waiting(None, self._reason_of_group())
        for state in self._subscription.partitions.values():
            reason = self._reason(state)
            if reason is not None:
                mark = state.version, state.position, state.pause_reason
                waiting[state.tp] = Waiting(mark, reason)
        return waiting

    def is_assigned(self, tp: TopicPartition) -> bool:
        """Return whether a partition is still assigned."""
        return tp in self._subscription.partitions

    def _reason_of_group(self) -> str:
        problem = self._membership.problem
        if problem is not None:
            return f"the group can't be reached: {said(problem)}"
        if self._membership.needs_attention:
            return "the group rebalances, and no call asks for records, which joins the group"
        return "the group rebalances, and waits for its other members"

    def _reason(self, state: PartitionState) -> str | None:
        """Return why no record of a partition is returned; None if it has none to return."""
        if state.failure is not None:
            return said(state.failure)
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
                f"from offset {position.offset} on: {counted(ahead, 'record')} in or after an "
                "open transaction (isolation_level=read_committed)"
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
        return None if problem is None else said(problem)


def _paused(state: PartitionState) -> str:
    return f"it is paused: {state.pause_reason}" if state.pause_reason else "it is paused"


def said(error: KafkaError) -> str:
    """Return an error with its name, as a reason."""
    return f"{type(error).__name__}: {error}"

"""The state that ``Consumer.state`` and ``ShareConsumer.state`` report to health checks."""

from __future__ import annotations

from typing import Protocol

from aioprod.consumer.problems import Problems
from aioprod.consumer.run_state import RunState
from aioprod.consumer.stall_watch import StallWatch
from aioprod.consumer.state import ConsumerState, ConsumerStatus
from aioprod.errors import KafkaError


class GroupMember(Protocol):
    """The state of a member of a group; see :class:`aioprod.consumer.membership.Membership`."""

    @property
    def rebalancing(self) -> bool: ...

    @property
    def problem(self) -> KafkaError | None: ...

    @property
    def failure(self) -> KafkaError | None: ...


class Health:
    """Derives one state from the stage of the consumer, its group, problems and progress."""

    def __init__(
        self, run_state: RunState, membership: GroupMember, problems: Problems, watch: StallWatch
    ) -> None:
        self._run_state = run_state
        self._membership = membership
        self._problems = problems
        self._watch = watch

    @property
    def state(self) -> ConsumerState:
        """The consumer's state at this moment."""
        run_state, membership = self._run_state, self._membership
        since = run_state.since
        if run_state.status is not ConsumerStatus.READING:
            return ConsumerState(run_state.status, since, run_state.fault)
        ended = run_state.fault or membership.failure
        if ended is not None:
            return ConsumerState(ConsumerStatus.FAILING, since, ended)
        latest = self._problems.latest
        if latest is not None:
            error, failing_since = latest
            return ConsumerState(ConsumerStatus.FAILING, self._date(failing_since), error)
        if membership.problem is not None:
            return ConsumerState(ConsumerStatus.FAILING, since, membership.problem)
        stall = self._watch.first
        if stall is not None:
            return ConsumerState(
                ConsumerStatus.STALLED, self._date(stall.since), KafkaError(str(stall))
            )
        if membership.rebalancing:
            return ConsumerState(ConsumerStatus.REBALANCING, since)
        return ConsumerState(ConsumerStatus.READING, since)

    def _date(self, time: float) -> float:
        """Convert loop time to seconds since 1970."""
        return self._run_state.clock() - (self._run_state.now() - time)

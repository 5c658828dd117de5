"""The state that ``Consumer.state`` reports to health checks."""

from __future__ import annotations

from aioprod.consumer.membership import Membership
from aioprod.consumer.problems import Problems
from aioprod.consumer.run_state import RunState
from aioprod.consumer.state import ConsumerState, ConsumerStatus


class Health:
    """Derives one state from the consumer's stage, its group and its unsolved problems."""

    def __init__(self, run_state: RunState, membership: Membership, problems: Problems) -> None:
        self._run_state = run_state
        self._membership = membership
        self._problems = problems

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
            began = run_state.clock() - (run_state.now() - failing_since)
            return ConsumerState(ConsumerStatus.FAILING, began, error)
        if membership.problem is not None:
            return ConsumerState(ConsumerStatus.FAILING, since, membership.problem)
        if membership.rebalancing:
            return ConsumerState(ConsumerStatus.REBALANCING, since)
        return ConsumerState(ConsumerStatus.READING, since)
